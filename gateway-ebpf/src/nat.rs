//! Source ports towards backends, and the way back that each of them stands for.
//!
//! A reply entry owns its port towards its backend: nobody else may use it until the entry is gone, its connection is
//! over, or it has been idle too long. While the flow opens, the entry is a claim, of which there are few.

use gateway_common::{Be16, Flow, Outcome, TCP, tcp_state::is_closed};

use crate::{
    family::{Connection, Family, V4, V6},
    kernel::{age, random},
    maps::{self, Entry, InsertError},
    parse::Headers,
    verdict::Work,
};

/// Ports that are tried for a new flow before there is said to be none.
const PROBES: u32 = 32;
/// Ticks for which the port of a closed connection is left alone, for the last packets of both sides; and that of a
/// handshake that is not finished, so that a flood of them does not keep ports from honest clients for long.
const QUARANTINE: u32 = 2;
/// Ticks for which a datagram may wait for its answer before its port may be another flow's: about 30 seconds.
const UNANSWERED: u32 = 28;

/// The reply entry of the connection that a backend's packet belongs to, and whether that still opens; the key is
/// written.
#[inline(always)]
pub(crate) fn find<F: Family>(
    headers: &Headers<F>,
    key: &mut F::ReplyKey,
) -> Option<(Entry<F::Reply>, bool)> {
    let config = maps::config()?;
    let port = headers.destination_port;
    if port.host().wrapping_sub(config.reply_port_first) >= config.reply_port_count {
        return None;
    }
    *key = F::reply_key(headers.source, headers.destination, headers.source_port, headers.protocol);
    F::set_nat_port(key, port);
    match F::reply(key) {
        Some(entry) => Some((entry, false)),
        None => F::claim(key).map(|entry| (entry, true)),
    }
}

/// Whether two reply entries are of one flow.
#[inline(always)]
fn are_alike<F: Family>(a: &F::Reply, b: &F::Reply) -> bool {
    F::client(a) == F::client(b) && F::connection(a).service == F::connection(b).service
}

/// Whether a port is that of an established flow, and of this one.
#[inline(always)]
pub(crate) fn is_established<F: Family>(key: &F::ReplyKey, reply: &F::Reply) -> bool {
    F::reply(key).is_some_and(|entry| are_alike::<F>(&entry.get(), reply))
}

/// Refreshes the claim of a flow that opens, or puts it back.
///
/// # Errors
/// `NatPortLost` when the port is another flow's by now.
#[inline(never)]
pub(crate) fn hold_claim<F: Family>(key: &F::ReplyKey, reply: &F::Reply) -> Result<(), Outcome> {
    let Some(entry) = F::claim(key) else {
        return enter_claim::<F>(key, reply).map_err(|error| match error {
            InsertError::Exists => Outcome::NatPortLost,
            InsertError::Full => Outcome::MapFull,
        });
    };
    let held = entry.get();
    if !are_alike::<F>(&held, reply) {
        return Err(Outcome::NatPortLost);
    }
    F::set_seen(&entry, F::connection(reply).seen);
    if F::connection(reply).state != 0 {
        F::add_state(&entry, F::connection(reply).state);
    }
    Ok(())
}

/// Claims a port that no flow has, opening or established.
#[inline(always)]
fn enter_claim<F: Family>(key: &F::ReplyKey, reply: &F::Reply) -> Result<(), InsertError> {
    F::insert_claim(key, reply)?;
    // A flow is established before its claim is given up, so this sees whoever was quicker.
    if F::reply(key).is_some() {
        F::remove_claim(key);
        return Err(InsertError::Exists);
    }
    Ok(())
}

/// Whether a reply entry is for the flow of a client's packet.
#[inline(always)]
fn is_for<F: Family>(reply: &F::Reply, headers: &Headers<F>, service: u32) -> bool {
    F::client(reply) == (headers.source, headers.source_port) && F::connection(reply).service == service
}

/// When the reply entry of a flow was last used, if it is still the flow's.
#[inline(always)]
pub(crate) fn seen<F: Family>(key: &F::ReplyKey, headers: &Headers<F>, service: u32) -> Option<u32> {
    let reply = F::reply(key).or_else(|| F::claim(key))?.get();
    is_for(&reply, headers, service).then(|| F::connection(&reply).seen)
}

/// Refreshes a flow, and once a tick the reply entry that it needs, which eviction may have taken.
///
/// # Errors
/// `NatPortLost` when the port is another flow's by now.
#[inline(always)]
pub(crate) fn keep<F: Family>(
    entry: &Entry<Flow>,
    flow: &Flow,
    key: &F::ReplyKey,
    headers: &Headers<F>,
    connection: &mut Connection,
) -> Result<(), Outcome> {
    let (now, ends) = (connection.seen, connection.state);
    if flow.seen != now {
        entry.set_seen(now);
    }
    if flow.checked == now && ends & !flow.state == 0 {
        return Ok(());
    }
    connection.state |= flow.state;
    hold(key, headers, connection)?;
    entry.set_checked(now);
    if ends != 0 {
        entry.add_state(connection.state);
    }
    Ok(())
}

