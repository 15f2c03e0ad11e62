//! The helpers that are not about one packet: time, chance, routes.

use aya_ebpf::{
    bindings::{
        BPF_FIB_LKUP_RET_FRAG_NEEDED, BPF_FIB_LKUP_RET_NO_NEIGH, BPF_FIB_LKUP_RET_SUCCESS, bpf_fib_lookup,
    },
    helpers::generated,
};
use gateway_common::TICK_SHIFT;

/// Parameters and result of a lookup in the kernel's routing tables.
///
/// # Layout
/// That of `struct bpf_fib_lookup`, its unions given the one meaning that is used here.
#[repr(C)]
pub(crate) struct Fib {
    pub(crate) family: u8,
    pub(crate) protocol: u8,
    pub(crate) ports: [u16; 2],
    /// Length of the IP packet, host order, for the MTU check.
    pub(crate) length: u16,
    /// In: where the packet came from. Out: where it goes.
    pub(crate) device: u32,
    pub(crate) flow_info: u32,
    /// IPv4 in the first word.
    pub(crate) source: [u32; 4],
    /// In: the destination. Out: the next hop, whose family is `family`.
    pub(crate) destination: [u32; 4],
    pub(crate) vlan: [u16; 2],
    pub(crate) source_mac: [u8; 6],
    pub(crate) destination_mac: [u8; 6],
}

const _: () = assert!(size_of::<Fib>() == size_of::<bpf_fib_lookup>());

/// What the routing tables say.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum FibResult {
    /// There is a way, and the MAC addresses are known.
    Resolved,
    /// There is a way; the next hop's MAC address is not known yet.
    Unresolved,
    /// There is a way, and the packet is larger than its MTU.
    TooBig,
    /// There is no way, or it is not for us to forward.
    None,
}

impl Fib {
    /// Looks the way up, as if the packet of this context had these addresses.
    ///
    /// # Source
    /// `bpf_fib_lookup` in bpf-helpers(7): policy rules, routes, neighbour, MTU.
    #[inline(always)]
    pub(crate) fn lookup(&mut self, context: *mut core::ffi::c_void) -> FibResult {
        let parameters = core::ptr::from_mut(self).cast();
        // SAFETY: the context is the program's own, and `self` is as large as `bpf_fib_lookup`, asserted above.
        let code = unsafe { generated::bpf_fib_lookup(context, parameters, size_of::<Self>() as i32, 0) };
        match u32::try_from(code) {
            Ok(BPF_FIB_LKUP_RET_SUCCESS) => FibResult::Resolved,
            Ok(BPF_FIB_LKUP_RET_NO_NEIGH) => FibResult::Unresolved,
            Ok(BPF_FIB_LKUP_RET_FRAG_NEEDED) => FibResult::TooBig,
            _ => FibResult::None,
        }
    }
}

/// Now, in ticks of the coarse monotonic clock.
#[inline(always)]
pub(crate) fn tick() -> u32 {
    // SAFETY: the helper takes nothing and may be called anywhere.
    let now = unsafe { generated::bpf_ktime_get_coarse_ns() };
    (now >> TICK_SHIFT) as u32
}

/// A random number, not for secrets.
#[inline(always)]
pub(crate) fn random() -> u32 {
    // SAFETY: the helper takes nothing and may be called anywhere.
    unsafe { generated::bpf_get_prandom_u32() }
}

/// Ticks since something was seen; none when another CPU has just seen it.
#[inline(always)]
pub(crate) const fn age(now: u32, seen: u32) -> u32 {
    now.saturating_sub(seen)
}
