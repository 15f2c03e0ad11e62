//! From clients to backends and back.

use gateway_common::{Outcome, ServiceCount, maps};
use gateway_tests::packet::{Frame, tcp_flags::*};
use gateway_tests::prog::{BACKENDS, World, macs};

use crate::row::*;

/// A backend's answer as it comes in, and as the client gets it.
fn answer(side: Side, frame: fn(&str, &str) -> Frame) -> (Frame, Frame) {
    let incoming = frame(side.backend, side.node).macs(macs::NODE_BACKENDS, macs::BACKEND);
    let outgoing = incoming.clone().from(side.service).to(side.client).hop_limit(63);
    (incoming, outgoing)
}

fn reply(side: Side, protocol: u8, frame: fn(&str, &str) -> Frame) -> Row {
    let (incoming, outgoing) = answer(side, frame);
    Row::new(incoming)
        .given(move |world| {
            one_backend(world, protocol)?;
            known_reply(world, protocol, &Known::default())
        })
        .on(BACKENDS)
        .sends(Outcome::Replied, &outgoing, macs::CLIENT, macs::NODE_CLIENTS)
}

fn tcp_answer(source: &str, destination: &str) -> Frame {
    Frame::tcp(source, destination, SYN | ACK).numbers(77, 78).window(999, &[2, 4, 5, 0xb4])
}

fn udp_answer(source: &str, destination: &str) -> Frame {
    Frame::udp(source, destination, b"an answer")
}

fn counts_one_flow(
    side: Side,
    bytes: u64,
) -> impl Fn(&mut World, gateway_common::Entry) -> anyhow::Result<()> {
    move |world, _| {
        let expected =
            ServiceCount { flows: 1, packets_in: 1, bytes_in: bytes, packets_out: 0, bytes_out: 0 };
        assert_eq!(world.service_count(maps::SERVICE_STATS, SERVICE + side.id)?, expected);
        assert_eq!(world.service_count(maps::BACKEND_STATS, side.id)?, expected);
        Ok(())
    }
}

fn new(frame: Frame, side: Side, protocol: u8) -> Row {
    let bytes = frame.bytes().len() as u64;
    Row::new(frame)
        .given(move |world| one_backend(world, protocol))
        .forwards(side)
        .then(counts_one_flow(side, bytes))
}

/// A segment of a flow that is known.
fn known(frame: Frame, side: Side, protocol: u8) -> Row {
    Row::new(frame)
        .given(move |world| {
            one_backend(world, protocol)?;
            known_flow(world, |_| ())?;
            known_reply(world, protocol, &Known::default())
        })
        .forwards(side)
        .then(move |world, _| {
            assert_eq!(world.service_count(maps::BACKEND_STATS, side.id)?.flows, 0);
            Ok(())
        })
}

