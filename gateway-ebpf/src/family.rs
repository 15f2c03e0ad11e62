//! What differs between IPv4 and IPv6, so that the data path is written once.

use gateway_common::{
    Addr, Be16, Be32, Flow, FlowKey4, FlowKey6, Outcome, Reply4, Reply6, ReplyKey4, ReplyKey6,
    csum::{self, Delta},
    hash::SipHash,
};

use crate::{
    maps::{self, Entry, InsertError},
    nat,
    packet::Packet,
    parse::{self, Headers, Ipv4Header, Ipv6Header, Link},
    verdict::Work,
};

/// What a reply entry says besides addresses and ports.
#[derive(Clone, Copy)]
pub(crate) struct Connection {
    /// Service id.
    pub(crate) service: u32,
    /// Backend id.
    pub(crate) backend: u32,
    /// Tick of the last packet.
    pub(crate) seen: u32,
    /// Ticks after which it is forgotten.
    pub(crate) idle_ticks: u32,
    /// Bits of [`gateway_common::tcp_state`].
    pub(crate) state: u32,
}

/// IPv4 or IPv6.
pub(crate) trait Family: Copy + 'static {
    /// An address on the wire.
    type Address: Copy + Eq;
    /// Key of this family's flows.
    type FlowKey;
    /// Key of this family's replies.
    type ReplyKey;
    /// Value of this family's replies.
    type Reply: Copy;

    /// Length of the network header without options or extensions.
    const HEADER: u32;
    /// `AF_INET` or `AF_INET6`.
    const AF: u8;
    /// Whether this is IPv6.
    const IPV6: bool;
    /// Protocol number of its ICMP.
    const ICMP: u8;
    /// Type and code of "port unreachable", as on the wire.
    const PORT_UNREACHABLE: [u8; 2];

    /// This CPU's place to work on a packet.
    fn work() -> Option<&'static mut Work<Self>>;
    /// Parses the headers; false when they are none of ours.
    fn parse<P: Packet>(packet: P, link: &Link, headers: &mut Headers<Self>) -> bool;
    /// The address as maps of both families hold it.
    fn to_addr(address: Self::Address) -> Addr;
    /// The address, when it is of this family.
    fn from_addr(address: &Addr) -> Option<&Self::Address>;
    /// The address in words, IPv4 in the first.
    fn words(address: Self::Address) -> [u32; 4];
    /// Whether an answer can be sent to it.
    fn is_unicast(address: Self::Address) -> bool;
    /// Adds the change of one address.
    fn change(delta: Delta, old: &Self::Address, new: &Self::Address) -> Delta;
    /// Adds an address to a hash.
    fn hash(hash: SipHash, address: Self::Address) -> SipHash;
    /// The sum of a pseudo-header.
    fn pseudo(source: Self::Address, destination: Self::Address, length: u32, protocol: u8) -> u32;

    /// Writes addresses and hop limit into the network header that was parsed.
    fn write_network<P: Packet>(
        packet: P,
        headers: &Headers<Self>,
        source_and_destination: &[Self::Address; 2],
    ) -> Result<(), Outcome>;

    /// Writes a new network header at `l3` for a payload of `length` bytes.
    fn write_new_network<P: Packet>(
        packet: P,
        l3: u32,
        from_to: [Self::Address; 2],
        length: u32,
        protocol: u8,
    ) -> Result<(), Outcome>;

    /// Adds the network header and its extensions, as they are in the packet, to a sum. `None` when they are too long.
    fn sum_network<P: Packet>(packet: P, headers: &Headers<Self>) -> Option<u64>;

    fn flow_key(client: Self::Address, service: u32, port: Be16) -> Self::FlowKey;
    fn flow(key: &Self::FlowKey) -> Option<Entry<Flow>>;
    fn insert_flow(key: &Self::FlowKey, flow: &Flow) -> Result<(), InsertError>;
    fn remove_flow(key: &Self::FlowKey);
    /// A flow that opens.
    fn opening(key: &Self::FlowKey) -> Option<Entry<Flow>>;
    fn insert_opening(key: &Self::FlowKey, flow: &Flow) -> Result<(), InsertError>;
    fn remove_opening(key: &Self::FlowKey);

    /// The tuple of a backend's packets to `node`; the NAT port comes later.
    fn reply_key(
        backend: Self::Address,
        node: Self::Address,
        backend_port: Be16,
        protocol: u8,
    ) -> Self::ReplyKey;
    fn set_nat_port(key: &mut Self::ReplyKey, port: Be16);
    fn nat_port(key: &Self::ReplyKey) -> Be16;
    fn reply(key: &Self::ReplyKey) -> Option<Entry<Self::Reply>>;
    fn insert_reply(key: &Self::ReplyKey, reply: &Self::Reply) -> Result<(), InsertError>;
    fn remove_reply(key: &Self::ReplyKey);
    /// The reply of a flow that opens.
    fn claim(key: &Self::ReplyKey) -> Option<Entry<Self::Reply>>;
    fn insert_claim(key: &Self::ReplyKey, reply: &Self::Reply) -> Result<(), InsertError>;
    fn remove_claim(key: &Self::ReplyKey);
    /// Takes a NAT port for a new flow and enters the way back.
    fn allocate(work: &mut Work<Self>) -> Result<(), Outcome>;
    /// The reply entry for the connection of a client's packet.
    fn new_reply(headers: &Headers<Self>, connection: &Connection) -> Self::Reply;
    fn connection(reply: &Self::Reply) -> Connection;
    /// The client's address and port.
    fn client(reply: &Self::Reply) -> (Self::Address, Be16);
    /// The service's address and port.
    fn service(reply: &Self::Reply) -> (Self::Address, Be16);
    fn set_seen(entry: &Entry<Self::Reply>, tick: u32);
    /// Sets bits of the state.
    fn add_state(entry: &Entry<Self::Reply>, bits: u32);
    /// Makes the entry this packet's to take away, when it was last seen at `seen` and still is; of several CPUs, one
    /// gets it.
    fn seize(entry: &Entry<Self::Reply>, seen: u32, now: u32) -> bool;
}

