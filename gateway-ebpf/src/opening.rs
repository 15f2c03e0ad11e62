//! Flows that open: from the first packet until both sides were seen to speak.
//!
//! They are kept apart from established ones, so that a flood of first packets, from whatever sources, pushes out
//! nothing but other first packets. A TCP client has spoken when it acknowledges what the backend sent it, which
//! whoever forges its address does not see; over UDP the backend's answer is all there is.

use gateway_common::{Be32, Flow, Outcome, TCP};

use crate::{
    family::Family,
    maps::{Entry, InsertError},
    nat,
    packet::Packet,
    parse::{Headers, tcp_flags},
    verdict::Work,
};

/// A client acknowledges no more than this beyond the backend's SYN before it was seen to end the handshake.
const ACKNOWLEDGED_MAX: u32 = 1 << 16;

/// Refreshes a flow that opens and its claim, or makes it an established one.
///
/// # Errors
/// `NatPortLost` when the port is another flow's by now.
#[inline(never)]
pub(crate) fn keep<P: Packet, F: Family>(
    packet: P,
    work: &Work<F>,
    entry: &Entry<Flow>,
    flags: u8,
) -> Result<(), Outcome> {
    let Work { headers, flow_key, reply_key, connection, .. } = work;
    let flow = entry.get();
    if flow.seen != connection.seen {
        entry.set_seen(connection.seen);
    }
    if connection.state != 0 {
        entry.add_state(connection.state);
    }
    let reply = F::new_reply(headers, connection);
    if headers.protocol == TCP && ends_handshake(packet, headers, flags, flow.expected) {
        let (seen, state) = (connection.seen, flow.state | connection.state);
        return establish::<F>(flow_key, &Flow { seen, checked: seen, state, ..flow }, reply_key, &reply);
    }
    match nat::hold_claim::<F>(reply_key, &reply) {
        // Another CPU has just established it.
        Err(Outcome::NatPortLost) if nat::is_established::<F>(reply_key, &reply) => Ok(()),
        held => held,
    }
}

/// Whether a client's segment acknowledges the backend's SYN.
#[inline(always)]
fn ends_handshake<P: Packet, F: Family>(packet: P, headers: &Headers<F>, flags: u8, expected: u32) -> bool {
    if flags & (tcp_flags::SYN | tcp_flags::RST | tcp_flags::ACK) != tcp_flags::ACK || expected == 0 {
        return false;
    }
    let acknowledged: Option<Be32> = packet.read(headers.l4 + 8);
    acknowledged.is_some_and(|number| number.host().wrapping_sub(expected) < ACKNOWLEDGED_MAX)
}

/// Notes what a backend's packet says to the client of a flow that opens: a datagram establishes it.
#[inline(never)]
pub(crate) fn note_reply<P: Packet, F: Family>(
    packet: P,
    work: &mut Work<F>,
    entry: &Entry<F::Reply>,
    flags: u8,
) -> Result<(), Outcome> {
    let Work { headers, flow_key: key, reply_key, .. } = work;
    let reply = entry.get();
    let (client, port) = F::client(&reply);
    *key = F::flow_key(client, F::connection(&reply).service, port);
    let Some(entry) = F::opening(key) else { return Ok(()) };
    let flow = entry.get();
    if flow.nat_port != headers.destination_port || flow.backend != F::connection(&reply).backend {
        return Ok(());
    }
    if headers.protocol != TCP {
        return establish::<F>(key, &flow, reply_key, &reply);
    }
    if flags & (tcp_flags::SYN | tcp_flags::ACK) == tcp_flags::SYN | tcp_flags::ACK {
        let sequence: Be32 = packet.read(headers.l4 + 4).ok_or(Outcome::Malformed)?;
        entry.set_expected(sequence.host().wrapping_add(1));
    }
    if flags & tcp_flags::RST != 0 {
        entry.add_state(gateway_common::tcp_state::RESET);
    }
    Ok(())
}

/// Makes a flow that opened an established one, together with its way back.
///
/// # Errors
/// `NatPortLost` when its port is another flow's by now.
#[inline(never)]
fn establish<F: Family>(
    key: &F::FlowKey,
    flow: &Flow,
    reply_key: &F::ReplyKey,
    reply: &F::Reply,
) -> Result<(), Outcome> {
    match F::insert_reply(reply_key, reply) {
        Ok(()) => {}
        // Another CPU has just done so.
        Err(InsertError::Exists) if nat::is_established::<F>(reply_key, reply) => {}
        Err(InsertError::Exists) => return Err(Outcome::NatPortLost),
        Err(InsertError::Full) => return Err(Outcome::MapFull),
    }
    if F::insert_flow(key, flow) == Err(InsertError::Full) {
        return Err(Outcome::MapFull);
    }
    F::remove_opening(key);
    F::remove_claim(reply_key);
    Ok(())
}
