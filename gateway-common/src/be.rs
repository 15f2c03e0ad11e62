//! Values in network byte order, as types.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A 16-bit value in network byte order.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    Hash,
    Ord,
    PartialEq,
    PartialOrd,
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
)]
#[repr(transparent)]
pub struct Be16(u16);

impl Be16 {
    /// Takes a value in host order.
    pub const fn new(host: u16) -> Self {
        Self(host.to_be())
    }

    /// Takes a value as it stands on the wire.
    pub const fn from_wire(wire: u16) -> Self {
        Self(wire)
    }

    /// The value in host order.
    pub const fn host(self) -> u16 {
        u16::from_be(self.0)
    }

    /// The value as it stands on the wire, for checksums and for writing back.
    pub const fn wire(self) -> u16 {
        self.0
    }
}

/// A 32-bit value in network byte order.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    Hash,
    Ord,
    PartialEq,
    PartialOrd,
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
)]
#[repr(transparent)]
pub struct Be32(u32);

impl Be32 {
    /// Takes a value in host order.
    pub const fn new(host: u32) -> Self {
        Self(host.to_be())
    }

    /// Takes a value as it stands on the wire.
    pub const fn from_wire(wire: u32) -> Self {
        Self(wire)
    }

    /// The value in host order.
    pub const fn host(self) -> u32 {
        u32::from_be(self.0)
    }

    /// The value as it stands on the wire, for checksums and for writing back.
    pub const fn wire(self) -> u32 {
        self.0
    }
}

/// An IPv6 address, or an IPv4 address as its IPv4-mapped IPv6 address (RFC 4291 §2.5.5.2).
///
/// # Layout
/// 16 bytes, align 4, network order.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    Hash,
    Ord,
    PartialEq,
    PartialOrd,
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
)]
#[repr(transparent)]
pub struct Addr(pub [Be32; 4]);

impl Addr {
    /// The IPv4-mapped form of an IPv4 address.
    pub const fn v4(address: Be32) -> Self {
        Self([Be32(0), Be32(0), Be32::new(0xffff), address])
    }

    /// The IPv4 address, when this is a mapped one.
    pub fn as_v4(self) -> Option<Be32> {
        let [a, b, c, d] = self.0;
        (a.0 == 0 && b.0 == 0 && c == Be32::new(0xffff)).then_some(d)
    }
}

#[cfg(feature = "user")]
impl From<std::net::IpAddr> for Addr {
    fn from(address: std::net::IpAddr) -> Self {
        let octets = match address {
            std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            std::net::IpAddr::V6(v6) => v6.octets(),
        };
        Self::read_from_bytes(&octets).unwrap_or_default()
    }
}

#[cfg(feature = "user")]
impl From<Addr> for std::net::IpAddr {
    fn from(address: Addr) -> Self {
        let mut octets = [0; 16];
        octets.copy_from_slice(address.as_bytes());
        Self::from(octets).to_canonical()
    }
}

#[cfg(all(test, feature = "user"))]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn addresses_go_there_and_back() {
        for text in ["198.18.0.1", "0.0.0.0", "2001:db8::7", "::", "::1"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(IpAddr::from(Addr::from(address)), address);
        }
        assert_eq!(Addr::from("198.18.0.1".parse::<IpAddr>().unwrap()).as_v4(), Some(Be32::new(0xc612_0001)));
        assert_eq!(Addr::from("2001:db8::7".parse::<IpAddr>().unwrap()).as_v4(), None);
    }
}
