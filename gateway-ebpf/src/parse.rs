//! Headers: from the first byte to the ports.
//!
//! What is not TCP or UDP, or cannot be understood so far as its ports, is not ours and passes. What comes after the
//! ports is judged only when the packet has turned out to be ours ([`transport`]).

use gateway_common::{Be16, Be32, Outcome, TCP, UDP};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    family::{Family, V4, V6},
    packet::Packet,
};

/// Length of an Ethernet header.
pub(crate) const ETHERNET: u32 = 14;
/// VLAN tags that are looked behind: a customer's and a provider's.
pub(crate) const MAX_TAGS: u8 = 2;
/// IPv6 extension headers that are looked behind: RFC 8200 §4.1 lets no more come before the payload.
const MAX_EXTENSIONS: u32 = 6;

/// Length of a TCP header without options.
pub(crate) const TCP_HEADER: u32 = 20;
/// Length of a UDP header.
pub(crate) const UDP_HEADER: u32 = 8;

/// Flags of a TCP header.
///
/// # Source
/// RFC 9293 §3.1.
pub(crate) mod tcp_flags {
    pub(crate) const FIN: u8 = 1;
    pub(crate) const SYN: u8 = 2;
    pub(crate) const RST: u8 = 4;
    pub(crate) const ACK: u8 = 16;
}

/// An Ethernet header.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
struct EthernetHeader {
    destination: [u8; 6],
    source: [u8; 6],
    ethertype: Be16,
}

/// An IPv4 header without options.
///
/// # Source
/// RFC 791 §3.1.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Ipv4Header {
    pub(crate) version_and_words: u8,
    pub(crate) service_type: u8,
    pub(crate) length: Be16,
    pub(crate) identification: Be16,
    pub(crate) fragment: Be16,
    pub(crate) ttl: u8,
    pub(crate) protocol: u8,
    pub(crate) checksum: u16,
    pub(crate) source: Be32,
    pub(crate) destination: Be32,
}

/// An IPv6 header.
///
/// # Source
/// RFC 8200 §3.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Ipv6Header {
    pub(crate) version_class_and_label: Be32,
    pub(crate) payload_length: Be16,
    pub(crate) next_header: u8,
    pub(crate) hop_limit: u8,
    pub(crate) source: [Be32; 4],
    pub(crate) destination: [Be32; 4],
}

/// Network protocols that can be ours.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Network {
    Ipv4,
    Ipv6,
}

/// Where the network header is, and of which protocol.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) network: Network,
    /// Offset of the network header.
    pub(crate) l3: u32,
    /// VLAN tags, in the bytes and beside them.
    pub(crate) tags: u8,
    /// Length of the packet from the Ethernet header on.
    pub(crate) available: u32,
}

impl Link {
    /// As one word, for a function that is verified for any link-layer header.
    #[inline(always)]
    pub(crate) const fn pack(self) -> u64 {
        (self.available as u64) << 32 | (self.tags as u64) << 8 | self.l3 as u64
    }

    /// From [`pack`](Self::pack).
    #[inline(always)]
    pub(crate) const fn unpack(word: u64, network: Network) -> Self {
        Self { network, l3: word as u8 as u32, tags: (word >> 8) as u8, available: (word >> 32) as u32 }
    }
}

/// What the data path needs of the headers.
pub(crate) struct Headers<F: Family> {
    pub(crate) source: F::Address,
    pub(crate) destination: F::Address,
    pub(crate) source_port: Be16,
    pub(crate) destination_port: Be16,
    /// Offset of the network header.
    pub(crate) l3: u32,
    /// Offset of the transport header.
    pub(crate) l4: u32,
    /// Where the packet ends by its own account.
    pub(crate) end: u32,
    /// Length of the packet from the Ethernet header on, by the device's account.
    pub(crate) available: u32,
    /// The IPv4 header's checksum, as on the wire; zero for IPv6.
    pub(crate) checksum: u16,
    /// IANA protocol number.
    pub(crate) protocol: u8,
    /// The network header's own "next header", an extension's perhaps.
    pub(crate) next_header: u8,
    pub(crate) hop_limit: u8,
    /// VLAN tags, in the bytes and beside them.
    pub(crate) tags: u8,
    /// The first fragment of a larger datagram.
    pub(crate) first_fragment: bool,
}

