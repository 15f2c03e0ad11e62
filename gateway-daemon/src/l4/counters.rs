//! What the programs have counted.

use std::collections::BTreeMap;

use gateway_common::{
    Count, Entry, Outcome, ServiceCount,
    maps::{BACKEND_STATS, COUNTERS, SERVICE_STATS},
};

use super::{Kernel, error::Error};

/// All counters, summed over CPUs. They count on over restarts of the daemon.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// How packets left, every outcome of every entry.
    pub outcomes: Vec<OutcomeCount>,
    /// By service id, for the services in the ledger.
    pub services: BTreeMap<u32, ServiceCount>,
    /// By backend id, for the backends in the ledger.
    pub backends: BTreeMap<u32, ServiceCount>,
}

/// How many packets left an entry in one way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutcomeCount {
    /// The program.
    pub entry: Entry,
    /// The way.
    pub outcome: Outcome,
    /// Packets and bytes.
    pub count: Count,
}

impl Counters {
    /// The count of one outcome at one entry.
    pub fn outcome(&self, entry: Entry, outcome: Outcome) -> Count {
        let mut all = self.outcomes.iter();
        all.find(|count| count.entry == entry && count.outcome == outcome)
            .map(|count| count.count)
            .unwrap_or_default()
    }
}

impl Kernel {
    /// Reads all counters.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn counters(&self) -> Result<Counters, Error> {
        let mut outcomes = Vec::new();
        for entry in Entry::ALL {
            for outcome in Outcome::ALL.iter().copied() {
                let values =
                    self.maps.counters.get(&entry.index(outcome), 0).map_err(Error::map(COUNTERS))?;
                let count = values.iter().fold(Count::default(), |sum, value| Count {
                    packets: sum.packets.wrapping_add(value.packets),
                    bytes: sum.bytes.wrapping_add(value.bytes),
                });
                outcomes.push(OutcomeCount { entry, outcome, count });
            }
        }
        let mut counters = Counters { outcomes, ..Counters::default() };
        for (_, held) in self.ledger.services() {
            let values = self.maps.service_stats.get(&held.id, 0).map_err(Error::map(SERVICE_STATS))?;
            counters.services.insert(held.id, sum(&values));
        }
        for (id, _) in self.ledger.backends() {
            let values = self.maps.backend_stats.get(&id, 0).map_err(Error::map(BACKEND_STATS))?;
            counters.backends.insert(id, sum(&values));
        }
        Ok(counters)
    }
}

fn sum(values: &[ServiceCount]) -> ServiceCount {
    let of = |field: fn(&ServiceCount) -> u64| values.iter().map(field).sum();
    ServiceCount {
        flows: of(|count| count.flows),
        packets_in: of(|count| count.packets_in),
        bytes_in: of(|count| count.bytes_in),
        packets_out: of(|count| count.packets_out),
        bytes_out: of(|count| count.bytes_out),
    }
}
