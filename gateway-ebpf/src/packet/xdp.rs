//! A packet in XDP: bytes in memory, checksums finished.

use aya_ebpf::{
    bindings::{xdp_action, xdp_md},
    helpers::generated,
    programs::XdpContext,
};
use gateway_common::{
    Entry, Outcome,
    csum::Delta,
    device_flags::{XDP_TRANSMIT, XDP_TX},
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{ChecksumField, MAX_OFFSET, Packet, tags_within, write_addresses};
use crate::{
    family::{V4, V6},
    kernel::{Fib, FibResult},
    maps, verdict,
};

/// The next hop: its link-layer address and ours.
#[derive(Default)]
pub(crate) struct Way {
    device: u32,
    destination: [u8; 6],
    source: [u8; 6],
}

/// A packet in XDP.
#[derive(Clone, Copy)]
pub(crate) struct Xdp {
    context: *mut xdp_md,
}

impl Xdp {
    #[inline(always)]
    pub(crate) fn new(context: &XdpContext) -> Self {
        Self { context: context.ctx }
    }

    /// Where `size` bytes at `offset` are, when they are all in the linear part.
    #[inline(always)]
    fn bytes(self, offset: u32, size: usize) -> Option<*mut u8> {
        let offset = opaque(offset as usize);
        if offset > MAX_OFFSET as usize {
            return None;
        }
        let context = XdpContext::new(self.context);
        let start = context.data() + offset;
        (start + size <= context.data_end()).then_some(start as *mut u8)
    }

    /// Bytes in the linear part.
    #[inline(always)]
    fn linear_length(self) -> u32 {
        let context = XdpContext::new(self.context);
        (context.data_end() - context.data()) as u32
    }

    /// Whether the device transmits what XDP gives it.
    #[inline(always)]
    fn transmits(self, device: u32) -> bool {
        let wanted = if device == self.device() { XDP_TRANSMIT | XDP_TX } else { XDP_TRANSMIT };
        maps::device_flags(device) & wanted != 0
    }

    /// Sends the packet out by a device that [transmits](Self::transmits).
    #[inline(always)]
    fn transmit(self, device: u32) -> Result<u32, Outcome> {
        if device == self.device() && maps::device_flags(device) & XDP_TX != 0 {
            return Ok(xdp_action::XDP_TX);
        }
        // SAFETY: the helper takes two numbers.
        let code = unsafe { generated::bpf_redirect(device, 0) };
        if code == i64::from(xdp_action::XDP_REDIRECT) { Ok(code as u32) } else { Err(Outcome::HelperFailed) }
    }

    /// Whether the packet has more than its linear part, which not every device transmits.
    #[inline(always)]
    fn has_fragments(self) -> bool {
        self.length() != self.linear_length()
    }
}

/// The data path of IPv4.
///
/// A global function: the verifier proves it once for any argument, and not once for every way to its call.
#[inline(never)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn gw_xdp_ipv4(context: *mut xdp_md, link: u64) -> u32 {
    verdict::finish::<Xdp, V4>(Xdp { context }, link)
}

/// The data path of IPv6, as [`gw_xdp_ipv4`].
#[inline(never)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn gw_xdp_ipv6(context: *mut xdp_md, link: u64) -> u32 {
    verdict::finish::<Xdp, V6>(Xdp { context }, link)
}

/// The same number, of which the compiler knows nothing.
///
/// Else it may widen a 32-bit offset once for the check and again for the use, and the verifier (Linux 6.18) does not
/// see that what was checked is what is used.
#[inline(always)]
fn opaque(mut number: usize) -> usize {
    // SAFETY: moves a register to itself. (Without an instruction, two lines of source would begin at one.)
    unsafe {
        core::arch::asm!("{0} = {0}", inout(reg) number, options(pure, nomem, nostack, preserves_flags));
    };
    number
}

impl Packet for Xdp {
    const ENTRY: Entry = Entry::Xdp;
    const PASS: u32 = xdp_action::XDP_PASS;
    const DROP: u32 = xdp_action::XDP_DROP;

    #[inline(always)]
    fn steer_ipv4(self, link: u64) -> u32 {
        gw_xdp_ipv4(self.context, link)
    }

    #[inline(always)]
    fn steer_ipv6(self, link: u64) -> u32 {
        gw_xdp_ipv6(self.context, link)
    }

    #[inline(always)]
    fn length(self) -> u32 {
        // SAFETY: the context is the one that the program was given.
        let length = unsafe { generated::bpf_xdp_get_buff_len(self.context) };
        length as u32
    }