/// What the data path needs of the transport header.
#[derive(Clone, Copy)]
pub(crate) struct Transport {
    /// Length of the header, options included.
    pub(crate) length: u32,
    /// Bits of [`tcp_flags`]; zero for UDP.
    pub(crate) flags: u8,
}

impl Transport {
    /// Whether it opens a TCP connection.
    #[inline(always)]
    pub(crate) const fn opens(self) -> bool {
        self.flags & (tcp_flags::SYN | tcp_flags::ACK | tcp_flags::RST) == tcp_flags::SYN
    }
}

/// Finds the network header behind the Ethernet header and its tags.
#[inline(always)]
pub(crate) fn link<P: Packet>(packet: P, available: u32) -> Option<Link> {
    /// The individual/group bit of an address.
    const GROUP: u8 = 1;
    let ethernet: EthernetHeader = packet.read(0)?;
    if ethernet.destination[0] & GROUP != 0 {
        return None;
    }
    let mut link = Link { network: Network::Ipv4, l3: ETHERNET, tags: packet.tags_beside(), available };
    let mut ethertype = ethernet.ethertype;
    for _ in 0..MAX_TAGS {
        // 802.1Q and 802.1ad.
        if !matches!(ethertype.host(), 0x8100 | 0x88a8) || link.tags >= MAX_TAGS {
            break;
        }
        let [_, behind]: [Be16; 2] = packet.read(link.l3)?;
        ethertype = behind;
        link.tags += 1;
        link.l3 += 4;
    }
    link.network = match ethertype.host() {
        0x0800 => Network::Ipv4,
        0x86dd => Network::Ipv6,
        _ => return None,
    };
    Some(link)
}

/// Parses an IPv4 header and the ports behind it.
#[inline(never)]
pub(crate) fn ipv4<P: Packet>(packet: P, link: &Link, headers: &mut Headers<V4>) -> bool {
    try_ipv4(packet, link).map(|parsed| *headers = parsed).is_some()
}

#[inline(always)]
fn try_ipv4<P: Packet>(packet: P, link: &Link) -> Option<Headers<V4>> {
    const MORE_FRAGMENTS: u16 = 0x2000;
    const FRAGMENT_OFFSET: u16 = 0x1fff;
    let ip: Ipv4Header = packet.read(link.l3)?;
    let header = u32::from(ip.version_and_words & 15) * 4;
    let fragment = ip.fragment.host();
    if ip.version_and_words >> 4 != 4 || header < V4::HEADER || fragment & FRAGMENT_OFFSET != 0 {
        return None;
    }
    let length = u32::from(ip.length.host());
    let upper =
        Upper { protocol: ip.protocol, l4: link.l3 + header, first_fragment: fragment & MORE_FRAGMENTS != 0 };
    ports(packet, link, &upper, ip.source, ip.destination, length, [ip.protocol, ip.ttl], ip.checksum)
}

/// Parses an IPv6 header, its extensions, and the ports behind them.
#[inline(never)]
pub(crate) fn ipv6<P: Packet>(packet: P, link: &Link, headers: &mut Headers<V6>) -> bool {
    try_ipv6(packet, link).map(|parsed| *headers = parsed).is_some()
}

#[inline(always)]
fn try_ipv6<P: Packet>(packet: P, link: &Link) -> Option<Headers<V6>> {
    let ip: Ipv6Header = packet.read(link.l3)?;
    if ip.version_class_and_label.host() >> 28 != 6 {
        return None;
    }
    let l4 = link.l3 + V6::HEADER;
    let upper = match ip.next_header {
        TCP | UDP => Upper { protocol: ip.next_header, l4, first_fragment: false },
        next => Upper::unpack(extensions(packet, next, l4))?,
    };
    let payload = u32::from(ip.payload_length.host());
    let length = if payload == 0 { 0 } else { payload + V6::HEADER };
    ports(packet, link, &upper, ip.source, ip.destination, length, [ip.next_header, ip.hop_limit], 0)
}

/// The transport protocol and where its header is.
struct Upper {
    protocol: u8,
    l4: u32,
    first_fragment: bool,
}

impl Upper {
    /// As one word, never zero.
    #[inline(always)]
    const fn pack(self) -> u64 {
        self.protocol as u64 | (self.first_fragment as u64) << 8 | (self.l4 as u64) << 32
    }

