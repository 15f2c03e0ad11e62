//! Translation: new addresses and ports, the hop limit, and the checksums over them.

use gateway_common::{Be16, Outcome, UDP, csum::Delta};

use crate::{
    family::Family,
    packet::{ChecksumField, Packet},
    parse::Headers,
};

/// What a packet's addresses and ports become: source and destination.
pub(crate) struct Translation<F: Family> {
    pub(crate) addresses: [F::Address; 2],
    pub(crate) ports: [Be16; 2],
}

/// Offset of the checksum in a TCP header.
pub(crate) const TCP_CHECKSUM: u32 = 16;
/// Offset of the checksum in a UDP header.
pub(crate) const UDP_CHECKSUM: u32 = 6;

/// Where the L4 checksum of a packet is.
#[inline(always)]
pub(crate) fn checksum_field<F: Family>(headers: &Headers<F>) -> ChecksumField {
    let udp = headers.protocol == UDP;
    let offset = headers.l4 + if udp { UDP_CHECKSUM } else { TCP_CHECKSUM };
    ChecksumField { offset, udp, ipv6: F::IPV6 }
}

/// Writes the translation; the hop limit, at least 2 before, goes down by one.
#[inline(never)]
pub(crate) fn translate<P: Packet, F: Family>(
    packet: P,
    headers: &Headers<F>,
    to: &Translation<F>,
) -> Result<(), Outcome> {
    let addresses = F::change(Delta::NONE, &headers.source, &to.addresses[0]);
    let addresses = F::change(addresses, &headers.destination, &to.addresses[1]);
    let ports = Delta::NONE
        .word16(headers.source_port.wire(), to.ports[0].wire())
        .word16(headers.destination_port.wire(), to.ports[1].wire());
    F::write_network(packet, headers, &to.addresses)?;
    packet.update_checksum(checksum_field(headers), addresses, ports)?;
    packet.write_balanced(headers.l4, &to.ports)
}
