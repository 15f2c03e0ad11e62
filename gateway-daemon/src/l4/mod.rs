//! The kernel side: loading, pinning and adopting, attaching, and carrying out plans.
//!
//! The only module that names aya. [`Kernel::open`] -> [`Kernel::attach`] -> [`Kernel::apply`] for each plan.
//! Maps and links are pinned, so packets flow on when the daemon ends, however it ends; the next [`Kernel::open`]
//! adopts the maps with all flows in them, and [`Kernel::attach`] puts its own programs into the links in place.
//! [`cleanup()`] takes everything away, with or without a daemon.
//!
//! Not here: what to do (`plan`), which devices there are (`net`).

mod apply;
mod attach;
mod cleanup;
mod counters;
mod error;
mod maps;
mod pins;
mod ports;
mod preflight;

use std::{
    collections::BTreeMap,
    io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use aya::{Ebpf, EbpfLoader, programs::ProgramError};
use gateway_common::{
    Config, Device,
    maps::{ALL, DEFAULT_FLOWS, FLOWS4, FLOWS6, REPLIES4, REPLIES6, TC_PROGRAM, XDP_PROGRAM},
};

pub use self::{
    apply::ApplyError,
    attach::{Attachment, Mode, ParseModeError, Way},
    cleanup::{Left, cleanup},
    counters::{Counters, OutcomeCount},
    error::Error,
    ports::PortsError,
    preflight::preflight,
};
use self::{maps::Maps, pins::Pins};
use crate::{plan::Ledger, record::Record};

/// The kernel programs, as `cargo xtask build` makes them.
static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("GATEWAY_EBPF_OBJECT"));

/// How often a program is given to the verifier while signals cut it short.
const LOAD_TRIES: u32 = 10;

/// How the kernel side is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where maps and links are pinned.
    pub pin_dir: PathBuf,
    /// Entries of each flow and each reply map. Counts only when the maps are made, not when they are adopted.
    pub max_flows: u32,
    /// Key of the flow hash, for nodes that must choose alike. Without one an adopted key is kept, and a new one is
    /// drawn at random.
    pub hash_key: Option<[u64; 2]>,
    /// Ports that `nat` mode may use towards backends; without a range, the longest one that the node's own
    /// sockets do not use.
    pub nat_ports: Option<RangeInclusive<u16>>,
}

impl Options {
    /// The defaults, with a place for pins.
    pub fn new(pin_dir: PathBuf) -> Self {
        Self { pin_dir, max_flows: DEFAULT_FLOWS, hash_key: None, nat_ports: None }
    }
}

/// Programs and maps in the kernel, and what is known of them.
pub struct Kernel {
    pins: Pins,
    programs: Ebpf,
    maps: Maps,
    ledger: Ledger,
    adopted: bool,
    attachments: Vec<Attachment>,
    nat_ports: RangeInclusive<u16>,
}

impl Kernel {
    /// Loads the programs; makes and pins the maps, or adopts those that are pinned already, with all flows.
    /// Attaches nothing.
    ///
    /// # Errors
    /// When the node cannot run the programs, when maps of another layout are pinned, or when a step fails.
    pub fn open(options: &Options, record: &mut Record) -> Result<Self, Error> {
        preflight()?;
        let nat_ports = ports::nat_ports(options.nat_ports.clone())?;
        let pins = Pins::open(&options.pin_dir, record)?;
        let adopted = pins.check_maps()?;

        let mut programs = load(&pins, options.max_flows)?;
        let mut maps = Maps::take(&mut programs)?;
        let hash_key = match options.hash_key {
            Some(key) => key,
            None if adopted => maps.config()?.hash_key,
            None => random_key()?,
        };
        // Flows that are adopted keep their ports, so answers to those must be known as long as the maps are there.
        let reply_ports =
            if adopted { ports::spanning(&maps.config()?, &nat_ports) } else { nat_ports.clone() };
        maps.set_config(&Config {
            hash_key,
            nat_port_first: *nat_ports.start(),
            nat_port_count: ports::count(&nat_ports),
            reply_port_first: *reply_ports.start(),
            reply_port_count: ports::count(&reply_ports),
        })?;
        let ledger = if adopted { maps.read_ledger()? } else { Ledger::default() };
        Ok(Self { pins, programs, maps, ledger, adopted, attachments: Vec::new(), nat_ports })
    }

