//! What `gatewayd check` finds: every fault of a set of files, without touching anything.

use std::{net::IpAddr, path::PathBuf};

use crate::{
    api::{Diagnostic, Severity},
    compile::{Settings, compile},
    source::files::Loader,
};

/// What is to be said about files.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Everything, sorted by file, line and column; what has no place comes first.
    pub diagnostics: Vec<Diagnostic>,
}

impl Report {
    /// Whether something asked for would not be served.
    pub fn failed(&self) -> bool {
        self.diagnostics.iter().any(|said| said.severity == Severity::Error)
    }
}

/// Reads files once and compiles them as a node would.
///
/// Which addresses the node has is not looked up, so that a report is the same everywhere: it is taken to have one of
/// each family (of the documentation's ranges). Hostnames are not resolved.
pub fn check(paths: Vec<PathBuf>) -> Report {
    let load = Loader::new(paths).load();
    let settings = Settings {
        node_addresses: vec![IpAddr::from([192, 0, 2, 1]), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1])],
        implicit_class: true,
        ..Settings::default()
    };
    let mut diagnostics = load.loaded.faults;
    diagnostics.extend(compile(&load.loaded.resources, &settings).diagnostics);
    diagnostics.sort();
    diagnostics.dedup();
    Report { diagnostics }
}