    #[inline(always)]
    fn device(self) -> u32 {
        XdpContext::new(self.context).ingress_ifindex() as u32
    }

    #[inline(always)]
    fn context(self) -> *mut core::ffi::c_void {
        self.context.cast()
    }

    #[inline(always)]
    fn is_for_this_host(self) -> bool {
        let destination: Option<[u8; 6]> = self.read(0);
        maps::device(self.device()).is_some_and(|device| destination == Some(device.address))
    }

    #[inline(always)]
    fn tags_beside(self) -> u8 {
        0
    }

    #[inline(always)]
    fn segment_size(self) -> u32 {
        0
    }

    #[inline(always)]
    fn read<T: FromBytes + Copy>(self, offset: u32) -> Option<T> {
        let bytes = self.bytes(offset, size_of::<T>())?;
        // SAFETY: `bytes` found that many bytes there, and any bytes are a `T`.
        Some(unsafe { bytes.cast::<T>().read_unaligned() })
    }

    #[inline(always)]
    fn write<T: IntoBytes + Immutable>(self, offset: u32, value: &T) -> Result<(), Outcome> {
        let bytes = self.bytes(offset, size_of::<T>()).ok_or(Outcome::HelperFailed)?;
        let from = core::ptr::from_ref(value).cast::<u8>();
        // SAFETY: `bytes` found room for a `T`, which has no padding, and `value` is not in the packet.
        unsafe { core::ptr::copy_nonoverlapping(from, bytes, size_of::<T>()) };
        Ok(())
    }

    #[inline(always)]
    fn write_balanced<T: IntoBytes + Immutable>(self, offset: u32, value: &T) -> Result<(), Outcome> {
        self.write(offset, value)
    }

    #[inline(always)]
    fn update_checksum(self, field: ChecksumField, addresses: Delta, ports: Delta) -> Result<(), Outcome> {
        let old: u16 = self.read(field.offset).ok_or(Outcome::HelperFailed)?;
        let delta = addresses.and(ports);
        let new = if field.udp { delta.apply_udp(old) } else { delta.apply(old) };
        self.write(field.offset, &new)
    }

    #[inline(always)]
    fn has_partial_checksum(self, _offset: u32) -> bool {
        false
    }

    type Way = Way;

    #[inline(always)]
    fn way(self, tags: u8, fib: &Fib, result: FibResult) -> Result<Way, Outcome> {
        // Tags end here, and taking them off is the kernel's business.
        let finishes =
            result == FibResult::Resolved && tags == 0 && self.transmits(fib.device) && !self.has_fragments();
        if !finishes {
            return Err(Outcome::LeftToTc);
        }
        Ok(Way { device: fib.device, destination: fib.destination_mac, source: fib.source_mac })
    }

    #[inline(always)]
    fn send(self, _tags: u8, way: &Way) -> Result<u32, Outcome> {
        write_addresses(self, way.destination, way.source)?;
        self.transmit(way.device)
    }

    #[inline(always)]
    fn can_answer(self) -> Result<(), Outcome> {
        if self.transmits(self.device()) && !self.has_fragments() { Ok(()) } else { Err(Outcome::LeftToTc) }
    }

    #[inline(always)]
    fn truncate(self, length: u32) -> Result<(), Outcome> {
        let change = length.wrapping_sub(self.length()).cast_signed();
        // SAFETY: the context is the one that the program was given; no pointer into the packet is kept.
        let code = unsafe { generated::bpf_xdp_adjust_tail(self.context, change) };
        if code == 0 { Ok(()) } else { Err(Outcome::HelperFailed) }
    }

    #[inline(always)]
    fn shift(self, link: u32, room: i32) -> Result<(), Outcome> {
        let ethernet: [u8; 14] = self.read(0).ok_or(Outcome::HelperFailed)?;
        let tags: [[u8; 4]; 2] = [self.read(14).unwrap_or_default(), self.read(18).unwrap_or_default()];
        // SAFETY: the context is the one that the program was given; no pointer into the packet is kept.
        let code = unsafe { generated::bpf_xdp_adjust_head(self.context, -room) };
        if code != 0 {
            return Err(Outcome::HelperFailed);
        }
        self.write(0, &ethernet)?;
        if tags_within(link) > 0 {
            self.write(14, &tags[0])?;
        }
        if tags_within(link) > 1 {
            self.write(18, &tags[1])?;
        }
        Ok(())
    }

    #[inline(always)]
    fn send_back(self) -> Result<u32, Outcome> {
        self.transmit(self.device())
    }
}
