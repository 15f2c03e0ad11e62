//! A packet in TC: an skb, perhaps of many segments, perhaps with a checksum that a device is to complete.

use aya_ebpf::{
    bindings::{
        __sk_buff, BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR, BPF_F_RECOMPUTE_CSUM, TC_ACT_REDIRECT,
        TC_ACT_SHOT, TC_ACT_UNSPEC, bpf_adj_room_mode::BPF_ADJ_ROOM_MAC, bpf_redir_neigh,
    },
    helpers::generated,
    programs::TcContext,
};
use gateway_common::{Entry, Outcome, csum::Delta};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{ChecksumField, Packet};
use crate::{
    family::{V4, V6},
    kernel::{Fib, FibResult},
    verdict,
};

/// The next hop, by its address: the kernel resolves it.
#[derive(Default)]
pub(crate) struct Way {
    device: u32,
    next: NextHop,
}

/// `skb->pkt_type`: the link-layer destination is another host's.
const PACKET_OTHERHOST: u32 = 3;

/// Tells `bpf_l4_csum_replace` that no header checksum makes up for a change of addresses (Linux 6.16).
const BPF_F_IPV6: u64 = 1 << 7;

/// A packet in TC.
#[derive(Clone, Copy)]
pub(crate) struct Tc {
    skb: *mut __sk_buff,
}

/// Next hop, as `bpf_redirect_neigh` takes it.
///
/// # Layout
/// That of `struct bpf_redir_neigh`.
#[derive(Default)]
#[repr(C)]
struct NextHop {
    family: u32,
    address: [u32; 4],
}

const _: () = assert!(size_of::<NextHop>() == size_of::<bpf_redir_neigh>());

/// Makes a field of `struct __sk_buff` readable.
macro_rules! skb_field {
    ($name:ident) => {
        #[inline(always)]
        fn $name(self) -> u32 {
            // SAFETY: the context is the one that the program was given; the verifier turns this into the skb's field.
            unsafe { core::ptr::addr_of!((*self.skb).$name).read_volatile() }
        }
    };
}

impl Tc {
    #[inline(always)]
    pub(crate) fn new(context: &TcContext) -> Self {
        Self { skb: context.skb.skb }
    }

    skb_field!(len);
    skb_field!(ifindex);
    skb_field!(pkt_type);
    skb_field!(vlan_present);
    skb_field!(gso_size);

    #[inline(always)]
    fn store<T: IntoBytes + Immutable>(self, offset: u32, value: &T, flags: u64) -> Result<(), Outcome> {
        let bytes = core::ptr::from_ref(value).cast();
        // SAFETY: `value` has that many bytes and no padding; the helper checks the offset.
        let code =
            unsafe { generated::bpf_skb_store_bytes(self.skb, offset, bytes, size_of::<T>() as u32, flags) };
        done(code)
    }

    #[inline(always)]
    fn add_to_checksum(self, offset: u32, delta: Delta, flags: u64) -> Result<(), Outcome> {
        // SAFETY: the helper checks the offset.
        done(unsafe { generated::bpf_l4_csum_replace(self.skb, offset, 0, delta.sum().into(), flags) })
    }

    /// Takes all VLAN tags off, those beside the packet first.
    #[inline(always)]
    fn pop_tags(self, count: u8) -> Result<(), Outcome> {
        for tag in 0..crate::parse::MAX_TAGS {
            if tag < count {
                // SAFETY: the context is the one that the program was given; no pointer into the packet is kept.
                done(unsafe { generated::bpf_skb_vlan_pop(self.skb) })?;
            }
        }
        Ok(())
    }
}

/// Success of a helper.
#[inline(always)]
const fn done(code: i64) -> Result<(), Outcome> {
    if code == 0 { Ok(()) } else { Err(Outcome::HelperFailed) }
}

/// Success of a helper that redirects.
#[inline(always)]
fn redirected(code: i64) -> Result<u32, Outcome> {
    if code == i64::from(TC_ACT_REDIRECT) { Ok(code as u32) } else { Err(Outcome::HelperFailed) }
}

/// The data path of IPv4.
///
/// A global function: the verifier proves it once for any argument, and not once for every way to its call.
#[inline(never)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn gw_tc_ipv4(skb: *mut __sk_buff, link: u64) -> u32 {
    verdict::finish::<Tc, V4>(Tc { skb }, link)
}

/// The data path of IPv6, as [`gw_tc_ipv4`].
#[inline(never)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn gw_tc_ipv6(skb: *mut __sk_buff, link: u64) -> u32 {
    verdict::finish::<Tc, V6>(Tc { skb }, link)
}

impl Packet for Tc {
    const ENTRY: Entry = Entry::Tc;
    // Not "OK", which would keep other programs on the device from seeing what is not ours.
    const PASS: u32 = TC_ACT_UNSPEC.cast_unsigned();
    const DROP: u32 = TC_ACT_SHOT.cast_unsigned();

    #[inline(always)]
    fn steer_ipv4(self, link: u64) -> u32 {
        gw_tc_ipv4(self.skb, link)
    }

