//! What the data planes have counted, for metrics.

use std::collections::BTreeMap;

use super::writer::Writer;
use crate::{
    l4::Counters,
    l7::{BackendStats, Stats},
    observe::{Counts, KernelService, ProxyService, bounded},
    plan::{Ledger, State},
};

impl Writer {
    /// What was counted until now.
    pub(super) fn counts(&self) -> Counts {
        let ledger = self.kernel.ledger();
        let counters = self.kernel_counters();
        let outcomes = counters.outcomes.iter();
        let outcomes = outcomes.map(|one| (one.entry.name(), one.outcome.name(), one.count)).collect();
        let draining =
            ledger.backends().filter(|(_, backend)| matches!(backend.state, State::Draining { .. })).count();
        let (kernel_services, kernel_services_left_out) =
            bounded(kernel_services(ledger, &counters), |service| 1 + service.backends.len());
        let (proxy_services, proxy_services_left_out) =
            bounded(proxy_services(self.proxy.stats()), |service| service.backends.len());
        Counts {
            outcomes,
            kernel_services,
            kernel_services_left_out,
            kernel_backends: [ledger.backends().count() - draining, draining],
            proxy_services,
            proxy_services_left_out,
        }
    }
}

fn kernel_services(ledger: &Ledger, counters: &Counters) -> Vec<KernelService> {
    let mut backends: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for (id, backend) in ledger.backends() {
        let count = counters.backends.get(&id).copied().unwrap_or_default();
        backends.entry(backend.service).or_default().push((backend.address.to_string(), count));
    }
    let service = |(frontend, held): (&_, &crate::plan::HeldService)| KernelService {
        frontend: ToString::to_string(frontend),
        service: held.name.clone().unwrap_or_default(),
        count: counters.services.get(&held.id).copied().unwrap_or_default(),
        backends: backends.remove(&held.id).unwrap_or_default(),
    };
    ledger.services().map(service).collect()
}

/// A service may name a backend twice. Both count into the same cells, and two rows of equal labels would be none.
fn proxy_services(stats: Stats) -> Vec<ProxyService> {
    let service = |(service, stats): (String, crate::l7::ServiceStats)| {
        let mut backends: BTreeMap<String, BackendStats> = BTreeMap::new();
        for backend in stats.backends {
            backends.entry(backend.name.clone()).or_insert(backend);
        }
        ProxyService { service, backends: backends.into_values().collect() }
    };
    stats.into_iter().map(service).collect()
}
