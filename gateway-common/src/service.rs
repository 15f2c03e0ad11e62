//! `gw_services`: which packets are ours.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Addr, Be16, layout::map_type};

/// Key of `gw_services`: one address, port and protocol that clients connect to.
///
/// # Layout
/// 20 bytes, align 4. `protocol` is [`crate::TCP`] or [`crate::UDP`]; `pad` is zero.
#[derive(
    Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct ServiceKey {
    /// Address of the listener.
    pub address: Addr,
    /// Port of the listener.
    pub port: Be16,
    /// IANA protocol number.
    pub protocol: u8,
    /// Zero.
    pub pad: u8,
}
map_type!(ServiceKey, size = 20, offsets = { address: 0, port: 16, protocol: 18 });

/// Value of `gw_services`.
///
/// # Layout
/// 8 bytes, align 4.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Service {
    /// Index of the table in `gw_tables` and of the counters in `gw_service_stat`; part of every flow's key.
    pub id: u32,
    /// After so many ticks without a packet a flow is forgotten. Ticks: see [`crate::TICK_SHIFT`].
    pub idle_ticks: u32,
}
map_type!(Service, size = 8, offsets = { id: 0, idle_ticks: 4 });
