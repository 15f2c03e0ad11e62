//! `gw_config`: what the kernel programs must know before the first packet.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::layout::map_type;

/// The one value of `gw_config`, written whole before any program is attached.
///
/// # Layout
/// 24 bytes, align 8.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Config {
    /// Key of the flow hash. Nodes that must choose alike share it; clients must not know it, or they could aim
    /// at one slot.
    pub hash_key: [u64; 2],
    /// First port, in host order, that `nat` mode may use towards backends.
    pub nat_port_first: u16,
    /// How many ports there are from the first one on.
    pub nat_port_count: u16,
    /// First port, in host order, that backends may answer to. With the count it spans the range above, and those
    /// of earlier configurations whose flows live on.
    pub reply_port_first: u16,
    /// How many ports there are from that one on.
    pub reply_port_count: u16,
}
map_type!(Config, size = 24, offsets = { hash_key: 0, nat_port_first: 16, nat_port_count: 18, reply_port_first: 20, reply_port_count: 22 });
