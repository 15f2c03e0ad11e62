//! What is not ours passes untouched; what is ours and broken is dropped.

use gateway_common::Outcome;
use gateway_tests::packet::{Frame, tcp_flags::*};
use gateway_tests::prog::{BACKENDS, CLIENTS, World, macs};

use crate::row::*;

/// In a world with one TCP service and a flow.
fn foreign(frame: Frame) -> Row {
    ours(frame).passes()
}

fn ours(frame: Frame) -> Row {
    Row::new(frame).given(|world| {
        one_backend(world, TCP)?;
        known_flow(world, |_| ())?;
        known_reply(world, TCP, &Known::default())
    })
}

rows! {
    another_port: foreign(V4.tcp(SYN).to("198.18.9.1:81"));
    another_address: foreign(V4.tcp(SYN).to("198.18.9.2:80"));
    another_protocol: foreign(V4.udp());
    another_port_over_ipv6: foreign(V6.tcp(SYN).to("[2001:db8:9::1]:81"));
    a_ping: foreign(Frame::icmp(V4.client, V4.service, 8, 0, b"ping").macs(macs::NODE_CLIENTS, macs::CLIENT));
    a_ping_over_ipv6: foreign(Frame::icmp(V6.client, V6.service, 128, 0, b"ping").macs(macs::NODE_CLIENTS, macs::CLIENT));
    a_link_layer_broadcast: foreign(V4.tcp(SYN).macs([0xff; 6], macs::CLIENT));
    a_link_layer_multicast: foreign(V4.tcp(SYN).macs([1, 0, 0x5e, 0, 0, 1], macs::CLIENT));
    another_hosts_link_layer_address: foreign(V4.tcp(SYN).macs(macs::CLIENT, macs::BACKEND));
    another_hosts_link_layer_address_over_ipv6: foreign(V6.tcp(SYN).macs(macs::CLIENT, macs::BACKEND));
    a_reply_to_another_hosts_link_layer_address: foreign(
        Frame::tcp(V4.backend, V4.node, ACK).macs(macs::CLIENT, macs::BACKEND)
    ).on(BACKENDS);
    a_nat_port_from_another_backend: foreign(
        Frame::tcp("198.18.1.2:8081", V4.node, ACK).macs(macs::NODE_CLIENTS, macs::CLIENT)
    );
    a_port_of_the_node: foreign(Frame::tcp(V4.backend, "198.18.1.1:22", SYN).macs(macs::NODE_CLIENTS, macs::CLIENT));
    a_later_fragment: foreign(V4.tcp(ACK).fragment(0x2001));
    a_later_fragment_over_ipv6: foreign(V6.udp().extension(44, &[0, 0, 0x08, 0, 0, 0, 1]));
    a_route_that_is_not_done: foreign(V6.tcp(SYN).extension(43, &[0, 0, 1, 0, 0, 0, 0]));
    an_unknown_extension: foreign(V6.tcp(SYN).extension(135, &[0, 0, 0, 0, 0, 0, 0]));
    too_many_extensions: foreign((0..7).fold(V6.tcp(SYN), |frame, _| frame.extension(60, &[0, 1, 4, 0, 0, 0, 0])));
    too_many_tags: foreign(V4.tcp(SYN).tag(0x88a8, 1).tag(0x88a8, 2).tag(0x8100, 3));
    cut_before_the_ports: foreign_cut(36);
    cut_in_the_ports: foreign_cut(37);
    a_first_fragment: ours(V4.tcp(ACK).fragment(0x2000)).drops(Outcome::Fragment);
    a_first_fragment_over_ipv6: ours(V6.tcp(ACK).extension(44, &[0, 0, 1, 0, 0, 0, 1])).drops(Outcome::Fragment);
    a_first_fragment_of_a_reply: ours(
        Frame::tcp(V4.backend, V4.node, ACK).fragment(0x2000).macs(macs::NODE_BACKENDS, macs::BACKEND)
    ).on(BACKENDS).drops(Outcome::Fragment);
    cut_behind_the_ports: ours(V4.tcp(ACK)).cut(40).drops(Outcome::Malformed);
    cut_in_the_payload: ours(V4.tcp(ACK)).cut(60).drops(Outcome::Malformed);
    cut_in_the_payload_over_ipv6: ours(V6.tcp(ACK)).cut(80).drops(Outcome::Malformed);
    a_udp_length_below_the_header: Row::new(V4.udp().udp_length(7)).given(|world| one_backend(world, UDP))
        .drops(Outcome::Malformed);
    a_udp_length_beyond_the_packet: Row::new(V4.udp().udp_length(18)).given(|world| one_backend(world, UDP))
        .drops(Outcome::Malformed);
}