    #[inline(always)]
    fn unpack(word: u64) -> Option<Self> {
        let upper =
            Self { protocol: word as u8, l4: (word >> 32) as u32, first_fragment: word >> 8 & 1 != 0 };
        (word != 0).then_some(upper)
    }
}

/// Walks the extension headers of IPv6: an [`Upper`], packed, or zero when there is none of ours behind them.
///
/// # Source
/// RFC 8200 §4.
#[inline(never)]
fn extensions<P: Packet>(packet: P, next: u8, l4: u32) -> u64 {
    try_extensions(packet, next, l4).map_or(0, Upper::pack)
}

#[inline(always)]
fn try_extensions<P: Packet>(packet: P, next: u8, l4: u32) -> Option<Upper> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const DESTINATION: u8 = 60;
    let mut upper = Upper { protocol: next, l4, first_fragment: false };
    for _ in 0..MAX_EXTENSIONS {
        let bytes: [u8; 8] = packet.read(upper.l4)?;
        upper.l4 += match upper.protocol {
            HOP_BY_HOP | DESTINATION => (u32::from(bytes[1]) + 1) * 8,
            // With segments left, this is not the final destination, and the checksum is over another.
            ROUTING if bytes[3] == 0 => (u32::from(bytes[1]) + 1) * 8,
            // The upper 13 bits are the offset: a later fragment has no ports.
            FRAGMENT if bytes[2] == 0 && bytes[3] & 0xf8 == 0 => {
                upper.first_fragment = bytes[3] & 1 != 0;
                8
            }
            _ => return None,
        };
        upper.protocol = bytes[0];
        if matches!(upper.protocol, TCP | UDP) {
            return Some(upper);
        }
    }
    None
}

/// Completes the headers with the ports. `length` is the network layer's, its header included, zero for unknown.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "inlined; a struct for one caller each would say it twice")]
fn ports<P: Packet, F: Family>(
    packet: P,
    link: &Link,
    upper: &Upper,
    source: F::Address,
    destination: F::Address,
    length: u32,
    [next_header, hop_limit]: [u8; 2],
    checksum: u16,
) -> Option<Headers<F>> {
    if !matches!(upper.protocol, TCP | UDP) {
        return None;
    }
    // Segments to come may together pass what the length field can say; then it is zero.
    let end = if length == 0 && packet.segment_size() != 0 { link.available } else { link.l3 + length };
    let [source_port, destination_port]: [Be16; 2] = packet.read(upper.l4)?;
    if upper.l4 + 4 > end {
        return None;
    }
    Some(Headers {
        source,
        destination,
        source_port,
        destination_port,
        l3: link.l3,
        l4: upper.l4,
        end,
        available: link.available,
        checksum,
        protocol: upper.protocol,
        next_header,
        hop_limit,
        tags: link.tags,
        first_fragment: upper.first_fragment,
    })
}

/// Judges what comes after the ports of a packet that is ours.
///
/// # Errors
/// `Fragment`, or `Malformed` when the header is cut short or contradicts the network header.
#[inline(always)]
pub(crate) fn transport<P: Packet, F: Family>(packet: P, headers: &Headers<F>) -> Result<Transport, Outcome> {
    if headers.first_fragment {
        return Err(Outcome::Fragment);
    }
    if headers.end > headers.available {
        return Err(Outcome::Malformed);
    }
    let room = headers.end - headers.l4;
    let (transport, minimum) = if headers.protocol == TCP {
        let [words, flags]: [u8; 2] = packet.read(headers.l4 + 12).ok_or(Outcome::Malformed)?;
        (Transport { length: u32::from(words >> 4) * 4, flags }, TCP_HEADER)
    } else {
        let length: Be16 = packet.read(headers.l4 + 4).ok_or(Outcome::Malformed)?;
        let length = u32::from(length.host());
        // Of segments to come, the field may say the length of one or of all.
        if length < UDP_HEADER || (length > room && packet.segment_size() == 0) {
            return Err(Outcome::Malformed);
        }
        (Transport { length: UDP_HEADER, flags: 0 }, UDP_HEADER)
    };
    if transport.length < minimum || transport.length > room {
        Err(Outcome::Malformed)
    } else {
        Ok(transport)
    }
}
