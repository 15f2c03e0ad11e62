//! Whether this process may, and this kernel can, do what gatewayd needs.

use aya::util::KernelVersion;
use rustix::thread::{CapabilitySet, capabilities};

use super::error::Error;

/// Says in a plain sentence what is missing, before a system call says it with a number.
///
/// # Errors
/// When a capability is missing or the kernel is too old.
pub fn preflight() -> Result<(), Error> {
    if KernelVersion::current().is_ok_and(|version| version < KernelVersion::new(6, 6, 0)) {
        let found = rustix::system::uname().release().to_string_lossy().into_owned();
        return Err(Error::KernelTooOld { found });
    }
    let held = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    // CAP_SYS_ADMIN includes the first two. Only to mount bpffs, where there is none, it is needed itself.
    for (needed, missing) in [
        (CapabilitySet::BPF, "CAP_BPF"),
        (CapabilitySet::PERFMON, "CAP_PERFMON"),
        (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
    ] {
        let included = needed != CapabilitySet::NET_ADMIN && held.contains(CapabilitySet::SYS_ADMIN);
        if !held.contains(needed) && !included {
            return Err(Error::NotPrivileged { missing });
        }
    }
    Ok(())
}
