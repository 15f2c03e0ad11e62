//! Flows that open, and when they are established.

use anyhow::Result;
use gateway_common::{Entry, Flow, FlowKey4, FlowKey6, Outcome, maps};
use gateway_tests::packet::{Frame, tcp_flags::*};
use gateway_tests::prog::{BACKENDS, CLIENTS, World, macs};

use crate::row::*;

/// What the client acknowledges.
const ACKNOWLEDGED: u32 = 0xf0e0_d0c0;
const OPEN: [usize; 4] = [1, 1, 0, 0];
const ESTABLISHED: [usize; 4] = [0, 0, 1, 1];

/// Entries of a family: of flows that open and their claims, of established ones and their replies.
fn entries(side: Side) -> impl Fn(&mut World) -> Result<[usize; 4]> {
    move |world| if side.id == V4.id { entries4(world) } else { entries6(world) }
}

/// A packet of a client whose flow opens, and the entries it leaves.
fn opens(side: Side, frame: Frame, expected: u32, left: [usize; 4]) -> Row {
    Row::new(frame)
        .given(move |world| {
            one_backend(world, TCP)?;
            known_opening(world, |flow| flow.expected = expected)?;
            known_reply(world, TCP, &Known { opens: true, ..Known::default() })
        })
        .forwards(side)
        .then(move |world, _| {
            assert_eq!(entries(side)(world)?, left);
            Ok(())
        })
}

fn begins(side: Side, frame: Frame, protocol: u8) -> Row {
    Row::new(frame).given(move |world| one_backend(world, protocol)).forwards(side).then(move |world, _| {
        assert_eq!(entries(side)(world)?, OPEN);
        Ok(())
    })
}

/// A backend's answer to a flow that opens.
fn answered(side: Side, protocol: u8, frame: fn(&str, &str) -> Frame) -> Row {
    let incoming = frame(side.backend, side.node).macs(macs::NODE_BACKENDS, macs::BACKEND);
    let outgoing = incoming.clone().from(side.service).to(side.client).hop_limit(63);
    Row::new(incoming)
        .on(BACKENDS)
        .given(move |world| {
            one_backend(world, protocol)?;
            known_opening(world, |_| ())?;
            known_reply(world, protocol, &Known { opens: true, ..Known::default() })
        })
        .sends(Outcome::Replied, &outgoing, macs::CLIENT, macs::NODE_CLIENTS)
}

fn syn_ack(source: &str, destination: &str) -> Frame {
    Frame::tcp(source, destination, SYN | ACK).numbers(77, 78)
}

fn datagram(source: &str, destination: &str) -> Frame {
    Frame::udp(source, destination, b"an answer")
}

rows! {
    a_syn_opens: begins(V4, V4.tcp(SYN), TCP);
    a_syn_opens_over_ipv6: begins(V6, V6.tcp(SYN), TCP);
    a_datagram_opens: begins(V4, V4.udp(), UDP);
    a_datagram_opens_over_ipv6: begins(V6, V6.udp(), UDP);
    a_syn_sent_again: opens(V4, V4.tcp(SYN), ACKNOWLEDGED, OPEN);
    the_end_of_the_handshake_establishes: opens(V4, V4.tcp(ACK), ACKNOWLEDGED, ESTABLISHED);
    the_end_of_the_handshake_establishes_over_ipv6: opens(V6, V6.tcp(ACK), ACKNOWLEDGED, ESTABLISHED);
    data_with_the_end_of_the_handshake: opens(V4, V4.tcp(ACK | PSH), ACKNOWLEDGED - 1_000, ESTABLISHED);
    an_acknowledgement_of_something_else: opens(V4, V4.tcp(ACK), ACKNOWLEDGED + 1, OPEN);
    an_acknowledgement_far_ahead: opens(V4, V4.tcp(ACK), ACKNOWLEDGED - 65_536, OPEN);
    an_acknowledgement_before_the_backend_spoke: opens(V4, V4.tcp(ACK), 0, OPEN);
    a_reset_while_it_opens: opens(V4, V4.tcp(RST | ACK), ACKNOWLEDGED, OPEN).then(|world, _| {
        let opening = world.entries::<FlowKey4, Flow>(maps::OPENING4)?;
        assert!(opening.iter().all(|entry| entry.is_ok_and(|(_, flow)| flow.state != 0)));
        Ok(())
    });
    a_lost_claim_is_put_back: Row::new(V4.tcp(SYN))
        .given(|world| {
            one_backend(world, TCP)?;
            known_opening(world, |_| ())
        })
        .forwards(V4)
        .then(|world, _| {
            assert_eq!(entries4(world)?, OPEN);
            Ok(())
        });
    a_claim_that_an_established_flow_has: Row::new(V4.tcp(ACK))
        .given(|world| {
            one_backend(world, TCP)?;
            known_opening(world, |flow| flow.expected = ACKNOWLEDGED)?;
            known_reply(world, TCP, &Known { client_port: 1, ..Known::default() })
        })
        .answers(Outcome::NatPortLost, &Frame::tcp(V4.service, V4.client, RST).numbers(ACKNOWLEDGED, 0));

    the_backends_syn_is_noted: answered(V4, TCP, syn_ack).then(|world, _| {
        let opening = world.entries::<FlowKey4, Flow>(maps::OPENING4)?;
        assert!(opening.iter().all(|entry| entry.is_ok_and(|(_, flow)| flow.expected == 78)));
        assert_eq!(entries4(world)?, OPEN);
        Ok(())
    });
    the_backends_syn_is_noted_over_ipv6: answered(V6, TCP, syn_ack).then(|world, _| {
        let opening = world.entries::<FlowKey6, Flow>(maps::OPENING6)?;
        assert!(opening.iter().all(|entry| entry.is_ok_and(|(_, flow)| flow.expected == 78)));
        Ok(())
    });
    an_answer_establishes_udp: answered(V4, UDP, datagram).then(|world, _| {
        assert_eq!(entries4(world)?, ESTABLISHED);
        Ok(())
    });
    an_answer_establishes_udp_over_ipv6: answered(V6, UDP, datagram).then(|world, _| {
        assert_eq!(entries6(world)?, ESTABLISHED);
        Ok(())
    });
}

/// Twenty times as many first packets as there is room for flows, and one of them is established: it stays, and an
/// honest client comes in.
#[test]
fn a_flood_pushes_nothing_out() {
    const FLOOD: u32 = 20_000;
    let mut world = World::create().unwrap();
    one_backend(&mut world, TCP).unwrap();
    world.config(10_000, 30_000).unwrap();
    known_flow(&mut world, |flow| flow.nat_port = gateway_common::Be16::new(9_999)).unwrap();
    known_reply(&mut world, TCP, &Known { nat_port: 9_999, ..Known::default() }).unwrap();
    for n in 0..FLOOD {
        let syn = V4.tcp(SYN).from(&format!("198.19.{}.{}:1000", n / 200, n % 200 + 1));
        world.run(Entry::Xdp, CLIENTS, &syn.bytes(), 0).unwrap();
    }
    assert_eq!(entries4(&mut world).unwrap()[2..], [1, 1]);
    let ran = world.run(Entry::Xdp, CLIENTS, &V4.tcp(ACK | PSH).bytes(), 0).unwrap();
    assert_eq!(ran.code, XDP_REDIRECT);
    let syn = V4.tcp(SYN).from("198.18.0.2:7");
    let ran = world.run(Entry::Xdp, CLIENTS, &syn.bytes(), 0).unwrap();
    assert_eq!(ran.code, XDP_REDIRECT);
}
