//! What `gatewayd status` shows, put together from what each part knows.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use gateway_common::ServiceCount;

use crate::{
    admin::{
        BackendReport, BindReport, DeviceReport, FaultReport, L4ServiceReport, L7BackendReport,
        L7ServiceReport, ListenerReport,
    },
    api::{Diagnostic, Key, Resources},
    compile::status::Statuses,
    l4::{Attachment, Counters},
    l7::Stats,
    model::{self, l4::Protocol},
    plan::{HeldBackend, HeldService, Ledger},
};

/// A diagnostic as the report has it.
pub(super) fn fault(diagnostic: &Diagnostic) -> FaultReport {
    let code = diagnostic.code.to_owned();
    if let Some(place) = &diagnostic.place {
        let (file, message) = (place.file.to_string(), diagnostic.message.clone());
        return FaultReport { file, line: place.line, column: place.column, code, message };
    }
    let object = diagnostic.object.as_deref().map_or_else(String::new, |object| format!("{object}: "));
    FaultReport { file: String::new(), line: 0, column: 0, code, message: object + &diagnostic.message }
}

/// The listeners of all Gateways of ours.
pub(super) fn listeners(resources: &Resources, statuses: &Statuses) -> Vec<ListenerReport> {
    let mut reports = Vec::new();
    for (key, status) in &statuses.gateways {
        let Some(gateway) = resources.gateways.get(key) else { continue };
        for (listener, said) in gateway.spec.listeners.iter().zip(&status.listeners) {
            reports.push(ListenerReport {
                gateway: key.to_string(),
                name: said.name.clone(),
                addresses: status.addresses.clone(),
                port: listener.port,
                protocol: listener.protocol.clone(),
                programmed: said.conditions.iter().any(|c| c.condition_type == "Programmed" && c.status),
                attached_routes: said.attached_routes,
            });
        }
    }
    reports
}

/// The Gateways with a socket that could not be opened, and why.
pub(super) fn closed(
    resources: &Resources,
    statuses: &Statuses,
    binds: &[BindReport],
) -> BTreeMap<Key, String> {
    let mut closed = BTreeMap::new();
    for (key, status) in &statuses.gateways {
        let Some(gateway) = resources.gateways.get(key).filter(|_| !binds.is_empty()) else { continue };
        let ports = || gateway.spec.listeners.iter().map(|listener| listener.port);
        let sockets = status.addresses.iter().flat_map(|ip| ports().map(|port| SocketAddr::new(*ip, port)));
        let sockets: Vec<String> = sockets.map(|socket| socket.to_string()).collect();
        if let Some(bind) = binds.iter().find(|bind| sockets.contains(&bind.address)) {
            closed.insert(key.clone(), format!("{}: {}", bind.address, bind.error));
        }
    }
    closed
}

/// The services in the kernel, with what is asked and what was counted.
pub(super) fn l4_services(
    services: &[model::l4::Service],
    ledger: &Ledger,
    counters: &Counters,
) -> Vec<L4ServiceReport> {
    let mut held: BTreeMap<u32, Vec<(u32, &HeldBackend)>> = BTreeMap::new();
    for (id, backend) in ledger.backends() {
        held.entry(backend.service).or_default().push((id, backend));
    }
    let report = |service: &model::l4::Service, draining| {
        let id = ledger.service(&service.frontend).map(|held| held.id);
        let backends = id.and_then(|id| held.get(&id)).map_or(&[][..], Vec::as_slice);
        L4ServiceReport { draining, ..l4_service(service, id, backends, counters) }
    };
    let draining = ledger.services().filter(|(_, held)| held.state.until().is_some());
    let draining = draining.map(|(frontend, held)| L4ServiceReport {
        // Not known of one that was adopted.
        listener: held.listener.as_ref().map(ToString::to_string).unwrap_or_default(),
        ..report(&without_shares(*frontend, held), true)
    });
    services.iter().map(|service| report(service, false)).chain(draining).collect()
}