/// The map types of both families have the same fields; only the address differs.
macro_rules! family_maps {
    (
        $flow_key:ident, $flow:ident, $insert_flow:ident, $remove_flow:ident,
        $reply_key:ident, $reply_value:ident, $reply:ident, $insert_reply:ident, $remove_reply:ident,
        $opening:ident, $insert_opening:ident, $remove_opening:ident, $claim:ident, $insert_claim:ident,
        $remove_claim:ident, $allocate:ident
    ) => {
        type FlowKey = $flow_key;
        type ReplyKey = $reply_key;
        type Reply = $reply_value;

        #[inline(always)]
        fn flow_key(client: Self::Address, service: u32, port: Be16) -> $flow_key {
            $flow_key { client, service, port, pad: 0 }
        }

        #[inline(always)]
        fn flow(key: &$flow_key) -> Option<Entry<Flow>> {
            maps::$flow(key)
        }

        #[inline(always)]
        fn insert_flow(key: &$flow_key, flow: &Flow) -> Result<(), InsertError> {
            maps::$insert_flow(key, flow)
        }

        #[inline(always)]
        fn remove_flow(key: &$flow_key) {
            maps::$remove_flow(key);
        }

        #[inline(always)]
        fn opening(key: &$flow_key) -> Option<Entry<Flow>> {
            maps::$opening(key)
        }

        #[inline(always)]
        fn insert_opening(key: &$flow_key, flow: &Flow) -> Result<(), InsertError> {
            maps::$insert_opening(key, flow)
        }

        #[inline(always)]
        fn remove_opening(key: &$flow_key) {
            maps::$remove_opening(key);
        }

        #[inline(always)]
        fn claim(key: &$reply_key) -> Option<Entry<$reply_value>> {
            maps::$claim(key)
        }

        #[inline(always)]
        fn insert_claim(key: &$reply_key, reply: &$reply_value) -> Result<(), InsertError> {
            maps::$insert_claim(key, reply)
        }

        #[inline(always)]
        fn remove_claim(key: &$reply_key) {
            maps::$remove_claim(key);
        }

        #[inline(always)]
        fn reply_key(
            backend: Self::Address,
            node: Self::Address,
            backend_port: Be16,
            protocol: u8,
        ) -> $reply_key {
            $reply_key { backend, node, backend_port, nat_port: Be16::new(0), protocol, pad: [0; 3] }
        }

        #[inline(always)]
        fn set_nat_port(key: &mut $reply_key, port: Be16) {
            key.nat_port = port;
        }

        #[inline(always)]
        fn nat_port(key: &$reply_key) -> Be16 {
            key.nat_port
        }

        #[inline(always)]
        fn reply(key: &$reply_key) -> Option<Entry<$reply_value>> {
            maps::$reply(key)
        }

        #[inline(always)]
        fn insert_reply(key: &$reply_key, reply: &$reply_value) -> Result<(), InsertError> {
            maps::$insert_reply(key, reply)
        }

        #[inline(always)]
        fn remove_reply(key: &$reply_key) {
            maps::$remove_reply(key);
        }

        #[inline(always)]
        fn allocate(work: &mut Work<Self>) -> Result<(), Outcome> {
            nat::allocated(nat::$allocate(work))
        }

        #[inline(always)]
        fn new_reply(headers: &Headers<Self>, connection: &Connection) -> $reply_value {
            $reply_value {
                client: headers.source,
                address: headers.destination,
                client_port: headers.source_port,
                port: headers.destination_port,
                service: connection.service,
                backend: connection.backend,
                seen: connection.seen,
                idle_ticks: connection.idle_ticks,
                state: connection.state,
            }
        }

        #[inline(always)]
        fn connection(reply: &$reply_value) -> Connection {
            let $reply_value { service, backend, seen, idle_ticks, state, .. } = *reply;
            Connection { service, backend, seen, idle_ticks, state }
        }

        #[inline(always)]
        fn client(reply: &$reply_value) -> (Self::Address, Be16) {
            (reply.client, reply.client_port)
        }

        #[inline(always)]
        fn service(reply: &$reply_value) -> (Self::Address, Be16) {
            (reply.address, reply.port)
        }

        #[inline(always)]
        fn set_seen(entry: &Entry<$reply_value>, tick: u32) {
            entry.set_seen(tick);
        }

        #[inline(always)]
        fn add_state(entry: &Entry<$reply_value>, bits: u32) {
            entry.add_state(bits);
        }

        #[inline(always)]
        fn seize(entry: &Entry<$reply_value>, seen: u32, now: u32) -> bool {
            entry.replace_seen(seen, now)
        }
    };
}

