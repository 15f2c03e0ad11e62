//! `gw_replies4` and `gw_replies6`, `gw_claims4` and `gw_claims6`: how a backend's packet becomes the service's answer
//! (`nat` mode). Claims are of flows that open; no tuple is in both.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Be16, Be32, layout::map_type};

/// Key of `gw_replies4` and `gw_claims4`: the tuple of a backend's packet. An entry owns its NAT port towards that backend.
///
/// # Layout
/// 16 bytes, align 4; `pad` is zero.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct ReplyKey4 {
    /// Backend address (the packet's source).
    pub backend: Be32,
    /// This node's address (the packet's destination).
    pub node: Be32,
    /// Backend port.
    pub backend_port: Be16,
    /// NAT port.
    pub nat_port: Be16,
    /// IANA protocol number.
    pub protocol: u8,
    /// Zero.
    pub pad: [u8; 3],
}
map_type!(ReplyKey4, size = 16, offsets = { backend: 0, node: 4, backend_port: 8, nat_port: 10, protocol: 12 });

/// Key of `gw_replies6` and `gw_claims6`: the tuple of a backend's packet. An entry owns its NAT port towards that backend.
///
/// # Layout
/// 40 bytes, align 4; `pad` is zero.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct ReplyKey6 {
    /// Backend address (the packet's source).
    pub backend: [Be32; 4],
    /// This node's address (the packet's destination).
    pub node: [Be32; 4],
    /// Backend port.
    pub backend_port: Be16,
    /// NAT port.
    pub nat_port: Be16,
    /// IANA protocol number.
    pub protocol: u8,
    /// Zero.
    pub pad: [u8; 3],
}
map_type!(ReplyKey6, size = 40, offsets = { backend: 0, node: 16, backend_port: 32, nat_port: 34, protocol: 36 });

/// Value of `gw_replies4` and `gw_claims4`.
///
/// # Layout
/// 32 bytes, align 4.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Reply4 {
    /// Client address: the new destination.
    pub client: Be32,
    /// Address of the service: the new source.
    pub address: Be32,
    /// Client port.
    pub client_port: Be16,
    /// Port of the service.
    pub port: Be16,
    /// Service id.
    pub service: u32,
    /// Backend id.
    pub backend: u32,
    /// Tick of the last packet in either direction, kept to within a tick.
    pub seen: u32,
    /// The service's idle timeout, in ticks.
    pub idle_ticks: u32,
    /// Bits of [`crate::tcp_state`]; zero for UDP.
    pub state: u32,
}
map_type!(Reply4, size = 32, offsets = { client: 0, address: 4, client_port: 8, port: 10, service: 12, backend: 16, seen: 20, idle_ticks: 24, state: 28 });

/// Value of `gw_replies6` and `gw_claims6`.
///
/// # Layout
/// 56 bytes, align 4.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Reply6 {
    /// Client address: the new destination.
    pub client: [Be32; 4],
    /// Address of the service: the new source.
    pub address: [Be32; 4],
    /// Client port.
    pub client_port: Be16,
    /// Port of the service.
    pub port: Be16,
    /// Service id.
    pub service: u32,
    /// Backend id.
    pub backend: u32,
    /// Tick of the last packet in either direction, kept to within a tick.
    pub seen: u32,
    /// The service's idle timeout, in ticks.
    pub idle_ticks: u32,
    /// Bits of [`crate::tcp_state`]; zero for UDP.
    pub state: u32,
}
map_type!(Reply6, size = 56, offsets = { client: 0, address: 16, client_port: 32, port: 34, service: 36, backend: 40, seen: 44, idle_ticks: 48, state: 52 });