const OPTIONS: [u8; 8] = [0x44, 8, 5, 0, 0, 0, 0, 0];
const HOP_BY_HOP: [u8; 7] = [0, 5, 2, 0, 0, 1, 0];
const DESTINATION: [u8; 15] = [1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const ROUTED: [u8; 7] = [0, 0, 0, 0, 0, 0, 0];
const ATOMIC: [u8; 7] = [0, 0, 0, 1, 2, 3, 4];

rows! {
    tcp_syn_over_ipv4: new(V4.tcp(SYN), V4, TCP);
    tcp_syn_over_ipv6: new(V6.tcp(SYN), V6, TCP);
    udp_over_ipv4: new(V4.udp(), V4, UDP);
    udp_over_ipv6: new(V6.udp(), V6, UDP);
    udp_over_ipv4_without_a_checksum_keeps_none: new(V4.udp().without_checksum(), V4, UDP);
    tcp_data_of_a_known_flow_over_ipv4: known(V4.tcp(ACK | PSH), V4, TCP);
    tcp_data_of_a_known_flow_over_ipv6: known(V6.tcp(ACK | PSH), V6, TCP);
    udp_of_a_known_flow_over_ipv4: known(V4.udp(), V4, UDP);
    udp_of_a_known_flow_over_ipv6: known(V6.udp(), V6, UDP);
    tcp_reply_over_ipv4: reply(V4, TCP, tcp_answer);
    /// The port is of an earlier configuration, from which the connection was adopted.
    tcp_reply_to_a_port_that_is_not_taken_any_more: reply(V4, TCP, tcp_answer)
        .given(|world| {
            known_reply(world, TCP, &Known::default())?;
            world.config_with_replies(50_000, 100, 40_000, 10_100)
        });
    tcp_reply_over_ipv6: reply(V6, TCP, tcp_answer);
    udp_reply_over_ipv4: reply(V4, UDP, udp_answer);
    udp_reply_over_ipv6: reply(V6, UDP, udp_answer);
    ipv4_options: new(V4.tcp(SYN).ip_options(&OPTIONS), V4, TCP);
    udp_behind_ipv4_options: new(V4.udp().ip_options(&OPTIONS), V4, UDP);
    ipv6_hop_by_hop: new(V6.tcp(SYN).extension(0, &HOP_BY_HOP), V6, TCP);
    ipv6_routing_that_is_done: new(V6.udp().extension(43, &ROUTED), V6, UDP);
    ipv6_atomic_fragment: new(V6.udp().extension(44, &ATOMIC), V6, UDP);
    ipv6_many_extensions: new(
        V6.udp().extension(0, &HOP_BY_HOP).extension(60, &DESTINATION).extension(43, &ROUTED).extension(60, &DESTINATION),
        V6,
        UDP
    );
}

/// A datagram whose new checksum comes out as zero must carry all ones: zero would say "no checksum".
#[test]
fn a_udp_checksum_of_zero_is_written_as_ones() {
    let zero = |payload: [u8; 2]| V4.forwarded(V4.udp().payload(&payload)).bytes()[40..42] == [0xff, 0xff];
    let payload =
        (0..=u16::MAX).map(u16::to_be_bytes).find(|payload| zero(*payload)).expect("one sums to zero");
    new(V4.udp().payload(&payload), V4, UDP).check();
}

/// XDP sees tags within the bytes; in TC the kernel has taken the first one out. A way out that has no tag of its own,
/// even by the device that the packet came in by, is without.
#[test]
fn tags_end_where_a_packet_is_forwarded() {
    for tags in [&[(0x8100, 100)][..], &[(0x88a8, 7), (0x8100, 100)]] {
        let frame = tags.iter().fold(V4.tcp(SYN), |frame, (protocol, vlan)| frame.tag(*protocol, *vlan));
        let mut world = World::create().unwrap();
        one_backend(&mut world, TCP).unwrap();
        world.backend(V4.id, Some("198.18.0.9:8080"), 1).unwrap();
        let clients = gateway_tests::prog::CLIENTS;
        let left = world.run(gateway_common::Entry::Xdp, clients, &frame.bytes(), 0).unwrap();
        assert_eq!(left.code, XDP_PASS);
        assert!(
            left.packet == frame.bytes(),
            "{}",
            gateway_tests::packet::diff(&frame.bytes(), &left.packet)
        );
        let ran = world.run(gateway_common::Entry::Tc, clients, &frame.bytes(), 0).unwrap();
        assert_eq!(ran.code, TC_REDIRECT);
        // The kernel writes the link addresses when it sends the packet.
        let expected = V4.forwarded(V4.tcp(SYN)).to("198.18.0.9:8080").bytes();
        assert!(
            ran.packet[12..] == expected[12..],
            "{}",
            gateway_tests::packet::diff(&expected, &ran.packet)
        );
    }
}

/// 20,000 clients land by weight: each share within 4.5 standard deviations of a binomial one.
#[test]
fn shares_follow_the_weights() {
    use gateway_common::table::{TableEntry, build};
    const CLIENTS_SEEN: u32 = 20_000;
    let weights = [80_u32, 15, 5, 0];
    let mut world = World::create().unwrap();
    world.service(V4.service, TCP, SERVICE, IDLE).unwrap();
    world.config(20_000, 40_000).unwrap();
    let mut entries = Vec::new();
    for (id, weight) in (1..).zip(weights) {
        world.backend(id, Some(&format!("198.18.1.2:{}", 8_000 + id)), 1).unwrap();
        entries.push(TableEntry { backend: id, weight: weight.into(), identity: [u64::from(id), 0] });
    }
    world.whole_table(SERVICE, &build(&entries)).unwrap();
    for client in 0..CLIENTS_SEEN {
        let frame = V4.tcp(SYN).from(&format!("198.18.0.2:{}", 10_000 + client));
        world.run(gateway_common::Entry::Xdp, gateway_tests::prog::CLIENTS, &frame.bytes(), 0).unwrap();
    }
    for (id, weight) in (1..).zip(weights) {
        let seen = world.service_count(maps::BACKEND_STATS, id).unwrap().flows;
        let seen = f64::from(u32::try_from(seen).unwrap());
        let share = f64::from(weight) / 100.0;
        let expected = f64::from(CLIENTS_SEEN) * share;
        let bound = 4.5 * (expected * (1.0 - share)).sqrt();
        assert!((seen - expected).abs() <= bound, "backend {id} has {seen}, not {expected} +- {bound}");
    }
}