/// Hop limit of what we send ourselves.
const HOP_LIMIT: u8 = 64;

/// IPv4.
#[derive(Clone, Copy)]
pub(crate) struct V4;

impl Family for V4 {
    type Address = Be32;

    family_maps!(
        FlowKey4,
        flow4,
        insert_flow4,
        remove_flow4,
        ReplyKey4,
        Reply4,
        reply4,
        insert_reply4,
        remove_reply4,
        opening4,
        insert_opening4,
        remove_opening4,
        claim4,
        insert_claim4,
        remove_claim4,
        gw_allocate4
    );

    const HEADER: u32 = 20;
    const AF: u8 = 2;
    const IPV6: bool = false;
    const ICMP: u8 = 1;
    // RFC 792.
    const PORT_UNREACHABLE: [u8; 2] = [3, 3];

    #[inline(always)]
    fn work() -> Option<&'static mut Work<Self>> {
        maps::work4()
    }

    #[inline(always)]
    fn parse<P: Packet>(packet: P, link: &Link, headers: &mut Headers<Self>) -> bool {
        parse::ipv4(packet, link, headers)
    }

    #[inline(always)]
    fn to_addr(address: Be32) -> Addr {
        Addr::v4(address)
    }

    #[inline(always)]
    fn from_addr(address: &Addr) -> Option<&Be32> {
        address.as_v4().is_some().then_some(&address.0[3])
    }

    #[inline(always)]
    fn words(address: Be32) -> [u32; 4] {
        [address.wire(), 0, 0, 0]
    }

    /// Neither multicast nor broadcast nor reserved, nor "this network", nor loopback.
    #[inline(always)]
    fn is_unicast(address: Be32) -> bool {
        let first = address.host() >> 24;
        first != 0 && first != 127 && first < 224
    }

    #[inline(always)]
    fn change(delta: Delta, old: &Be32, new: &Be32) -> Delta {
        delta.word32(old.wire(), new.wire())
    }

    #[inline(always)]
    fn hash(hash: SipHash, address: Be32) -> SipHash {
        hash.word(address.wire().into())
    }

    #[inline(always)]
    fn pseudo(source: Be32, destination: Be32, length: u32, protocol: u8) -> u32 {
        csum::pseudo4(source.wire(), destination.wire(), length as u16, protocol)
    }

    #[inline(always)]
    fn write_network<P: Packet>(
        packet: P,
        headers: &Headers<Self>,
        &[source, destination]: &[Be32; 2],
    ) -> Result<(), Outcome> {
        /// From the TTL on.
        #[derive(zerocopy::Immutable, zerocopy::IntoBytes)]
        #[repr(C)]
        struct Rest {
            ttl: u8,
            protocol: u8,
            checksum: u16,
            source: Be32,
            destination: Be32,
        }
        let (old, ttl) = (headers.hop_limit, headers.hop_limit - 1);
        let delta = Delta::NONE
            .word16(u16::from_ne_bytes([old, headers.protocol]), u16::from_ne_bytes([ttl, headers.protocol]))
            .word32(headers.source.wire(), source.wire())
            .word32(headers.destination.wire(), destination.wire());
        let checksum = delta.apply(headers.checksum);
        let rest = Rest { ttl, protocol: headers.protocol, checksum, source, destination };
        packet.write(headers.l3 + 8, &rest)
    }

    #[inline(always)]
    fn write_new_network<P: Packet>(
        packet: P,
        l3: u32,
        [source, destination]: [Be32; 2],
        length: u32,
        protocol: u8,
    ) -> Result<(), Outcome> {
        const DO_NOT_FRAGMENT: u16 = 0x4000;
        let mut header = Ipv4Header {
            version_and_words: 0x45,
            service_type: 0,
            length: Be16::new((Self::HEADER + length) as u16),
            identification: Be16::new(0),
            fragment: Be16::new(DO_NOT_FRAGMENT),
            ttl: HOP_LIMIT,
            protocol,
            checksum: 0,
            source,
            destination,
        };
        let words = u64::from(u16::from_ne_bytes([header.version_and_words, 0]))
            + u64::from(header.length.wire())
            + u64::from(header.fragment.wire())
            + u64::from(u16::from_ne_bytes([HOP_LIMIT, protocol]))
            + u64::from(source.wire())
            + u64::from(destination.wire());
        header.checksum = !csum::fold64(words);
        packet.write(l3, &header)
    }

    /// Zero: the header's own checksum is among its words, options included.
    #[inline(always)]
    fn sum_network<P: Packet>(_packet: P, _headers: &Headers<Self>) -> Option<u64> {
        Some(0)
    }
}

