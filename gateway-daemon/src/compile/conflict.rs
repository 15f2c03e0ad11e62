//! Listeners that exclude each other, and those that may be taken for each other.
//!
//! Within a Gateway none of them wins, as the specification has it. Between Gateways that share an address, which only
//! happens where no address is left to tell them apart, the older one does.

use super::{
    Context,
    attach::covers,
    gateway::{Gateway, Listener, Protocol},
    status::{
        HOSTNAME_CONFLICT, OVERLAPPING_CERTIFICATES, OVERLAPPING_HOSTNAMES, PORT_UNAVAILABLE,
        PROTOCOL_CONFLICT, Problem,
    },
};
use crate::{
    api::{Object, gateway as api},
    model::l7::Hostname,
};

/// Listeners of one Gateway that exclude each other; none of them wins.
pub(super) fn within_gateway(
    cx: &mut Context<'_>,
    object: &Object<api::Gateway>,
    listeners: &mut [Listener<'_>],
) {
    let found: Vec<Option<Problem>> =
        listeners.iter().map(|one| listeners.iter().find_map(|other| conflict(one, other))).collect();
    for (listener, problem) in listeners.iter_mut().zip(found) {
        if let Some(problem) = &problem {
            cx.error(object, &format!("{}.port", listener.path), problem);
        }
        listener.conflicted = problem;
    }
}

fn conflict(one: &Listener<'_>, other: &Listener<'_>) -> Option<Problem> {
    let (protocol, others) = (one.protocol?, other.protocol?);
    let udp = |protocol| protocol == Protocol::Udp;
    if one.name() == other.name() || one.spec.port != other.spec.port || udp(protocol) != udp(others) {
        return None;
    }
    let (name, port) = (&other.spec.name, one.spec.port);
    if protocol != others && !(protocol.has_server_name() && others.has_server_name()) {
        let message = format!("port {port} has another protocol in listener {name}: use another port");
        return Some(Problem::new(PROTOCOL_CONFLICT, message));
    }
    (one.hostname == other.hostname).then(|| {
        let message = format!("listener {name} has the same port {port} and hostname: change one of them");
        Problem::new(HOSTNAME_CONFLICT, message)
    })
}

/// Listeners of one port where TLS ends, and whose clients may take a connection to one for one to the other: both are
/// told, and serve nevertheless (requests that came the wrong way are answered with 421).
pub(super) fn overlaps(listeners: &mut [Listener<'_>]) {
    let found: Vec<Option<Problem>> = listeners
        .iter()
        .map(|one| {
            let mut all: Vec<Problem> = listeners.iter().filter_map(|other| overlap(one, other)).collect();
            // Where both kinds are found, that of certificates is to be told.
            let certificates = all.iter().position(|problem| problem.reason == OVERLAPPING_CERTIFICATES);
            (!all.is_empty()).then(|| all.swap_remove(certificates.unwrap_or(0)))
        })
        .collect();
    for (listener, problem) in listeners.iter_mut().zip(found) {
        listener.overlapping = problem;
    }
}

fn overlap(one: &Listener<'_>, other: &Listener<'_>) -> Option<Problem> {
    let served = |listener: &Listener<'_>| listener.is_valid() && !listener.certificate_names.is_empty();
    let apart = one.name() == other.name() || one.spec.port != other.spec.port;
    if apart || !served(one) || !served(other) {
        return None;
    }
    let meet = |one: &Hostname, other: &Hostname| covers(one, other) || covers(other, one);
    let name = &other.spec.name;
    let shared = one
        .certificate_names
        .iter()
        .find(|mine| other.certificate_names.iter().any(|theirs| meet(mine, theirs)));
    if let Some(shared) = shared {
        let message = format!("listener {name} of the same port has a certificate for {shared} too");
        return Some(Problem::new(OVERLAPPING_CERTIFICATES, message));
    }
    let hostnames = match (&one.hostname, &other.hostname) {
        (Some(one), Some(other)) => meet(one, other),
        _ => true,
    };
    hostnames.then(|| {
        let message =
            format!("listener {name} of the same port has a hostname within this one's, or around it");
        Problem::new(OVERLAPPING_HOSTNAMES, message)
    })
}

/// Gateways that share an address: a listener that excludes one of an older Gateway is refused.
pub(super) fn between_gateways(cx: &mut Context<'_>, gateways: &mut [Gateway<'_>]) {
    for later in 1..gateways.len() {
        let (older, rest) = gateways.split_at_mut(later);
        let gateway = &mut rest[0];
        for listener in gateway.listeners.iter_mut().filter(|listener| listener.is_valid()) {
            let rival = older
                .iter()
                .filter(|other| other.refused.is_none() && gateway.refused.is_none())
                .filter(|other| other.addresses.iter().any(|address| gateway.addresses.contains(address)))
                .flat_map(|other| &other.listeners)
                .find(|other| other.is_valid() && conflict(listener, other).is_some());
            if let Some(rival) = rival {
                let message = format!(
                    "port {} is taken at this address by listener {}, of an older Gateway",
                    listener.spec.port,
                    rival.name()
                );
                let problem = Problem::new(PORT_UNAVAILABLE, message);
                cx.error(gateway.object, &format!("{}.port", listener.path), &problem);
                listener.refused = Some(problem);
            }
        }
    }
}
