//! `gw_flows4` and `gw_flows6`, `gw_opening4` and `gw_opening6`: which backend a client's flow has.
//!
//! A flow is in an opening map until both sides were seen to speak, and in the flow map from then on, so that no flood
//! of first packets can push out what is established.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Be16, Be32, layout::map_type};

/// Key of `gw_flows4` and `gw_opening4`. The service stands for destination address, port and protocol.
///
/// # Layout
/// 12 bytes, align 4; `pad` is zero.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct FlowKey4 {
    /// Client address.
    pub client: Be32,
    /// Service id.
    pub service: u32,
    /// Client port.
    pub port: Be16,
    /// Zero.
    pub pad: u16,
}
map_type!(FlowKey4, size = 12, offsets = { client: 0, service: 4, port: 8 });

/// Key of `gw_flows6` and `gw_opening6`. The service stands for destination address, port and protocol.
///
/// # Layout
/// 24 bytes, align 4; `pad` is zero.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct FlowKey6 {
    /// Client address.
    pub client: [Be32; 4],
    /// Service id.
    pub service: u32,
    /// Client port.
    pub port: Be16,
    /// Zero.
    pub pad: u16,
}
map_type!(FlowKey6, size = 24, offsets = { client: 0, service: 16, port: 20 });

/// Value of all four maps.
///
/// # Layout
/// 24 bytes, align 4.
/// # Ordering
/// Written by the kernel programs through the looked-up pointer, without a lock: each field is written whole, a lost
/// update of `seen` costs nothing, and bits of `state` are only ever set, atomically.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Flow {
    /// Backend id.
    pub backend: u32,
    /// Tick of the last packet from the client.
    pub seen: u32,
    /// Tick at which the reply entry was last seen to be this flow's own.
    pub checked: u32,
    /// Incarnation of the backend when the flow began.
    pub incarnation: Be16,
    /// Source port towards the backend (`nat` mode).
    pub nat_port: Be16,
    /// Bits of [`tcp_state`]; zero for UDP.
    pub state: u32,
    /// While a TCP connection opens: what the client must acknowledge, host order; zero before the backend answered.
    pub expected: u32,
}
map_type!(Flow, size = 24, offsets = { backend: 0, seen: 4, checked: 8, incarnation: 12, nat_port: 14, state: 16, expected: 20 });

/// What has been seen of a connection's end.
pub mod tcp_state {
    /// The client sent a FIN.
    pub const CLIENT_FIN: u32 = 1;
    /// The backend sent a FIN.
    pub const BACKEND_FIN: u32 = 2;
    /// Either sent a RST.
    pub const RESET: u32 = 4;

    /// Whether the connection is over: its entry and its port may be used again.
    pub const fn is_closed(state: u32) -> bool {
        state & RESET != 0 || state & (CLIENT_FIN | BACKEND_FIN) == CLIENT_FIN | BACKEND_FIN
    }
}
