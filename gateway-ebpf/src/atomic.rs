//! Words that several CPUs write at once.
//!
//! In assembly, because for this target Rust has no atomic operations but loads and stores.

use core::{arch::asm, ptr::NonNull};

/// Sets bits, whatever other CPUs set meanwhile.
///
/// # Safety
/// The word is in a map's value.
#[inline(always)]
pub(crate) unsafe fn set_bits(word: NonNull<u32>, bits: u32) {
    // SAFETY: the instruction changes that word alone; the caller says that it is there.
    unsafe {
        asm!("lock *(u32 *)(r1 + 0) |= w2", in("r1") word.as_ptr(), in("r2") u64::from(bits), options(nostack));
    }
}

/// Replaces a value by another, when it still is what it was; of several CPUs, one does.
///
/// # Safety
/// The word is in a map's value.
#[inline(always)]
pub(crate) unsafe fn replace(word: NonNull<u32>, old: u32, new: u32) -> bool {
    let mut seen = u64::from(old);
    // SAFETY: the instruction changes that word alone; the caller says that it is there.
    unsafe {
        asm!(
            "w0 = cmpxchg32_32(r1 + 0, w0, w2)",
            in("r1") word.as_ptr(),
            in("r2") u64::from(new),
            inout("r0") seen,
            options(nostack)
        );
    }
    seen as u32 == old
}