/// A service that drains, as a model would have it.
fn without_shares(frontend: model::l4::Frontend, held: &HeldService) -> model::l4::Service {
    model::l4::Service {
        frontend,
        listener: held.listener.clone().unwrap_or_default(),
        name: held.name.clone(),
        idle_timeout: Duration::ZERO,
        shares: Vec::new(),
    }
}

fn l4_service(
    service: &model::l4::Service,
    id: Option<u32>,
    held: &[(u32, &HeldBackend)],
    counters: &Counters,
) -> L4ServiceReport {
    let sum: u64 = service.shares.iter().map(|share| share.weight).sum();
    let asked = |matches: &dyn Fn(&model::l4::Share) -> bool| {
        let weight: u64 =
            service.shares.iter().filter(|share| matches(share)).map(|share| share.weight).sum();
        ratio(weight, sum)
    };
    let count = |id: &u32| counters.backends.get(id).copied().unwrap_or_default();
    let flows: u64 = held.iter().map(|(id, _)| count(id).flows).sum();
    let backend = |(id, backend): &(u32, &HeldBackend)| {
        let ServiceCount { flows: own, bytes_in, bytes_out, .. } = count(id);
        BackendReport {
            address: backend.address.ip(),
            port: backend.address.port(),
            asked_share: asked(&|share| share.backend == Some(backend.address)),
            seen_share: ratio(own, flows),
            flows: own,
            bytes_in,
            bytes_out,
            draining: backend.state.until().is_some(),
        }
    };
    let mut backends: Vec<BackendReport> = held.iter().map(backend).collect();
    backends.sort_by_key(|backend| (backend.address, backend.port));
    L4ServiceReport {
        name: service.name.clone(),
        address: service.frontend.address,
        port: service.frontend.port,
        protocol: match service.frontend.protocol {
            Protocol::Tcp => "tcp".to_owned(),
            Protocol::Udp => "udp".to_owned(),
        },
        listener: service.listener.to_string(),
        draining: false,
        flows: id.and_then(|id| counters.services.get(&id)).map_or(0, |count| count.flows),
        refused_share: if sum == 0 { 1.0 } else { asked(&|share| share.backend.is_none()) },
        backends,
    }
}

/// The services of the proxy, with what is asked and what was counted.
pub(super) fn l7_services(proxy: &model::l7::Proxy, stats: &Stats) -> Vec<L7ServiceReport> {
    let report = |(name, service): (&String, &std::sync::Arc<model::l7::Service>)| {
        let counted = stats.get(name).map_or(&[][..], |stats| stats.backends.as_slice());
        let requests: u64 = counted.iter().map(|backend| backend.requests).sum();
        let weights: u64 = service.backends.iter().map(|backend| u64::from(backend.weight)).sum();
        let backend = |(index, backend): (usize, &model::l7::BackendRef)| {
            let own = counted.get(index).map_or(0, |counted| counted.requests);
            L7BackendReport {
                name: backend.name.clone(),
                asked_share: ratio(u64::from(backend.weight), weights),
                seen_share: ratio(own, requests),
                requests: own,
                endpoints: match &backend.target {
                    model::l7::Target::Endpoints { endpoints, .. } => endpoints.len(),
                    model::l7::Target::Invalid(_) => 0,
                },
            }
        };
        let backends = service.backends.iter().enumerate().map(backend).collect();
        L7ServiceReport { name: name.clone(), requests, backends }
    };
    proxy.services.iter().map(report).collect()
}

/// The devices with our programs.
pub(super) fn devices(attachments: &[Attachment]) -> Vec<DeviceReport> {
    let report = |attachment: &Attachment| DeviceReport {
        name: attachment.interface.clone(),
        mode: attachment.way.to_string(),
        why: attachment.reason.clone(),
    };
    attachments.iter().map(report).collect()
}

/// Packets by entry and outcome.
pub(super) fn counters(counters: &Counters) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut entries: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for counted in &counters.outcomes {
        let outcomes = entries.entry(counted.entry.name().to_owned()).or_default();
        outcomes.insert(counted.outcome.name().to_owned(), counted.count.packets);
    }
    entries
}

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
