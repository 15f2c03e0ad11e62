//! What clients are told when they cannot be served.

use gateway_common::{Flow, FlowKey4, Outcome, maps, tcp_state};
use gateway_tests::packet::{Frame, tcp_flags::*};

use crate::row::*;

/// The reset for a segment of the client: with an ACK it takes its number, without one it acknowledges `segment`.
fn reset(side: Side, flags: u8, segment: u32) -> Frame {
    let reset = |flags| Frame::tcp(side.service, side.client, flags);
    if flags & ACK != 0 {
        reset(RST).numbers(0xf0e0_d0c0, 0)
    } else {
        reset(RST | ACK).numbers(0, 0x0102_0304 + segment)
    }
}

/// Port unreachable for a datagram: the quote is its network header and eight bytes.
fn unreachable(side: Side, datagram: &Frame) -> Frame {
    let network = datagram.network();
    let payload = b"datagram!".len();
    let (kind, code) = if side.client.starts_with('[') { (1, 4) } else { (3, 3) };
    Frame::icmp(side.service, side.client, kind, code, &network[..network.len() - payload])
}

fn refused_tcp(side: Side, frame: Frame) -> Row {
    Row::new(frame)
        .given(move |world| {
            one_backend(world, TCP)?;
            world.table(SERVICE + side.id, &[gateway_common::REFUSE])
        })
        .answers(Outcome::Refused, &reset(side, SYN, 1))
}

fn refused_udp(side: Side, frame: Frame) -> Row {
    let answer = unreachable(side, &frame);
    Row::new(frame)
        .given(move |world| {
            one_backend(world, UDP)?;
            world.table(SERVICE + side.id, &[gateway_common::REFUSE])
        })
        .answers(Outcome::Refused, &answer)
}

fn no_flow(side: Side, flags: u8, segment: u32) -> Row {
    Row::new(side.tcp(flags))
        .given(|world| one_backend(world, TCP))
        .answers(Outcome::NoFlow, &reset(side, flags, segment))
}

/// A flow whose backend id is another backend's by now.
fn gone(side: Side, flags: u8) -> Row {
    Row::new(side.tcp(flags))
        .given(|world| {
            one_backend(world, TCP)?;
            known_flow(world, |_| ())?;
            known_reply(world, TCP, &Known::default())?;
            for side in [V4, V6] {
                world.backend(side.id, Some(side.backend), 2)?;
            }
            Ok(())
        })
        .answers(Outcome::BackendGone, &reset(side, flags, 5))
}

const OPTIONS: [u8; 8] = [0x44, 8, 5, 0, 0, 0, 0, 0];
const HOP_BY_HOP: [u8; 7] = [0, 5, 2, 0, 0, 1, 0];

