//! `gw_counters`, `gw_service_stat`, `gw_backend_stat`: what happened to packets.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::layout::map_type;

/// Value of `gw_counters`.
///
/// # Layout
/// 16 bytes, align 8.
/// # Units
/// Packets as the program saw them (a GSO packet counts once); bytes on the wire from the Ethernet header on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}
map_type!(Count, size = 16, offsets = { packets: 0, bytes: 8 });

/// Value of `gw_service_stat` and `gw_backend_stat`.
///
/// # Layout
/// 40 bytes, align 8.
/// # Units
/// As [`Count`]; flows are those that began here.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct ServiceCount {
    /// Flows that began.
    pub flows: u64,
    /// Packets from clients.
    pub packets_in: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Packets to clients.
    pub packets_out: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
}
map_type!(ServiceCount, size = 40, offsets = { flows: 0, packets_in: 8, bytes_in: 16, packets_out: 24, bytes_out: 32 });

/// Which program saw the packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Entry {
    /// `gw_xdp_ingress`.
    Xdp = 0,
    /// `gw_tc_ingress`.
    Tc = 1,
}

impl Entry {
    /// Both entries.
    pub const ALL: [Self; 2] = [Self::Xdp, Self::Tc];

    /// Index in `gw_counters` of an outcome at this entry.
    pub const fn index(self, outcome: Outcome) -> u32 {
        self as u32 * Outcome::CAPACITY + outcome as u32
    }

    /// The name in metrics and in `gatewayd status`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Tc => "tc",
        }
    }
}

macro_rules! outcomes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $number:literal, $name:literal, $drop:literal;)+) => {
        /// How a packet left, one number each. Append only: a retired number keeps its name.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[repr(u32)]
        pub enum Outcome { $($(#[doc = $doc])+ $variant = $number,)+ }

        impl Outcome {
            /// Every outcome, by number.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name in metrics and in `gatewayd status`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Whether the packet was dropped for this reason.
            pub const fn is_drop(self) -> bool {
                match self { $(Self::$variant => $drop,)+ }
            }
        }
    };
}

outcomes! {
    /// Not ours: passed on untouched.
    Foreign = 0, "foreign", false;
    /// Sent to a backend.
    Forwarded = 1, "forwarded", false;
    /// A backend's packet, sent to the client.
    Replied = 2, "replied", false;
    /// Left untouched by XDP for the TC program of the same device to finish.
    LeftToTc = 3, "left_to_tc", false;
    /// Refused because the slot is a refused share: answered with a reset or port unreachable.
    Refused = 4, "refused", false;
    /// Its backend was removed: answered with a reset or port unreachable.
    BackendGone = 5, "backend_gone", false;
    /// TCP, neither a SYN nor of a known flow: answered with a reset.
    NoFlow = 6, "no_flow", false;
    /// No NAT port is free towards the backend: answered with a reset or port unreachable.
    NatPortsExhausted = 7, "nat_ports_exhausted", false;
    /// Another flow has taken this flow's NAT port after its reply entry was evicted: answered with a reset.
    NatPortLost = 8, "nat_port_lost", false;
    /// Dropped: a header is cut short or contradicts itself.
    Malformed = 9, "malformed", true;
    /// Dropped: the first fragment of a datagram to a service. (Later ones cannot be told apart: they pass.)
    Fragment = 10, "fragment", true;
    /// Dropped: TTL or hop limit was used up.
    TtlExpired = 11, "ttl_expired", true;
    /// Dropped: no route to where the packet must go.
    NoRoute = 12, "no_route", true;
    /// Dropped: larger than the MTU on the way out. Nothing is fragmented here, and the sender is not told.
    TooBig = 13, "too_big", true;
    /// Dropped: a map would not take a new entry.
    MapFull = 14, "map_full", true;
    /// Dropped: a RST or an ICMP error must not be answered with another.
    Unanswerable = 15, "unanswerable", true;
    /// Dropped: a helper refused to change or send the packet.
    HelperFailed = 16, "helper_failed", true;
}

impl Outcome {
    /// Room in `gw_counters` for each entry, so that a new outcome does not change the map.
    pub const CAPACITY: u32 = 64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_numbered_by_position() {
        for (position, outcome) in Outcome::ALL.iter().enumerate() {
            assert_eq!(*outcome as usize, position);
        }
        assert!(Outcome::ALL.len() <= Outcome::CAPACITY as usize);
    }
}
