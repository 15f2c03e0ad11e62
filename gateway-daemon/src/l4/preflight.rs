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
    // Mounting bpffs and reading map ids take CAP_SYS_ADMIN, which includes CAP_BPF and CAP_PERFMON.
    for (needed, missing) in
        [(CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN"), (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN")]
    {
        if !held.contains(needed) {
            return Err(Error::NotPrivileged { missing });
        }
    }
    Ok(())
}