rows! {
    tcp_refused_over_ipv4: refused_tcp(V4, V4.tcp(SYN));
    tcp_refused_over_ipv6: refused_tcp(V6, V6.tcp(SYN));
    tcp_refused_behind_ipv4_options: refused_tcp(V4, V4.tcp(SYN).ip_options(&OPTIONS));
    tcp_refused_behind_ipv6_extensions: refused_tcp(V6, V6.tcp(SYN).extension(0, &HOP_BY_HOP));
    udp_refused_over_ipv4: refused_udp(V4, V4.udp());
    udp_refused_over_ipv6: refused_udp(V6, V6.udp());
    udp_refused_behind_ipv4_options: refused_udp(V4, V4.udp().ip_options(&OPTIONS));
    udp_refused_behind_ipv6_extensions: refused_udp(V6, V6.udp().extension(0, &HOP_BY_HOP));
    udp_without_a_checksum_refused: refused_udp(V4, V4.udp().without_checksum());

    a_service_without_a_table_refuses: Row::new(V4.tcp(SYN))
        .given(|world| world.service(V4.service, TCP, SERVICE, IDLE))
        .answers(Outcome::Refused, &reset(V4, SYN, 1));
    a_slot_of_a_backend_that_is_not_there_refuses: Row::new(V4.tcp(SYN))
        .given(|world| {
            one_backend(world, TCP)?;
            world.backend(V4.id, None, 0)
        })
        .answers(Outcome::Refused, &reset(V4, SYN, 1));

    no_flow_for_data: no_flow(V4, ACK | PSH, 5);
    no_flow_for_data_over_ipv6: no_flow(V6, ACK | PSH, 5);
    no_flow_for_a_fin_without_ack: no_flow(V4, FIN, 1);
    no_flow_for_data_without_ack: no_flow(V4, PSH, 5);
    no_flow_for_a_syn_with_ack: no_flow(V4, SYN | ACK, 1);
    a_reset_without_a_flow_is_dropped: Row::new(V4.tcp(RST | ACK))
        .given(|world| one_backend(world, TCP))
        .drops(Outcome::Unanswerable);
    a_refused_broadcast_source_is_dropped: Row::new(V4.udp().from("255.255.255.255:50000"))
        .given(|world| {
            one_backend(world, UDP)?;
            world.table(SERVICE + V4.id, &[gateway_common::REFUSE])
        })
        .drops(Outcome::Unanswerable);

    backend_gone_over_ipv4: gone(V4, ACK | PSH).then(|world, _| {
        let flows = world.entries::<FlowKey4, Flow>(maps::FLOWS4)?;
        assert_eq!(flows.keys().count(), 0, "the flow is forgotten");
        Ok(())
    });
    backend_gone_over_ipv6: gone(V6, ACK | PSH);
    /// Of many segments to come, one reset.
    backend_gone_for_segments_to_come: Row::new(V4.tcp(ACK).payload(&[7; 2_000]))
        .segment(500)
        .given(|world| {
            one_backend(world, TCP)?;
            known_flow(world, |_| ())?;
            world.backend(V4.id, None, 0)
        })
        .answers(Outcome::BackendGone, &reset(V4, ACK, 0));
    /// A datagram of a flow whose backend is gone begins a new one.
    udp_to_a_backend_that_is_gone_goes_to_another: Row::new(V4.udp())
        .given(|world| {
            one_backend(world, UDP)?;
            known_flow(world, |flow| flow.backend = 9)
        })
        .forwards(V4);
    a_syn_to_a_backend_that_is_gone_goes_to_another: Row::new(V4.tcp(SYN))
        .given(|world| {
            one_backend(world, TCP)?;
            known_flow(world, |flow| flow.incarnation = gateway_common::Be16::new(7))
        })
        .forwards(V4);
    /// The flow was on a backend that is still there; closed, it is followed by one on the table's.
    a_syn_after_the_end_begins_anew: Row::new(V4.tcp(SYN))
        .given(|world| {
            one_backend(world, TCP)?;
            world.backend(9, Some("198.18.1.2:9999"), 1)?;
            known_flow(world, |flow| {
                flow.backend = 9;
                flow.state = tcp_state::CLIENT_FIN | tcp_state::BACKEND_FIN;
            })
        })
        .forwards(V4);
    an_idle_flow_is_none: Row::new(V4.tcp(ACK | PSH))
        .given(|world| {
            one_backend(world, TCP)?;
            known_flow(world, |flow| flow.seen -= IDLE + 1)
        })
        .answers(Outcome::NoFlow, &reset(V4, ACK, 5));
    /// The client was silent, the backend was not.
    a_flow_whose_backend_still_talks_is_not_idle: Row::new(V4.tcp(ACK | PSH))
        .given(|world| {
            one_backend(world, TCP)?;
            known_reply(world, TCP, &Known { age: 1, ..Known::default() })?;
            known_flow(world, |flow| flow.seen -= IDLE + 1)
        })
        .forwards(V4);
    an_answer_that_xdp_cannot_send_is_left_to_tc: refused_tcp(V4, V4.tcp(SYN))
        .given(|world| {
            one_backend(world, TCP)?;
            world.table(SERVICE + V4.id, &[gateway_common::REFUSE])?;
            world.device_can(gateway_tests::prog::CLIENTS, 0)
        })
        .xdp_leaves_it();
}
