//! `build`: the kernel programs for the BPF target, then the daemon that embeds them and the lab.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;

use crate::bpf::{self, Toolchain};
use crate::exec;
use crate::setup;

/// Options of `build`.
#[derive(Args, Debug, Default)]
// Flattened into the options of other tasks, whose group has the same name.
#[group(skip)]
pub(crate) struct Options {
    /// Optimised binaries of the daemon and the lab; the kernel programs always are.
    #[arg(long)]
    pub release: bool,
}

pub(crate) fn run(options: &Options, root: &Path) -> Result<()> {
    let toolchain = setup::toolchain(root)?;
    kernel_programs(&toolchain, root)?;
    let mut host = exec::cargo(root);
    host.args(["build", "--quiet", "--package", "gateway-daemon", "--package", "gateway-tests", "--bins"]);
    if options.release {
        host.arg("--release");
    }
    exec::exec(&mut host)
}

/// Builds the kernel programs to `target/bpf/gateway-ebpf`, where the daemon's build script finds them.
///
/// Cargo decides whether anything is compiled; the object is replaced only when it differs, so that the daemon is
/// built again only then.
pub(crate) fn kernel_programs(toolchain: &Toolchain, root: &Path) -> Result<()> {
    exec::exec(toolchain.cargo(root, "build").args(["--quiet", "--package", "gateway-ebpf"]))?;
    let dir = exec::target_dir(root).join("bpf");
    let built = dir.join("cargo").join(bpf::TARGET).join("release/gateway-ebpf");
    let object = dir.join("gateway-ebpf");
    let new = fs::read(&built).with_context(|| format!("read {}", built.display()))?;
    if fs::read(&object).is_ok_and(|old| old == new) {
        return Ok(());
    }
    fs::write(&object, new).with_context(|| format!("write {}", object.display()))
}

/// Where `build` left a binary of this name.
pub(crate) fn binary(root: &Path, options: &Options, name: &str) -> PathBuf {
    exec::target_dir(root).join(if options.release { "release" } else { "debug" }).join(name)
}
