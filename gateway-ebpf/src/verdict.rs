//! The one exit: every packet is counted here, once, and here alone becomes a return code.

use core::ptr::NonNull;

use gateway_common::{Outcome, ServiceCount};

use crate::{
    family::{Connection, Family},
    maps,
    packet::Packet,
    parse::{self, Headers, Link, Network},
    path,
    rewrite::Translation,
};

/// How a packet leaves: sent as [`Sent`] says, or stopped for the reason given.
///
/// Stopped fails open or closed by the reason alone: [`Outcome::is_drop`] is the table.
///
/// A scalar, as are the results of all functions that are not inlined: one that returns a larger value through its
/// caller's stack may leave a pointer to it in the return register, which the verifier (Linux 6.18) refuses.
pub(crate) type Verdict = Result<(), Outcome>;

/// A packet that is on its way, as whoever sends it says.
pub(crate) struct Sent {
    /// Return code that sends it.
    pub(crate) code: u32,
    /// What was done.
    pub(crate) outcome: Outcome,
    /// Service id.
    pub(crate) service: u32,
    /// Backend id.
    pub(crate) backend: u32,
    /// Flows that began with it.
    pub(crate) flows: u32,
}

/// What is known of the packet that this CPU is working on, and what becomes of it.
///
/// In a map and not on the stack, which with IPv6 addresses in every function would not do (512 bytes for all). It
/// also keeps the verifier from proving the rest of the path anew for every value that parsing can give.
pub(crate) struct Work<F: Family> {
    pub(crate) headers: Headers<F>,
    pub(crate) to: Translation<F>,
    pub(crate) sent: Sent,
    /// The client's flow.
    pub(crate) flow_key: F::FlowKey,
    /// The tuple of the backend's packets, and what is remembered of them.
    pub(crate) reply_key: F::ReplyKey,
    pub(crate) connection: Connection,
}

/// Finds out what network protocol a packet is of, and has it carried on accordingly.
#[inline(always)]
pub(crate) fn enter<P: Packet>(packet: P) -> u32 {
    let available = packet.length();
    match parse::link(packet, available) {
        Some(link) if link.network == Network::Ipv4 => packet.steer_ipv4(link.pack()),
        Some(link) => packet.steer_ipv6(link.pack()),
        None => leave::<P>(P::PASS, Outcome::Foreign, available),
    }
}

/// Runs the data path on a packet whose link-layer header is known, counts how it left, and gives the return code.
#[inline(always)]
pub(crate) fn finish<P: Packet, F: Family>(packet: P, link: u64) -> u32 {
    let link = Link::unpack(link, if F::IPV6 { Network::Ipv6 } else { Network::Ipv4 });
    let Some(work) = F::work() else { return leave::<P>(P::PASS, Outcome::Foreign, link.available) };
    let (code, outcome) = match path::steer::<P, F>(packet, &link, work) {
        Ok(()) => {
            let sent = &work.sent;
            count_sent(sent, link.available.into());
            (sent.code, sent.outcome)
        }
        Err(outcome) if outcome.is_drop() => (P::DROP, outcome),
        Err(outcome) => (P::PASS, outcome),
    };
    leave::<P>(code, outcome, link.available)
}

/// Counts a packet of a length.
#[inline(always)]
fn leave<P: Packet>(code: u32, outcome: Outcome, length: u32) -> u32 {
    if let Some(mut count) = maps::counter(P::ENTRY.index(outcome)) {
        // SAFETY: a per-CPU value: no other CPU writes it, and a program is not interrupted by itself.
        let count = unsafe { count.as_mut() };
        count.packets += 1;
        count.bytes += u64::from(length);
    }
    code
}

/// Counts what was sent for its service and its backend.
#[inline(always)]
fn count_sent(sent: &Sent, bytes: u64) {
    if matches!(sent.outcome, Outcome::Forwarded | Outcome::Replied) {
        add(maps::service_count(sent.service), sent, bytes);
        add(maps::backend_count(sent.backend), sent, bytes);
    }
}

#[inline(always)]
fn add(count: Option<NonNull<ServiceCount>>, sent: &Sent, bytes: u64) {
    let Some(mut count) = count else { return };
    // SAFETY: a per-CPU value: no other CPU writes it, and a program is not interrupted by itself.
    let count = unsafe { count.as_mut() };
    if sent.outcome == Outcome::Forwarded {
        count.flows += u64::from(sent.flows);
        count.packets_in += 1;
        count.bytes_in += bytes;
    } else {
        count.packets_out += 1;
        count.bytes_out += bytes;
    }
}