fn foreign_cut(length: usize) -> Row {
    ours(V4.tcp(ACK)).cut(length).passes()
}

/// Frames that are not IP at all, or hardly.
#[test]
fn frames_of_other_kinds() {
    let addresses = [macs::NODE_CLIENTS, macs::CLIENT].concat();
    let frame = |ethertype: u16, rest: &[u8]| [&addresses[..], &ethertype.to_be_bytes(), rest].concat();
    let mut version = V4.tcp(SYN).bytes();
    version[14] = 0x65;
    let mut words = V4.tcp(SYN).bytes();
    words[14] = 0x44;
    let mut version6 = V6.tcp(SYN).bytes();
    version6[14] = 0x40;
    let mut short = V4.tcp(SYN).bytes();
    short[16..18].copy_from_slice(&[0, 23]);
    let frames = [
        frame(0x0806, &[0, 1, 8, 0, 6, 4, 0, 1, 0, 0, 0, 0]),
        frame(0x88cc, &[2, 7, 4, 0, 0, 0, 0, 0]),
        frame(0x8100, &[0, 1]),
        frame(0x0042, &[0; 46]),
        version,
        words,
        version6,
        short,
    ];
    // The kernel itself (Linux 6.18) takes no test run of TC that ends in the network header.
    let cut = [frame(0x0800, &[0x45]), frame(0x0800, &[0x45; 10]), frame(0x86dd, &[0x60; 39])];
    for entry in gateway_common::Entry::ALL {
        let mut world = World::create().unwrap();
        one_backend(&mut world, TCP).unwrap();
        let cut = if entry == gateway_common::Entry::Xdp { &cut[..] } else { &[] };
        let frames: Vec<_> = frames.iter().chain(cut).collect();
        for frame in &frames {
            let ran = world
                .run(entry, CLIENTS, frame, 0)
                .unwrap_or_else(|error| panic!("{entry:?} {frame:02x?}: {error:#}"));
            assert!(ran.packet == **frame, "{}", gateway_tests::packet::diff(frame, &ran.packet));
        }
        let outcomes = world.outcomes(entry).unwrap();
        assert!(
            matches!(outcomes[..], [(Outcome::Foreign, count)] if count.packets == frames.len() as u64),
            "{outcomes:?}"
        );
    }
}

/// What a device pads a short packet with stays behind, and is no part of it.
#[test]
fn padding_is_not_the_packets() {
    let padding = [0xee; 20];
    for entry in gateway_common::Entry::ALL {
        let mut world = World::create().unwrap();
        one_backend(&mut world, TCP).unwrap();
        let input = [V4.tcp(SYN).bytes(), padding.to_vec()].concat();
        let ran = world.run(entry, CLIENTS, &input, 0).unwrap();
        let frame = V4.forwarded(V4.tcp(SYN));
        let frame = if entry == gateway_common::Entry::Xdp {
            frame.macs(macs::BACKEND, macs::NODE_BACKENDS)
        } else {
            frame
        };
        let expected = [frame.bytes(), padding.to_vec()].concat();
        assert!(ran.packet == expected, "{}", gateway_tests::packet::diff(&expected, &ran.packet));
        // The payload that a reset acknowledges is what the packet says it has.
        world.table(SERVICE + V4.id, &[gateway_common::REFUSE]).unwrap();
        let input = [V4.tcp(SYN).from("198.18.0.2:1").bytes(), padding.to_vec()].concat();
        let ran = world.run(entry, CLIENTS, &input, 0).unwrap();
        let expected = Frame::tcp(V4.service, "198.18.0.2:1", RST | ACK)
            .numbers(0, 0x0102_0305)
            .macs(macs::CLIENT, macs::NODE_CLIENTS)
            .bytes();
        assert!(ran.packet == expected, "{}", gateway_tests::packet::diff(&expected, &ran.packet));
    }
}
