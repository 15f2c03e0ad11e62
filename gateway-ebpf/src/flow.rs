//! Which backend a client's packet belongs to: the flow it is part of, if that still lives.

use gateway_common::{Backend, Be16, Flow, Outcome, Service, TCP, tcp_state::is_closed};

use crate::{
    family::{Connection, Family},
    kernel::age,
    maps::{self, Entry, InsertError},
    nat,
    parse::{Headers, Transport},
};

/// The flow of a packet.
pub(crate) struct Found {
    /// Where it is remembered; none when it begins with this packet.
    pub(crate) entry: Option<Entry<Flow>>,
    /// What is remembered; all zero when it begins.
    pub(crate) flow: Flow,
    /// Whether it still opens.
    pub(crate) opens: bool,
    /// Whether there is one that is over.
    pub(crate) replaces: bool,
}

/// The flow that the packet continues or begins.
///
/// # Errors
/// `BackendGone` or `NoFlow` for TCP that can do neither.
#[inline(always)]
pub(crate) fn find<F: Family>(
    headers: &Headers<F>,
    key: &F::FlowKey,
    service: Service,
    transport: Transport,
    now: u32,
) -> Result<Found, Outcome> {
    let (entry, opens) = match F::flow(key) {
        Some(entry) => (entry, false),
        None => match F::opening(key) {
            Some(entry) => (entry, true),
            None => return begin_or(headers, transport, false, Outcome::NoFlow),
        },
    };
    let flow = entry.get();
    if transport.opens() && is_closed(flow.state) {
        return begin_or(headers, transport, true, Outcome::NoFlow);
    }
    if backend(flow.backend).is_none_or(|backend| backend.incarnation != flow.incarnation) {
        return begin_or(headers, transport, true, Outcome::BackendGone);
    }
    if age(now, flow.seen) > service.idle_ticks && is_idle(headers, service, &flow, now) {
        return begin_or(headers, transport, true, Outcome::NoFlow);
    }
    Ok(Found { entry: Some(entry), flow, opens, replaces: true })
}

/// A new flow, where the packet can begin one.
#[inline(always)]
fn begin_or<F: Family>(
    headers: &Headers<F>,
    transport: Transport,
    replaces: bool,
    otherwise: Outcome,
) -> Result<Found, Outcome> {
    let begins = headers.protocol != TCP || transport.opens();
    if begins {
        Ok(Found { entry: None, flow: Flow::default(), opens: true, replaces })
    } else {
        Err(otherwise)
    }
}

/// The backend with this id, when there is one.
#[inline(always)]
pub(crate) fn backend(id: u32) -> Option<&'static Backend> {
    maps::backend(id).filter(|backend| backend.port.wire() != 0)
}

/// Remembers a flow that opens, in the place of the one that it `replaces` if there was one.
#[inline(never)]
pub(crate) fn begin<F: Family>(
    key: &F::FlowKey,
    connection: &Connection,
    incarnation: Be16,
    nat_port: Be16,
    replaces: bool,
) -> Result<(), Outcome> {
    let flow = Flow {
        backend: connection.backend,
        seen: connection.seen,
        checked: connection.seen,
        incarnation,
        nat_port,
        state: connection.state,
        expected: 0,
    };
    if replaces {
        F::remove_flow(key);
        F::remove_opening(key);
    }
    match F::insert_opening(key, &flow) {
        // Another CPU began it meanwhile, with the same backend: both NAT ports lead back to the client.
        Ok(()) | Err(InsertError::Exists) => Ok(()),
        Err(InsertError::Full) => Err(Outcome::MapFull),
    }
}

/// Whether the backend has been silent as long as the client.
#[inline(never)]
fn is_idle<F: Family>(headers: &Headers<F>, service: Service, flow: &Flow, now: u32) -> bool {
    let Some(backend) = backend(flow.backend) else { return true };
    let Some(address) = F::from_addr(&backend.address) else { return true };
    let Some(node) = F::from_addr(&backend.source) else { return true };
    let mut key = F::reply_key(*address, *node, backend.port, headers.protocol);
    F::set_nat_port(&mut key, flow.nat_port);
    let seen = nat::seen(&key, headers, service.id);
    seen.is_none_or(|seen| age(now, seen) > service.idle_ticks)
}
