//! NAT ports: taken, kept, given back, run out.

use anyhow::Result;
use gateway_common::{Be16, Entry, Flow, FlowKey4, Outcome, Reply4, ReplyKey4, maps, tcp_state};
use gateway_tests::packet::{Frame, tcp_flags::*};
use gateway_tests::prog::{BACKENDS, CLIENTS, World, macs, tick};

use crate::row::*;

fn reset() -> Frame {
    Frame::tcp(V4.service, V4.client, RST | ACK).numbers(0, 0x0102_0305)
}

/// A SYN while the only port has this entry of another client.
fn taken_by(known: Known) -> Row {
    Row::new(V4.tcp(SYN)).given(move |world| {
        one_backend(world, TCP)?;
        known_reply(world, TCP, &known)
    })
}

fn replies(world: &mut World) -> Result<Vec<(ReplyKey4, Reply4)>> {
    Ok(world.entries::<ReplyKey4, Reply4>(maps::REPLIES4)?.iter().collect::<Result<_, _>>()?)
}

fn flows(world: &mut World) -> Result<Vec<(FlowKey4, Flow)>> {
    Ok(world.entries::<FlowKey4, Flow>(maps::FLOWS4)?.iter().collect::<Result<_, _>>()?)
}

/// State of the flow and of the reply entry.
fn states(world: &mut World) -> Result<(u32, u32)> {
    Ok((flows(world)?[0].1.state, replies(world)?[0].1.state))
}

fn ends(frame: Frame, expected: u32) -> Row {
    Row::new(frame)
        .given(|world| {
            one_backend(world, TCP)?;
            known_flow(world, |_| ())?;
            known_reply(world, TCP, &Known::default())
        })
        .forwards(V4)
        .then(move |world, _| {
            assert_eq!(states(world)?, (expected, expected));
            Ok(())
        })
}

rows! {
    exhausted: taken_by(Known { client_port: 1, ..Known::default() })
        .answers(Outcome::NatPortsExhausted, &reset());
    no_ports_at_all: Row::new(V4.tcp(SYN))
        .given(|world| {
            one_backend(world, TCP)?;
            world.config(40_000, 0)
        })
        .answers(Outcome::NatPortsExhausted, &reset());
    a_port_of_a_closed_connection_rests: taken_by(Known { client_port: 1, state: tcp_state::RESET, ..Known::default() })
        .answers(Outcome::NatPortsExhausted, &reset());
    a_port_of_an_unfinished_handshake_is_taken_after_a_rest:
        taken_by(Known { client_port: 1, age: 2, opens: true, ..Known::default() }).forwards(V4);
    a_port_of_a_new_handshake_is_not: taken_by(Known { client_port: 1, opens: true, ..Known::default() })
        .answers(Outcome::NatPortsExhausted, &reset());
    a_port_of_a_connection_is_not:
        taken_by(Known { client_port: 1, age: 2, ..Known::default() })
            .answers(Outcome::NatPortsExhausted, &reset());
    a_port_of_a_closed_connection_is_taken_after_a_rest:
        taken_by(Known { client_port: 1, state: tcp_state::RESET, age: 2, ..Known::default() }).forwards(V4);
    a_port_of_an_idle_connection_is_taken:
        taken_by(Known { client_port: 1, age: IDLE + 1, ..Known::default() }).forwards(V4);
    a_free_port_is_found_beside_others: Row::new(V4.tcp(SYN))
        .given(|world| {
            one_backend(world, TCP)?;
            world.config(39_970, 31)?;
            for nat_port in 39_970..40_000 {
                known_reply(world, TCP, &Known { client_port: 1, nat_port, ..Known::default() })?;
            }
            Ok(())
        })
        .forwards(V4);

    an_evicted_reply_entry_is_put_back: Row::new(V4.tcp(ACK | PSH))
        .given(|world| {
            one_backend(world, TCP)?;
            known_flow(world, |_| ())
        })
        .forwards(V4)
        .then(|world, _| {
            let [(key, reply)] = replies(world)?[..] else { panic!("one reply entry") };
            assert_eq!(key.nat_port, Be16::new(NAT_PORT));
            assert_eq!((reply.client_port, reply.port), (Be16::new(50_000), Be16::new(80)));
            assert_eq!((reply.service, reply.backend, reply.idle_ticks), (SERVICE + V4.id, V4.id, IDLE));
            Ok(())
        });
    a_lost_port_resets_tcp: Row::new(V4.tcp(ACK | PSH))
        .given(|world| {
            one_backend(world, TCP)?;
            known_flow(world, |_| ())?;
            known_reply(world, TCP, &Known { client_port: 1, ..Known::default() })
        })
        .answers(Outcome::NatPortLost, &Frame::tcp(V4.service, V4.client, RST).numbers(0xf0e0_d0c0, 0))
        .then(|world, _| {
            assert_eq!(flows(world)?.len(), 0);
            Ok(())
        });
    a_lost_port_gives_udp_another: Row::new(V4.udp())
        .given(|world| {
            one_backend(world, UDP)?;
            known_flow(world, |flow| flow.nat_port = Be16::new(39_999))?;
            known_reply(world, UDP, &Known { client_port: 1, nat_port: 39_999, ..Known::default() })
        })
        .forwards(V4)
        .then(|world, _| {
            let opening = world.entries::<FlowKey4, Flow>(maps::OPENING4)?;
            let opening: Vec<_> = opening.iter().collect::<Result<_, _>>()?;
            assert_eq!((opening.len(), opening[0].1.nat_port), (1, Be16::new(NAT_PORT)));
            assert_eq!(flows(world)?.len(), 0, "it begins anew");
            Ok(())
        });

    a_fin_of_the_client_is_noted: ends(V4.tcp(FIN | ACK), tcp_state::CLIENT_FIN);
    a_reset_of_the_client_is_noted: ends(V4.tcp(RST), tcp_state::RESET);
    a_fin_of_the_backend_is_noted: Row::new(
        Frame::tcp(V4.backend, V4.node, FIN | ACK).macs(macs::NODE_BACKENDS, macs::BACKEND)
    )
        .on(BACKENDS)
        .given(|world| {
            one_backend(world, TCP)?;
            known_flow(world, |_| ())?;
            known_reply(world, TCP, &Known::default())
        })
        .sends(
            Outcome::Replied,
            &Frame::tcp(V4.service, V4.client, FIN | ACK).hop_limit(63).macs(macs::NODE_BACKENDS, macs::BACKEND),
            macs::CLIENT,
            macs::NODE_CLIENTS
        )
        .then(|world, _| {
            assert_eq!(states(world)?, (tcp_state::BACKEND_FIN, tcp_state::BACKEND_FIN));
            Ok(())
        });
    a_reply_to_an_idle_connection_is_not_ours: Row::new(
        Frame::tcp(V4.backend, V4.node, ACK).macs(macs::NODE_BACKENDS, macs::BACKEND)
    )
        .on(BACKENDS)
        .given(|world| {
            one_backend(world, TCP)?;
            known_reply(world, TCP, &Known { age: IDLE + 1, ..Known::default() })
        })
        .passes();
}

