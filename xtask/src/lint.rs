//! `lint`: everything that can be said of the sources without running them.

use std::path::Path;

use anyhow::Result;
use clap::Args;

use crate::bpf::Toolchain;
use crate::test::CLUSTER;
use crate::{build, exec, setup, tidy};

/// Options of `lint`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Also check dependencies against the advisory database, which is fetched.
    #[arg(long)]
    advisories: bool,
}

pub(crate) fn run(options: &Options, root: &Path) -> Result<()> {
    setup::run(&setup::Options { lint: true }, root)?;
    let toolchain = setup::toolchain(root)?;
    step("format");
    exec::exec(exec::cargo(root).args(["fmt", "--all", "--check"]))?;
    step("house rules");
    tidy::run(root)?;
    // The daemon embeds the object, so there must be one before the daemon can be checked.
    build::kernel_programs(&toolchain, root)?;
    step("clippy, host");
    let mut clippy = exec::cargo(root);
    clippy.args(["clippy", "--quiet", "--all-targets", "--features", CLUSTER]).args(["--", "-Dwarnings"]);
    exec::exec(&mut clippy)?;
    kernel_clippy(&toolchain, root)?;
    step("licences, bans, sources");
    let mut deny = exec::cargo(root);
    deny.args(["deny", "--log-level", "error", "check", "licenses", "bans", "sources"]);
    if options.advisories {
        deny.arg("advisories");
    }
    exec::exec(&mut deny)?;
    step("docs");
    let mut doc = exec::cargo(root);
    exec::exec(doc.env("RUSTDOCFLAGS", "-Dwarnings").args([
        "doc",
        "--quiet",
        "--no-deps",
        "--document-private-items",
        "--features",
        CLUSTER,
    ]))
}

/// Apart from the host's: one invocation for both would unify features, and std's panic handler would meet ours.
fn kernel_clippy(toolchain: &Toolchain, root: &Path) -> Result<()> {
    let package = ["--quiet", "--package", "gateway-ebpf"];
    if toolchain.compiler.has_clippy() {
        step("clippy, kernel programs");
        return exec::exec(toolchain.cargo(root, "clippy").args(package).args(["--", "-Dwarnings"]));
    }
    step("check, kernel programs (their compiler has no clippy here)");
    exec::exec(toolchain.cargo(root, "check").args(package))
}

fn step(name: &str) {
    println!("lint: {name}");
}