/// Refreshes the reply entry of a flow, or puts it back.
#[inline(never)]
fn hold<F: Family>(key: &F::ReplyKey, headers: &Headers<F>, connection: &Connection) -> Result<(), Outcome> {
    let Some(entry) = F::reply(key) else {
        return F::insert_reply(key, &F::new_reply(headers, connection)).map_err(|error| match error {
            InsertError::Exists => Outcome::NatPortLost,
            InsertError::Full => Outcome::MapFull,
        });
    };
    let reply = entry.get();
    if !is_for(&reply, headers, connection.service) {
        return Err(Outcome::NatPortLost);
    }
    F::set_seen(&entry, connection.seen);
    if connection.state & !F::connection(&reply).state != 0 {
        F::add_state(&entry, connection.state);
    }
    Ok(())
}

/// [`allocate`] for IPv4: zero, or the number of an outcome.
///
/// A global function: the verifier proves it once, and not once for every way to its call.
#[inline(never)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn gw_allocate4(work: *mut Work<V4>) -> u32 {
    // SAFETY: the one caller hands over its own.
    unsafe { work.as_mut() }.map_or(0, |work| allocate(work).err().map_or(0, |outcome| outcome as u32))
}

/// [`allocate`] for IPv6, as [`gw_allocate4`].
#[inline(never)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn gw_allocate6(work: *mut Work<V6>) -> u32 {
    // SAFETY: the one caller hands over its own.
    unsafe { work.as_mut() }.map_or(0, |work| allocate(work).err().map_or(0, |outcome| outcome as u32))
}

/// The result of a global function of this file.
#[inline(always)]
pub(crate) const fn allocated(code: u32) -> Result<(), Outcome> {
    match code {
        0 => Ok(()),
        code if code == Outcome::MapFull as u32 => Err(Outcome::MapFull),
        _ => Err(Outcome::NatPortsExhausted),
    }
}

/// Takes a port for a new flow and enters the way back; the port is written into the key.
///
/// # Errors
/// `NatPortsExhausted` when every port tried is another flow's.
#[inline(always)]
fn allocate<F: Family>(work: &mut Work<F>) -> Result<(), Outcome> {
    let Work { headers, reply_key: key, connection, .. } = work;
    let (headers, connection) = (&*headers, &*connection);
    let config = maps::config().ok_or(Outcome::NatPortsExhausted)?;
    let count = u32::from(config.nat_port_count);
    if count == 0 {
        return Err(Outcome::NatPortsExhausted);
    }
    let reply = F::new_reply(headers, connection);
    let start = random() % count;
    // So that the probes are all different.
    let strides = count / PROBES;
    let stride = if strides == 0 { 1 } else { random() % strides + 1 };
    let port =
        |probe: u32| Be16::new(config.nat_port_first.wrapping_add(((start + probe * stride) % count) as u16));
    for probe in 0..PROBES {
        F::set_nat_port(key, port(probe));
        // Looking first, because an insertion into a full LRU map evicts before it finds that the key exists.
        if F::reply(key).is_none() && F::claim(key).is_none() {
            match enter_claim::<F>(key, &reply) {
                Ok(()) => return Ok(()),
                Err(InsertError::Full) => return Err(Outcome::MapFull),
                Err(InsertError::Exists) => {}
            }
        }
    }
    for probe in 0..PROBES {
        F::set_nat_port(key, port(probe));
        if reclaim::<F>(key, headers.protocol, connection.seen) && enter_claim::<F>(key, &reply).is_ok() {
            return Ok(());
        }
    }
    Err(Outcome::NatPortsExhausted)
}

/// Takes a port from a flow that needs it no more. Of several CPUs that try, one does; the port is free then, to
/// whoever inserts first.
#[inline(always)]
fn reclaim<F: Family>(key: &F::ReplyKey, protocol: u8, now: u32) -> bool {
    let (entry, opens) = match F::reply(key) {
        Some(entry) => (entry, false),
        None => match F::claim(key) {
            Some(entry) => (entry, true),
            None => return true,
        },
    };
    let reply = F::connection(&entry.get());
    // Once it is seized it has just been seen, so that nobody else may have it.
    let seized = is_reclaimable(reply, opens, protocol, now) && F::seize(&entry, reply.seen, now);
    if seized && opens {
        F::remove_claim(key);
    } else if seized {
        F::remove_reply(key);
    }
    seized
}

/// Whether the port of an entry may be given to another flow.
#[inline(always)]
const fn is_reclaimable(reply: Connection, opens: bool, protocol: u8, now: u32) -> bool {
    let age = age(now, reply.seen);
    let rest = if is_closed(reply.state) {
        QUARANTINE
    } else if opens {
        if protocol == TCP { QUARANTINE } else { UNANSWERED }
    } else {
        return age > reply.idle_ticks;
    };
    age >= rest || age > reply.idle_ticks
}

/// Notes in the connection of a backend's packet that it was seen, and what of its end it said.
#[inline(always)]
pub(crate) fn note_reply<F: Family>(
    entry: &Entry<F::Reply>,
    reply: &F::Reply,
    nat_port: Be16,
    ends: u32,
    now: u32,
) {
    let connection = F::connection(reply);
    if connection.seen != now {
        F::set_seen(entry, now);
    }
    if ends & !connection.state == 0 {
        return;
    }
    F::add_state(entry, ends);
    let (client, port) = F::client(reply);
    let Some(entry) = F::flow(&F::flow_key(client, connection.service, port)) else { return };
    let flow = entry.get();
    if flow.nat_port == nat_port && flow.backend == connection.backend {
        entry.add_state(ends);
    }
}