    #[inline(always)]
    fn steer_ipv6(self, link: u64) -> u32 {
        gw_tc_ipv6(self.skb, link)
    }

    #[inline(always)]
    fn length(self) -> u32 {
        self.len()
    }

    #[inline(always)]
    fn device(self) -> u32 {
        self.ifindex()
    }

    #[inline(always)]
    fn context(self) -> *mut core::ffi::c_void {
        self.skb.cast()
    }

    #[inline(always)]
    fn is_for_this_host(self) -> bool {
        self.pkt_type() != PACKET_OTHERHOST
    }

    #[inline(always)]
    fn tags_beside(self) -> u8 {
        u8::from(self.vlan_present() != 0)
    }

    #[inline(always)]
    fn segment_size(self) -> u32 {
        self.gso_size()
    }

    #[inline(always)]
    fn read<T: FromBytes + Copy>(self, offset: u32) -> Option<T> {
        let mut value = core::mem::MaybeUninit::<T>::uninit();
        let to = value.as_mut_ptr().cast();
        // SAFETY: there is room for that many bytes; the helper checks the offset.
        let code =
            unsafe { generated::bpf_skb_load_bytes(self.skb.cast(), offset, to, size_of::<T>() as u32) };
        if code != 0 {
            return None;
        }
        // SAFETY: the helper succeeded, so it wrote all bytes, and any bytes are a `T`.
        Some(unsafe { value.assume_init() })
    }

    #[inline(always)]
    fn write<T: IntoBytes + Immutable>(self, offset: u32, value: &T) -> Result<(), Outcome> {
        self.store(offset, value, BPF_F_RECOMPUTE_CSUM.into())
    }

    #[inline(always)]
    fn write_balanced<T: IntoBytes + Immutable>(self, offset: u32, value: &T) -> Result<(), Outcome> {
        self.store(offset, value, 0)
    }

    #[inline(always)]
    fn update_checksum(self, field: ChecksumField, addresses: Delta, ports: Delta) -> Result<(), Outcome> {
        let zero = if field.udp { u64::from(BPF_F_MARK_MANGLED_0) } else { 0 };
        let pseudo = zero | u64::from(BPF_F_PSEUDO_HDR);
        if !field.ipv6 {
            self.add_to_checksum(field.offset, addresses, pseudo)?;
        } else if self.add_to_checksum(field.offset, addresses, pseudo | BPF_F_IPV6).is_err() {
            // An older kernel: without the flag a sum that the device computed is off, and is computed again.
            self.add_to_checksum(field.offset, addresses, pseudo)?;
        }
        self.add_to_checksum(field.offset, ports, zero)
    }

    /// Asks by trying: the kernel leaves a partial checksum alone when bytes under it change.
    #[inline(always)]
    fn has_partial_checksum(self, offset: u32) -> bool {
        let Some(before) = self.read::<u16>(offset) else { return false };
        let one = Delta::NONE.word16(0xffff, 1);
        if self.add_to_checksum(offset, one, 0).is_err() || self.read(offset) == Some(before) {
            return true;
        }
        // Not partial: put back what was there.
        self.store(offset, &before, 0).is_err()
    }

    type Way = Way;

    #[inline(always)]
    fn way(self, _tags: u8, fib: &Fib, result: FibResult) -> Result<Way, Outcome> {
        match result {
            FibResult::Resolved | FibResult::Unresolved => {
                let next = NextHop { family: fib.family.into(), address: fib.destination };
                Ok(Way { device: fib.device, next })
            }
            FibResult::TooBig => Err(Outcome::TooBig),
            FibResult::None => Err(Outcome::NoRoute),
        }
    }

    #[inline(always)]
    fn send(self, tags: u8, way: &Way) -> Result<u32, Outcome> {
        // A way out with a tag is a VLAN device's, which puts its own.
        if tags != 0 {
            self.pop_tags(tags)?;
        }
        let parameters = core::ptr::from_ref(&way.next).cast_mut().cast();
        // SAFETY: `next` is as large as `bpf_redir_neigh`, asserted above, and the helper only reads it.
        let code =
            unsafe { generated::bpf_redirect_neigh(way.device, parameters, size_of::<NextHop>() as i32, 0) };
        redirected(code)
    }

    #[inline(always)]
    fn can_answer(self) -> Result<(), Outcome> {
        Ok(())
    }

    #[inline(always)]
    fn truncate(self, length: u32) -> Result<(), Outcome> {
        // SAFETY: the context is the one that the program was given; no pointer into the packet is kept.
        done(unsafe { generated::bpf_skb_change_tail(self.skb, length, 0) })
    }

    #[inline(always)]
    fn shift(self, _link: u32, room: i32) -> Result<(), Outcome> {
        // SAFETY: the context is the one that the program was given; no pointer into the packet is kept.
        done(unsafe { generated::bpf_skb_adjust_room(self.skb, room, BPF_ADJ_ROOM_MAC, 0) })
    }

    #[inline(always)]
    fn send_back(self) -> Result<u32, Outcome> {
        // SAFETY: the helper takes two numbers.
        redirected(unsafe { generated::bpf_redirect(self.device(), 0) })
    }
}