    /// What the kernel's maps hold.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Whether the maps were there before [`open`](Self::open).
    pub fn adopted(&self) -> bool {
        self.adopted
    }

    /// Where packets come in, as of the last [`attach`](Self::attach).
    pub fn attachments(&self) -> &[Attachment] {
        &self.attachments
    }

    /// Ports in use towards backends.
    pub fn nat_ports(&self) -> &RangeInclusive<u16> {
        &self.nat_ports
    }

    /// Where maps and links are pinned.
    pub fn pin_dir(&self) -> &Path {
        self.pins.dir()
    }

    /// Tells the programs of devices, by interface index. Those that are not in it can do nothing, and no packet is
    /// for them.
    ///
    /// # Errors
    /// When a map cannot be read or written.
    pub fn set_devices(&mut self, devices: &BTreeMap<u32, Device>) -> Result<(), Error> {
        self.maps.set_devices(devices)
    }
}

/// Parses the object, makes or opens its maps and has both programs verified.
fn load(pins: &Pins, max_flows: u32) -> Result<Ebpf, Error> {
    let mut loader = EbpfLoader::new();
    // Nothing in the programs is relocated against the kernel's types; reading them costs a good part of a second.
    loader.btf(None);
    for name in [FLOWS4, FLOWS6, REPLIES4, REPLIES6] {
        loader.map_max_entries(name, max_flows);
    }
    for name in ALL {
        loader.map_pin_path(name, pins.map(name));
    }
    let mut programs = loader.load(OBJECT).map_err(|source| Error::Load(Box::new(source)))?;
    let xdp = attach::xdp(&mut programs)?;
    verified(|| xdp.load())
        .map_err(|source| Error::Program { program: XDP_PROGRAM, source: Box::new(source) })?;
    let tc = attach::tc(&mut programs)?;
    verified(|| tc.load())
        .map_err(|source| Error::Program { program: TC_PROGRAM, source: Box::new(source) })?;
    Ok(programs)
}

/// Has the kernel verify a program, again when a signal cut that short: it answers `EAGAIN` then.
///
/// # Errors
/// What loading ended with; after ten tries that were cut short, the last of them.
/// # Kernel
/// `do_check` in kernel/bpf/verifier.c gives up when a signal is pending (seen on Linux 6.18).
pub fn verified(load: impl FnMut() -> Result<(), ProgramError>) -> Result<(), ProgramError> {
    let cut_short = |error: &ProgramError| match error {
        ProgramError::LoadError { io_error, .. } => io_error.kind() == io::ErrorKind::WouldBlock,
        _ => false,
    };
    retried(load, cut_short)
}

fn retried<E>(mut load: impl FnMut() -> Result<(), E>, cut_short: impl Fn(&E) -> bool) -> Result<(), E> {
    for _ in 1..LOAD_TRIES {
        match load() {
            Err(error) if cut_short(&error) => {}
            done => return done,
        }
    }
    load()
}

fn random_key() -> Result<[u64; 2], Error> {
    use std::io::Read as _;

    let mut words = [[0; 8]; 2];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(words.as_flattened_mut()))
        .map_err(|source| Error::File { path: "/dev/urandom".into(), source })?;
    Ok(words.map(u64::from_ne_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verification_that_was_cut_short_is_begun_again() {
        let ends = |mut answers: Vec<Result<(), &'static str>>| {
            retried(|| answers.pop().unwrap_or(Err("short")), |error| *error == "short")
        };
        assert_eq!(ends(vec![Ok(()), Err("short"), Err("short")]), Ok(()));
        assert_eq!(ends(vec![Ok(()), Err("refused")]), Err("refused"), "a refusal is final");
        assert_eq!(ends(Vec::new()), Err("short"), "and patience ends");
    }
}
