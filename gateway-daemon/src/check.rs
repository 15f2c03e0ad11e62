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

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn everything_is_reported_in_order_of_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.yaml");
        let text = "\
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: db}
spec:
  parentRefs: [{name: nowhere}]
  rules:
  - backendRefs:
    - {name: none, port: 1}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: g}
spec:
  gatewayClassName: gatewayd
  listeners:
  - {name: a, port: 80, prot: TPC}
---
apiVersion: apps/v1
kind: Deployment
";
        fs::write(&file, text).unwrap();
        let report = check(vec![file.clone()]);
        let lines: Vec<String> = report.diagnostics.iter().map(ToString::to_string).collect();
        let at = |place: &str, rest: &str| format!("{}:{place}: {rest}", file.display());
        assert_eq!(
            lines,
            [
                at("5:23", "parent-not-found: there is no Gateway default/nowhere"),
                at("8:14", "backend-not-found: there is no Service default/none"),
                at("16:5", "missing-field: spec.listeners[0].protocol is missing: it is required"),
                at(
                    "16:25",
                    "unknown-field: there is no field `prot` in spec.listeners[0]: did you mean `protocol`?"
                ),
                at("19:7", "skipped-kind: Deployment is not a kind that gatewayd reads: skipped"),
            ]
        );
        assert!(report.failed());
    }

    #[test]
    fn notes_alone_are_no_failure() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a.yaml"), "apiVersion: apps/v1\nkind: Deployment\n").unwrap();
        let report = check(vec![directory.path().to_owned()]);
        assert_eq!((report.diagnostics.len(), report.failed()), (1, false));
    }

    /// Examples are what people copy: each must be without fault, alone.
    #[test]
    fn every_example_compiles_without_faults() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
        let mut entries: Vec<_> =
            fs::read_dir(&examples).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        assert!(entries.iter().any(|entry| entry.ends_with("tcp.yaml")), "{entries:?}");
        for example in entries {
            let report = check(vec![example.clone()]);
            let lines: Vec<String> = report.diagnostics.iter().map(ToString::to_string).collect();
            assert!(lines.is_empty(), "{}:\n{}", example.display(), lines.join("\n"));
        }
    }
}
