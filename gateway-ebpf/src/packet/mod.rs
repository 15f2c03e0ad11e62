//! Access to one packet: what XDP and TC do differently, and nothing else.
//!
//! Reads copy out and every access finds the packet anew from the program's context, so no pointer into it outlives
//! a helper that moves it. These files are the only ones that know where the bytes are.
//!
//! Not here: what the bytes mean (parse, rewrite, answer).

mod tc;
mod xdp;

use gateway_common::{Entry, Outcome, csum::Delta};
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub(crate) use self::{tc::Tc, xdp::Xdp};
use crate::{
    kernel::{Fib, FibResult},
    parse::ETHERNET,
};

/// No header that we read begins further from the start of the packet. The verifier wants a bound.
pub(crate) const MAX_OFFSET: u32 = 1_023;

/// Where the L4 checksum is and how it counts.
#[derive(Clone, Copy)]
pub(crate) struct ChecksumField {
    /// From the start of the packet.
    pub(crate) offset: u32,
    /// UDP: zero means "none".
    pub(crate) udp: bool,
    /// Over IPv6, where no header checksum makes up for changed addresses.
    pub(crate) ipv6: bool,
}

/// A packet at the entry of a program.
pub(crate) trait Packet: Copy {
    /// Which counters are this program's.
    const ENTRY: Entry;
    /// Return code that passes the packet on.
    const PASS: u32;
    /// Return code that drops it.
    const DROP: u32;

    /// Carries an IPv4 packet on, by a function that the verifier takes for itself; `link` is a packed
    /// [`Link`](crate::parse::Link).
    fn steer_ipv4(self, link: u64) -> u32;

    /// Carries an IPv6 packet on.
    fn steer_ipv6(self, link: u64) -> u32;

    /// Length of the packet in bytes from the Ethernet header on, padding included.
    fn length(self) -> u32;

    /// Index of the device it came in on.
    fn device(self) -> u32;

    /// The program's context, for helpers that are not about the packet's bytes.
    fn context(self) -> *mut core::ffi::c_void;

    /// Whether it was sent to this node, as far as the device has told.
    fn is_for_this_host(self) -> bool;

    /// VLAN tags that the device took out of the bytes and keeps beside them.
    fn tags_beside(self) -> u8;

    /// Payload bytes of each segment that the kernel will cut this packet into; zero when it is one already.
    fn segment_size(self) -> u32;

    /// Copies bytes out, when they are all there.
    fn read<T: FromBytes + Copy>(self, offset: u32) -> Option<T>;

    /// Overwrites bytes.
    fn write<T: IntoBytes + Immutable>(self, offset: u32, value: &T) -> Result<(), Outcome>;

    /// Overwrites bytes under an L4 checksum that changes by the opposite amount elsewhere.
    fn write_balanced<T: IntoBytes + Immutable>(self, offset: u32, value: &T) -> Result<(), Outcome>;

    /// Updates the L4 checksum: for addresses, which are in the pseudo-header, and for ports, which are in the bytes.
    fn update_checksum(self, field: ChecksumField, addresses: Delta, ports: Delta) -> Result<(), Outcome>;

    /// Whether the L4 checksum covers the pseudo-header alone, and a device is to complete it.
    fn has_partial_checksum(self, offset: u32) -> bool;

    /// What of a route this program needs to send along it.
    type Way: Default;

    /// Whether this program can send a packet with so many VLAN tags along a route; decided before a byte is written.
    fn way(self, tags: u8, fib: &Fib, result: FibResult) -> Result<Self::Way, Outcome>;

    /// Sends along a route.
    fn send(self, tags: u8, way: &Self::Way) -> Result<u32, Outcome>;

    /// Whether this program can send something back out of the device it came from.
    fn can_answer(self) -> Result<(), Outcome>;

    /// Cuts the packet to a length.
    fn truncate(self, length: u32) -> Result<(), Outcome>;

    /// Makes (or takes, when negative) room between the link-layer header, which ends at `link`, and what follows.
    fn shift(self, link: u32, room: i32) -> Result<(), Outcome>;

    /// Sends back out of the device it came from, link-layer addresses as they are.
    fn send_back(self) -> Result<u32, Outcome>;
}

/// Writes the link-layer addresses.
#[inline(always)]
pub(crate) fn write_addresses<P: Packet>(
    packet: P,
    destination: [u8; 6],
    source: [u8; 6],
) -> Result<(), Outcome> {
    packet.write(0, &[destination, source])
}

/// Swaps the link-layer addresses.
#[inline(always)]
pub(crate) fn swap_addresses<P: Packet>(packet: P) -> Result<(), Outcome> {
    let [destination, source]: [[u8; 6]; 2] = packet.read(0).ok_or(Outcome::HelperFailed)?;
    write_addresses(packet, source, destination)
}

/// Bytes of VLAN tags before the network header at `link`.
const fn tags_within(link: u32) -> u32 {
    link.saturating_sub(ETHERNET) / 4
}