/// One backend serves two addresses, and one client port two services: each packet finds its own way back.
#[test]
fn flows_of_two_services_to_one_backend_are_kept_apart() {
    let mut world = World::create().unwrap();
    one_backend(&mut world, TCP).unwrap();
    world.config(40_000, 2).unwrap();
    world.service("198.18.9.2:80", TCP, 50, IDLE).unwrap();
    world.table(50, &[V4.id]).unwrap();
    let mut ports = Vec::new();
    for service in [V4.service, "198.18.9.2:80"] {
        let syn = V4.tcp(SYN).to(service);
        let ran = world.run(Entry::Xdp, CLIENTS, &syn.bytes(), 0).unwrap();
        assert_eq!(ran.code, XDP_REDIRECT);
        let port = u16::from_be_bytes([ran.packet[34], ran.packet[35]]);
        let answer = Frame::tcp(V4.backend, &format!("198.18.1.1:{port}"), SYN | ACK)
            .macs(macs::NODE_BACKENDS, macs::BACKEND);
        let ran = world.run(Entry::Xdp, BACKENDS, &answer.bytes(), 0).unwrap();
        let expected =
            answer.from(service).to(V4.client).hop_limit(63).macs(macs::CLIENT, macs::NODE_CLIENTS).bytes();
        assert!(ran.packet == expected, "{}", gateway_tests::packet::diff(&expected, &ran.packet));
        ports.push(port);
    }
    assert_ne!(ports[0], ports[1]);
    let claims = world.entries::<ReplyKey4, Reply4>(maps::CLAIMS4).unwrap();
    assert!(claims.iter().all(|entry| tick() - entry.unwrap().1.seen <= 1));
}

/// What XDP leaves, TC finishes as if it had been first: one flow, counted once.
#[test]
fn what_xdp_leaves_tc_begins() {
    let mut world = World::create().unwrap();
    one_backend(&mut world, TCP).unwrap();
    world.device_can(BACKENDS, 0).unwrap();
    let syn = V4.tcp(SYN).bytes();
    let left = world.run(Entry::Xdp, CLIENTS, &syn, 0).unwrap();
    assert!(left.packet == syn);
    assert_eq!(entries4(&mut world).unwrap(), [0; 4]);
    world.run(Entry::Tc, CLIENTS, &left.packet, 0).unwrap();
    assert_eq!(entries4(&mut world).unwrap(), [1, 1, 0, 0]);
    assert_eq!(world.service_count(maps::SERVICE_STATS, SERVICE + V4.id).unwrap().flows, 1);
}
