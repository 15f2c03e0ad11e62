//! `gw_devices`: what a network device can do, and which packets are for it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::layout::map_type;

/// Value of `gw_devices`, a hash by interface index. A device that is not there can do nothing.
///
/// # Layout
/// 12 bytes, align 4.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Device {
    /// Bits of [`device_flags`].
    pub flags: u32,
    /// Link-layer address; packets to another reached the device by chance (promiscuous mode, a flooding switch).
    pub address: [u8; 6],
    /// Zero.
    pub pad: [u8; 2],
}
map_type!(Device, size = 12, offsets = { flags: 0, address: 4 });

/// Bits of [`Device::flags`].
pub mod device_flags {
    /// The device transmits what XDP redirects to it (`NETDEV_XDP_ACT_NDO_XMIT`); elsewhere such packets vanish.
    pub const XDP_TRANSMIT: u32 = 1;
    /// The device sends out again what it received and XDP returns with `XDP_TX`. A veth drops such packets in silence
    /// unless an XDP program is at its far end (Linux 6.18: receive offload there is enough for
    /// [`XDP_TRANSMIT`] only), so it gets them by redirection to itself.
    pub const XDP_TX: u32 = 2;
}
