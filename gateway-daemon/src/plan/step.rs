//! One change of the kernel's maps.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use gateway_common::{REFUSE, hash::SipHash, table::TableEntry};

use super::ledger::{HeldBackend, HeldService};
use crate::model::l4::Frontend;

/// Ordered steps; printed one a line.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Plan {
    /// What to do, first to last.
    pub steps: Vec<Step>,
}

/// One change that leaves the kernel whole.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// Writes a backend and clears the counters of its id.
    AddBackend {
        /// Frontend of its service.
        frontend: Frontend,
        /// Backend id.
        id: u32,
        /// What to write.
        backend: HeldBackend,
    },
    /// Writes another source address towards a backend.
    UpdateBackend {
        /// Backend id.
        id: u32,
        /// Where it listens.
        address: SocketAddr,
        /// This node's address towards it.
        source: Option<IpAddr>,
    },
    /// Takes a backend back that was draining. Changes nothing in the kernel.
    ReviveBackend {
        /// Backend id.
        id: u32,
        /// Where it listens.
        address: SocketAddr,
    },
    /// Swaps a service's whole table.
    SetTable {
        /// Frontend of the service.
        frontend: Frontend,
        /// Service id.
        service: u32,
        /// Who owns the slots.
        shares: Vec<TableShare>,
    },
    /// Makes the kernel answer for a frontend; clears the counters of the service id.
    AddService {
        /// The frontend.
        frontend: Frontend,
        /// What to write.
        service: HeldService,
    },
    /// Writes a service's settings anew.
    UpdateService {
        /// The frontend.
        frontend: Frontend,
        /// What to write.
        service: HeldService,
    },
    /// Makes a service refuse new flows, and lets its old ones live on for a while.
    DrainService {
        /// The frontend.
        frontend: Frontend,
        /// Service id.
        service: u32,
        /// End of the drain timeout, on the clock that the plan was made by.
        until: Duration,
    },
    /// Makes the kernel leave a frontend alone.
    RemoveService {
        /// The frontend.
        frontend: Frontend,
        /// Name that the service had.
        name: Option<String>,
    },
    /// Frees the table of a service that is gone.
    RemoveTable {
        /// Frontend that the service had.
        frontend: Frontend,
        /// Service id.
        service: u32,
    },
    /// Lets old flows of a backend live on for a while. Changes nothing in the kernel: its table has left it out.
    DrainBackend {
        /// Backend id.
        id: u32,
        /// Where it listens.
        address: SocketAddr,
        /// End of the drain timeout, on the clock that the plan was made by.
        until: Duration,
    },
    /// Removes a backend: what is left of its flows is reset.
    RemoveBackend {
        /// Backend id.
        id: u32,
        /// Where it listened.
        address: SocketAddr,
    },
}

/// A share of a table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TableShare {
    /// Id and address of the backend; none for the share that is refused.
    pub backend: Option<(u32, SocketAddr)>,
    /// Weight against the sum of all.
    pub weight: u64,
}

/// The owners of a table's slots, as [`gateway_common::table::build`] takes them.
pub fn entries(shares: &[TableShare]) -> Vec<TableEntry> {
    let entry = |share: &TableShare| TableEntry {
        backend: share.backend.map_or(REFUSE, |(id, _)| id),
        weight: share.weight,
        identity: share.backend.map_or([0, 0], |(_, address)| identity(address)),
    };
    shares.iter().map(entry).collect()
}

/// Two words that name a backend, equal on every node whatever ids backends have there.
fn identity(address: SocketAddr) -> [u64; 2] {
    let ip = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let segments = ip.segments();
    let (high, low) = segments.split_at(4);
    let half = |segments: &[u16]| segments.iter().fold(0, |word, segment| word << 16 | u64::from(*segment));
    // The keys are part of the contract between nodes, like the table's.
    let word =
        |key| SipHash::new([key, 0]).word(half(high)).word(half(low)).word(address.port().into()).finish();
    [word(0x6261_636b), word(0x656e_6473)]
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddBackend { frontend, id, backend } => {
                write!(f, "add backend {id}: {} for {frontend}, {}", backend.address, From(backend.source))
            }
            Self::UpdateBackend { id, address, source } => {
                write!(f, "update backend {id}: {address}, {}", From(*source))
            }
            Self::ReviveBackend { id, address } => write!(f, "take back backend {id}: {address}"),
            Self::SetTable { frontend, service, shares } => {
                write!(f, "set table {service}: {frontend} to {}", Shares(shares))
            }
            Self::AddService { frontend, service } => {
                write!(f, "add service {}: {frontend}, {}", service.id, Name(service.name.as_ref()))
            }
            Self::UpdateService { frontend, service } => {
                write!(f, "update service {}: {frontend}, {}", service.id, Name(service.name.as_ref()))
            }
            Self::DrainService { frontend, service, .. } => write!(f, "drain service {service}: {frontend}"),
            Self::RemoveService { frontend, name } => {
                write!(f, "remove service: {frontend}, {}", Name(name.as_ref()))
            }
            Self::RemoveTable { frontend, service } => write!(f, "remove table {service}: {frontend}"),
            Self::DrainBackend { id, address, .. } => write!(f, "drain backend {id}: {address}"),
            Self::RemoveBackend { id, address } => write!(f, "remove backend {id}: {address}"),
        }
    }
}

struct From(Option<IpAddr>);

impl fmt::Display for From {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(source) => write!(f, "from {source}"),
            None => f.write_str("no route"),
        }
    }
}

struct Name<'a>(Option<&'a String>);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.map_or("no route attached", String::as_str))
    }
}

struct Shares<'a>(&'a [TableShare]);

impl fmt::Display for Shares<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.iter().all(|share| share.weight == 0) {
            return f.write_str("nobody: refuse");
        }
        for (index, share) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            match share.backend {
                Some((id, address)) => write!(f, "{separator}{id} ({address}) x {}", share.weight)?,
                None => write!(f, "{separator}refuse x {}", share.weight)?,
            }
        }
        Ok(())
    }
}
