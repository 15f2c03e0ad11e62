//! What can go wrong on the kernel side.

use std::{io, path::PathBuf};

use aya::{
    EbpfError,
    maps::MapError,
    programs::{ProgramError, links::LinkError},
};

use super::ports::PortsError;
use crate::record;

/// Why the kernel side could not be set up, read or taken away.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A capability is missing.
    #[error("gatewayd needs {missing} to load kernel programs; run it as root")]
    NotPrivileged {
        /// The capabilities.
        missing: &'static str,
    },
    /// The kernel has no tcx.
    #[error("Linux {found} is too old: gatewayd needs 6.6 or newer (tcx links)")]
    KernelTooOld {
        /// Its release.
        found: String,
    },
    /// Another version's maps are pinned.
    #[error(
        "the maps pinned in {} are of another version of gatewayd ({what}) and cannot be adopted; \
         run `gatewayd cleanup`, which resets their flows, and start again", pin_dir.display()
    )]
    OtherLayout {
        /// Where they are pinned.
        pin_dir: PathBuf,
        /// What is different.
        what: String,
    },
    /// Another process has the pins.
    #[error(
        "another gatewayd is running with pin directory {}; stop it, or give this one its own --pin-dir and \
         --state-dir", pin_dir.display()
    )]
    InUse {
        /// The folder.
        pin_dir: PathBuf,
    },
    /// bpffs could not be mounted.
    #[error("mount bpffs on {}", path.display())]
    Mount {
        /// The folder.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// A file or folder could not be read or changed.
    #[error("{}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The object could not be loaded.
    #[error("load the kernel programs")]
    Load(#[source] Box<EbpfError>),
    /// The object has no such program, or not of this type.
    #[error("the kernel programs have no usable {program}")]
    MissingProgram {
        /// Name of the program.
        program: &'static str,
    },
    /// A program was refused.
    #[error("load {program}")]
    Program {
        /// Name of the program.
        program: &'static str,
        /// What happened.
        source: Box<ProgramError>,
    },
    /// The TC program, which every interface needs, could not be attached.
    #[error("attach the tc program to {interface}")]
    Attach {
        /// Name of the interface.
        interface: String,
        /// What happened.
        source: Box<ProgramError>,
    },
    /// A pinned link could not be opened.
    #[error("open the pinned link {}", path.display())]
    Link {
        /// Where it is pinned.
        path: PathBuf,
        /// What happened.
        source: Box<LinkError>,
    },
    /// The object has no such map, or a system call on it failed.
    #[error("map {map}")]
    Map {
        /// Name of the map.
        map: &'static str,
        /// What happened.
        source: Box<MapError>,
    },
    /// The object has no such map.
    #[error("the kernel programs have no map {map}")]
    MissingMap {
        /// Name of the map.
        map: &'static str,
    },
    /// A table was built with another number of slots than the programs expect.
    #[error("a table has {slots} slots")]
    TableLength {
        /// How many it has.
        slots: usize,
    },
    /// The number of CPUs is not known.
    #[error("count the CPUs")]
    Cpus(#[source] io::Error),
    /// No ports for `nat` mode.
    #[error(transparent)]
    Ports(#[from] PortsError),
    /// The record of changes failed.
    #[error("note what is changed on this node")]
    Record(#[from] record::Error),
}

impl Error {
    /// For `map_err` on a map's calls.
    pub(super) fn map(map: &'static str) -> impl Fn(MapError) -> Self {
        move |source| Self::Map { map, source: Box::new(source) }
    }
}
