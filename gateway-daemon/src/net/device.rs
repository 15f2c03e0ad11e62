//! What is known of a network device.

/// Bits of a device's XDP features, as the `netdev` family of generic netlink tells them.
///
/// # Source
/// `enum netdev_xdp_act` in the kernel's include/uapi/linux/netdev.h.
pub mod xdp_features {
    /// The driver runs XDP programs and takes every basic verdict.
    pub const BASIC: u64 = 1;
    /// Programs may redirect packets that the device received.
    pub const REDIRECT: u64 = 1 << 1;
    /// The device transmits what is redirected to it.
    pub const NDO_XMIT: u64 = 1 << 2;
}

/// A network device.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Device {
    /// Interface index.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// Whether it is up.
    pub up: bool,
    /// The kind of a virtual device, such as `veth` or `bond`; none for a NIC.
    pub kind: Option<String>,
    /// The kind of the device that it is a port of, such as `bridge` or `bond`.
    pub master_kind: Option<String>,
    /// Bits of [`xdp_features`].
    pub xdp_features: u64,
}
