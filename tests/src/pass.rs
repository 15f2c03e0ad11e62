//! An XDP program that passes everything, for the far end of a link whose near end stands for a NIC.
//!
//! A veth keeps what its peer sends by `XDP_TX` until the peer has an XDP program of its own: GRO, which is enough
//! for redirects, is not enough for that (`veth_xdp_flush` in drivers/net/veth.c, seen on Linux 6.18).

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use anyhow::{Context as _, Result};

use crate::netns::Netns;

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;

/// `r0 = XDP_PASS; exit`, each instruction as the kernel takes it.
static PASS: [u64; 2] = [0x0000_0002_0000_00b7, 0x0000_0000_0000_0095];

static LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";

/// The beginning of `union bpf_attr` for loading a program; what follows is zero.
#[repr(C)]
struct Load {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
}

/// The beginning of `union bpf_attr` for attaching one; what follows is zero.
#[repr(C)]
struct Attach {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
}

/// Attaches the program to an interface of `netns` for as long as the returned file is open.
///
/// # Errors
/// When the driver has no XDP.
///
/// # Kernel
/// 5.9: links for XDP.
pub fn attach(netns: &Netns, interface: &str) -> Result<OwnedFd> {
    let load = Load {
        kind: BPF_PROG_TYPE_XDP,
        instruction_count: 2,
        instructions: PASS.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
    };
    let program = bpf(BPF_PROG_LOAD, &load).context("load a passing XDP program")?;
    let name = CString::new(interface)?;
    netns
        .run(|| {
            // SAFETY: `name` ends in a zero and lives until the call returns.
            let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
            let program = u32::try_from(program.as_raw_fd())?;
            let attach = Attach { program, interface: index, kind: BPF_XDP, flags: 0 };
            bpf(BPF_LINK_CREATE, &attach).map_err(anyhow::Error::from)
        })
        .with_context(|| format!("attach a passing XDP program to {interface}"))
}

/// One bpf(2) that returns a file.
fn bpf<T>(command: libc::c_int, attributes: &T) -> std::io::Result<OwnedFd> {
    let size = size_of::<T>();
    // SAFETY: the kernel reads `size` bytes of `attributes`; what they point to is static.
    let file = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size) };
    match i32::try_from(file) {
        // SAFETY: the kernel has just opened it for us, and nobody else knows it.
        Ok(file) if file >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(file) }),
        _ => Err(std::io::Error::last_os_error()),
    }
}
