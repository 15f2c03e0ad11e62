//! The data path: from a packet to how it leaves.
//!
//! Whether and how a packet can be sent is decided before a map or the packet is written, so that what XDP leaves to
//! TC has left no trace.

use gateway_common::{Outcome, Service, UDP, tcp_state};

use crate::{
    answer,
    family::{Connection, Family},
    flow,
    kernel::{age, tick},
    nat, opening,
    packet::Packet,
    parse::{self, Link, Transport, tcp_flags},
    rewrite, route, service, table,
    verdict::{Sent, Verdict, Work},
};

/// Carries a packet through the data path: to a service, from a backend, or not ours.
#[inline(always)]
pub(crate) fn steer<P: Packet, F: Family>(packet: P, link: &Link, work: &mut Work<F>) -> Verdict {
    if !F::parse(packet, link, &mut work.headers) {
        return Err(Outcome::Foreign);
    }
    let Some(service) = service::find(&work.headers) else {
        return from_backend(packet, work);
    };
    if !packet.is_for_this_host() {
        return Err(Outcome::Foreign);
    }
    match from_client(packet, work, service) {
        Err(outcome) if answer::is_told(outcome) => answer::answer(packet, work, outcome),
        verdict => verdict,
    }
}

/// Sends a client's packet to the backend of its flow, which may begin here.
#[inline(never)]
fn from_client<P: Packet, F: Family>(packet: P, work: &mut Work<F>, service: Service) -> Verdict {
    let Work { headers, to, flow_key, reply_key, connection, .. } = work;
    let transport = parse::transport(packet, headers)?;
    let now = tick();
    *flow_key = F::flow_key(headers.source, service.id, headers.source_port);
    let found = match flow::find(headers, flow_key, service, transport, now) {
        Err(outcome) => return forget::<P, F>(packet, flow_key, outcome),
        Ok(found) => found,
    };
    let id = if found.entry.is_some() { found.flow.backend } else { table::choose(headers, service.id) };
    // The entry of REFUSE is empty, like those of backends that are gone.
    let backend = flow::backend(id).ok_or(Outcome::Refused)?;
    let address = F::from_addr(&backend.address).ok_or(Outcome::Refused)?;
    let node = F::from_addr(&backend.source).ok_or(Outcome::Refused)?;
    to.addresses = [*node, *address];
    to.ports = [found.flow.nat_port, backend.port];
    let mut way = P::Way::default();
    route::find(packet, headers, transport.length, &to.addresses, &mut way)?;

    *reply_key = F::reply_key(to.addresses[1], to.addresses[0], to.ports[1], headers.protocol);
    *connection = Connection {
        service: service.id,
        backend: id,
        seen: now,
        idle_ticks: service.idle_ticks,
        state: ends(transport, tcp_state::CLIENT_FIN),
    };
    let mut began = true;
    if let Some(entry) = &found.entry {
        F::set_nat_port(reply_key, found.flow.nat_port);
        let kept = if found.opens {
            opening::keep(packet, work, entry, transport.flags)
        } else {
            let Work { headers, reply_key, connection, .. } = work;
            nat::keep(entry, &found.flow, reply_key, headers, connection)
        };
        match kept {
            Ok(()) => began = false,
            // Without a connection to break, the same backend by another port will do.
            Err(Outcome::NatPortLost) if work.headers.protocol == UDP || transport.opens() => {}
            Err(outcome) => return forget::<P, F>(packet, &work.flow_key, outcome),
        }
    }
    if began {
        F::allocate(work)?;
        let Work { to, flow_key, reply_key, connection, .. } = work;
        to.ports[0] = F::nat_port(reply_key);
        flow::begin::<F>(flow_key, connection, backend.incarnation, to.ports[0], found.replaces)?;
    }
    let Work { headers, to, sent, .. } = work;
    rewrite::translate(packet, headers, to)?;
    let code = packet.send(headers.tags, &way)?;
    *sent =
        Sent { code, outcome: Outcome::Forwarded, service: service.id, backend: id, flows: u32::from(began) };
    Ok(())
}

/// Removes a flow that has come to its end, when this program can say so to the client.
#[inline(always)]
fn forget<P: Packet, F: Family>(packet: P, key: &F::FlowKey, outcome: Outcome) -> Verdict {
    if matches!(outcome, Outcome::BackendGone | Outcome::NatPortLost) {
        packet.can_answer()?;
        F::remove_flow(key);
        F::remove_opening(key);
    }
    Err(outcome)
}

/// A backend's packet: to the client whose connection it belongs to.
#[inline(never)]
fn from_backend<P: Packet, F: Family>(packet: P, work: &mut Work<F>) -> Verdict {
    let Work { headers, to, reply_key, .. } = work;
    let now = tick();
    let (entry, opens) = nat::find(headers, reply_key).ok_or(Outcome::Foreign)?;
    if !packet.is_for_this_host() {
        return Err(Outcome::Foreign);
    }
    let reply = entry.get();
    let connection = F::connection(&reply);
    if age(now, connection.seen) > connection.idle_ticks {
        return Err(Outcome::Foreign);
    }
    let transport = parse::transport(packet, headers)?;
    let ((client, client_port), (address, port)) = (F::client(&reply), F::service(&reply));
    to.addresses = [address, client];
    to.ports = [port, client_port];
    let mut way = P::Way::default();
    route::find(packet, headers, transport.length, &to.addresses, &mut way)?;
    if opens {
        opening::note_reply(packet, work, &entry, transport.flags)?;
    }
    let Work { headers, to, sent, .. } = work;
    let ends = ends(transport, tcp_state::BACKEND_FIN);
    nat::note_reply::<F>(&entry, &reply, headers.destination_port, ends, now);
    rewrite::translate(packet, headers, to)?;
    let code = packet.send(headers.tags, &way)?;
    let Connection { service, backend, .. } = connection;
    *sent = Sent { code, outcome: Outcome::Replied, service, backend, flows: 0 };
    Ok(())
}

/// What a packet adds to the state of its connection; `fin` is the sender's bit.
#[inline(always)]
const fn ends(transport: Transport, fin: u32) -> u32 {
    if transport.flags & tcp_flags::RST != 0 {
        tcp_state::RESET
    } else if transport.flags & tcp_flags::FIN != 0 {
        fin
    } else {
        0
    }
}
