//! What a client is told when it cannot be served: a TCP reset, or ICMP port unreachable.
//!
//! The answer is made of the packet itself, cut to what it must quote, and goes back where it came from.

use gateway_common::{Be16, Be32, Outcome, TCP, csum};
use zerocopy::{Immutable, IntoBytes};

use crate::{
    family::Family,
    packet::{Packet, swap_addresses},
    parse::{self, Headers, TCP_HEADER, Transport, UDP_HEADER, tcp_flags},
    rewrite::{UDP_CHECKSUM, checksum_field},
    verdict::{Verdict, Work},
};

/// Length of an ICMP error's own header.
const ICMP_HEADER: u32 = 8;

/// A TCP header without options.
///
/// # Source
/// RFC 9293 §3.1.
#[derive(Immutable, IntoBytes)]
#[repr(C)]
struct TcpHeader {
    source_port: Be16,
    destination_port: Be16,
    sequence: Be32,
    acknowledgement: Be32,
    /// Length in words, in the upper four bits.
    words: u8,
    flags: u8,
    window: Be16,
    checksum: u16,
    urgent: Be16,
}

/// An ICMP error's own header, of either family.
#[derive(Immutable, IntoBytes)]
#[repr(C)]
struct IcmpHeader {
    kind_and_code: [u8; 2],
    checksum: u16,
    unused: u32,
}

/// Whether the client is told of an outcome.
#[inline(always)]
pub(crate) const fn is_told(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Refused
            | Outcome::BackendGone
            | Outcome::NoFlow
            | Outcome::NatPortsExhausted
            | Outcome::NatPortLost
    )
}

/// Tells the client, when this program can and the client may be told.
#[inline(never)]
pub(crate) fn answer<P: Packet, F: Family>(packet: P, work: &mut Work<F>, outcome: Outcome) -> Verdict {
    let Work { headers, sent, .. } = work;
    let headers = &*headers;
    packet.can_answer()?;
    let transport = parse::transport(packet, headers)?;
    if transport.flags & tcp_flags::RST != 0 || !F::is_unicast(headers.source) {
        return Err(Outcome::Unanswerable);
    }
    if headers.protocol == TCP {
        reset(packet, headers, transport)?;
    } else {
        unreachable(packet, headers)?;
    }
    sent.code = packet.send_back()?;
    sent.outcome = outcome;
    Ok(())
}

/// Turns the packet into the reset that a closed port would send.
///
/// # Source
/// RFC 9293 §3.10.7.1.
#[inline(always)]
fn reset<P: Packet, F: Family>(packet: P, headers: &Headers<F>, transport: Transport) -> Result<(), Outcome> {
    let [sequence, acknowledgement]: [Be32; 2] = packet.read(headers.l4 + 4).ok_or(Outcome::Malformed)?;
    let flags = transport.flags;
    let segment = headers.end - headers.l4 - transport.length
        + u32::from(flags & tcp_flags::SYN != 0)
        + u32::from(flags & tcp_flags::FIN != 0);
    let (sequence, acknowledgement, flags) = if flags & tcp_flags::ACK != 0 {
        (acknowledgement, Be32::new(0), tcp_flags::RST)
    } else {
        (Be32::new(0), Be32::new(sequence.host().wrapping_add(segment)), tcp_flags::RST | tcp_flags::ACK)
    };
    let mut tcp = TcpHeader {
        source_port: headers.destination_port,
        destination_port: headers.source_port,
        sequence,
        acknowledgement,
        words: ((TCP_HEADER / 4) << 4) as u8,
        flags,
        window: Be16::new(0),
        checksum: 0,
        urgent: Be16::new(0),
    };
    let pseudo = F::pseudo(headers.destination, headers.source, TCP_HEADER, TCP);
    tcp.checksum = if packet.has_partial_checksum(checksum_field(headers).offset) {
        // Whoever completes it adds the bytes.
        csum::fold(pseudo)
    } else {
        let words = u64::from(tcp.source_port.wire())
            + u64::from(tcp.destination_port.wire())
            + u64::from(tcp.sequence.wire())
            + u64::from(tcp.acknowledgement.wire())
            + u64::from(u16::from_ne_bytes([tcp.words, tcp.flags]));
        !csum::fold64(words + u64::from(pseudo))
    };
    packet.truncate(headers.l4 + TCP_HEADER)?;
    make_room(packet, headers, F::HEADER)?;
    F::write_new_network(packet, headers.l3, [headers.destination, headers.source], TCP_HEADER, TCP)?;
    packet.write(headers.l3 + F::HEADER, &tcp)
}

/// Wraps the packet's beginning in an ICMP error.
///
/// # Source
/// RFC 792, RFC 4443 §3.1: the quote holds the network header and the UDP header.
#[inline(always)]
fn unreachable<P: Packet, F: Family>(packet: P, headers: &Headers<F>) -> Result<(), Outcome> {
    let network = F::sum_network(packet, headers).ok_or(Outcome::Unanswerable)?;
    let [ports, length_and_checksum]: [u32; 2] = packet.read(headers.l4).ok_or(Outcome::Malformed)?;
    let mut udp = u64::from(ports) + u64::from(length_and_checksum);
    if packet.has_partial_checksum(headers.l4 + UDP_CHECKSUM) {
        // Whoever completes the quoted checksum sums the quoted header and writes the complement in the place of
        // what is there; this one must be right afterwards.
        let before: u16 = packet.read(headers.l4 + UDP_CHECKSUM).ok_or(Outcome::Malformed)?;
        udp += u64::from(!before) + u64::from(!csum::fold64(udp));
    }
    let quote = headers.l4 + UDP_HEADER - headers.l3;
    let length = ICMP_HEADER + quote;
    let pseudo = if F::IPV6 { F::pseudo(headers.destination, headers.source, length, F::ICMP) } else { 0 };
    let [kind, code] = F::PORT_UNREACHABLE;
    let sum = network + udp + u64::from(pseudo) + u64::from(u16::from_ne_bytes([kind, code]));
    let icmp = IcmpHeader { kind_and_code: [kind, code], checksum: !csum::fold64(sum), unused: 0 };
    packet.truncate(headers.l4 + UDP_HEADER)?;
    make_room(packet, headers, F::HEADER + ICMP_HEADER + quote - UDP_HEADER)?;
    F::write_new_network(packet, headers.l3, [headers.destination, headers.source], length, F::ICMP)?;
    packet.write(headers.l3 + F::HEADER, &icmp)
}

/// Makes `bytes` lie between the link-layer header and the transport header, and turns the link-layer header round.
#[inline(always)]
fn make_room<P: Packet, F: Family>(packet: P, headers: &Headers<F>, bytes: u32) -> Result<(), Outcome> {
    let room = bytes.wrapping_sub(headers.l4 - headers.l3).cast_signed();
    if room != 0 {
        packet.shift(headers.l3, room)?;
    }
    swap_addresses(packet)
}