/// IPv6.
#[derive(Clone, Copy)]
pub(crate) struct V6;

impl Family for V6 {
    type Address = [Be32; 4];

    family_maps!(
        FlowKey6,
        flow6,
        insert_flow6,
        remove_flow6,
        ReplyKey6,
        Reply6,
        reply6,
        insert_reply6,
        remove_reply6,
        opening6,
        insert_opening6,
        remove_opening6,
        claim6,
        insert_claim6,
        remove_claim6,
        gw_allocate6
    );

    const HEADER: u32 = 40;
    const AF: u8 = 10;
    const IPV6: bool = true;
    const ICMP: u8 = 58;
    // RFC 4443 §3.1.
    const PORT_UNREACHABLE: [u8; 2] = [1, 4];

    #[inline(always)]
    fn work() -> Option<&'static mut Work<Self>> {
        maps::work6()
    }

    #[inline(always)]
    fn parse<P: Packet>(packet: P, link: &Link, headers: &mut Headers<Self>) -> bool {
        parse::ipv6(packet, link, headers)
    }

    #[inline(always)]
    fn to_addr(address: [Be32; 4]) -> Addr {
        Addr(address)
    }

    #[inline(always)]
    fn from_addr(address: &Addr) -> Option<&[Be32; 4]> {
        address.as_v4().is_none().then_some(&address.0)
    }

    #[inline(always)]
    fn words(address: [Be32; 4]) -> [u32; 4] {
        address.map(Be32::wire)
    }

    /// Neither multicast nor unspecified nor loopback.
    #[inline(always)]
    fn is_unicast(address: [Be32; 4]) -> bool {
        let [a, b, c, d] = address.map(Be32::host);
        a >> 24 != 0xff && (a | b | c != 0 || d > 1)
    }

    #[inline(always)]
    fn change(delta: Delta, old: &[Be32; 4], new: &[Be32; 4]) -> Delta {
        old.iter().zip(new).fold(delta, |delta, (old, new)| delta.word32(old.wire(), new.wire()))
    }

    #[inline(always)]
    fn hash(hash: SipHash, address: [Be32; 4]) -> SipHash {
        let [a, b, c, d] = Self::words(address).map(u64::from);
        hash.word(a << 32 | b).word(c << 32 | d)
    }

    #[inline(always)]
    fn pseudo(source: [Be32; 4], destination: [Be32; 4], length: u32, protocol: u8) -> u32 {
        csum::pseudo6(Self::words(source), Self::words(destination), length, protocol)
    }

    #[inline(always)]
    fn write_network<P: Packet>(
        packet: P,
        headers: &Headers<Self>,
        source_and_destination: &[[Be32; 4]; 2],
    ) -> Result<(), Outcome> {
        packet.write(headers.l3 + 6, &[headers.next_header, headers.hop_limit - 1])?;
        packet.write_balanced(headers.l3 + 8, source_and_destination)
    }

    #[inline(always)]
    fn write_new_network<P: Packet>(
        packet: P,
        l3: u32,
        [source, destination]: [[Be32; 4]; 2],
        length: u32,
        protocol: u8,
    ) -> Result<(), Outcome> {
        let header = Ipv6Header {
            version_class_and_label: Be32::new(6 << 28),
            payload_length: Be16::new(length as u16),
            next_header: protocol,
            hop_limit: HOP_LIMIT,
            source,
            destination,
        };
        packet.write(l3, &header)
    }

    #[inline(always)]
    fn sum_network<P: Packet>(packet: P, headers: &Headers<Self>) -> Option<u64> {
        /// With the header of 40 bytes, room for 64 bytes of extensions.
        const MAX_WORDS: u32 = 13;
        let mut sum = 0;
        for word in 0..=MAX_WORDS {
            let offset = headers.l3 + word * 8;
            if offset >= headers.l4 {
                return Some(sum);
            }
            let [a, b]: [u32; 2] = packet.read(offset)?;
            sum += u64::from(a) + u64::from(b);
        }
        None
    }
}
