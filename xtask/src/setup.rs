//! `setup`: finds what building and testing need, and installs what is missing.
//!
//! Quick and silent when nothing is: every other task starts with it. On Debian and Ubuntu one line is said for each
//! thing installed; elsewhere the task stops and says what to install.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use clap::Args;

use crate::bpf::{Compiler, Toolchain};
use crate::exec;
use crate::packages::{Apt, Package};

/// Options of `setup`.
#[derive(Args, Debug, Default)]
pub(crate) struct Options {
    /// Also what `lint` needs: rustfmt, clippy and cargo-deny (built from source: minutes).
    #[arg(long)]
    pub lint: bool,
}

/// Programs of the system, by the package that holds them.
const PROGRAMS: [Package; 4] = [
    Package { name: "gcc", program: "cc", purpose: "compiles the C parts of the TLS library" },
    Package { name: "iproute2", program: "ip", purpose: "lays out the lab's network namespaces" },
    Package { name: "ethtool", program: "ethtool", purpose: "sets the offloads of the lab's interfaces" },
    Package { name: "curl", program: "curl", purpose: "sends the requests that `run` suggests" },
];

/// The linker's version that these sources were built with.
const BPF_LINKER: &str = "0.13.0";

pub(crate) fn run(options: &Options, root: &Path) -> Result<()> {
    let toolchain = toolchain(root)?;
    if options.lint {
        for_lint(&toolchain)?;
    }
    println!("setup: everything needed is here (kernel programs: {:?} compiler)", toolchain.compiler);
    Ok(())
}

/// The toolchain for the kernel programs, with everything else that building and running need in place.
///
/// # Errors
/// When something is missing that cannot be installed; the message says what to install.
pub(crate) fn toolchain(root: &Path) -> Result<Toolchain> {
    programs()?;
    if let Some(toolchain) = Toolchain::find(root)? {
        return Ok(toolchain);
    }
    let Some(apt) = Apt::of_this_system() else {
        bail!("no compiler for kernel programs; {}", by_hand());
    };
    let compiler = install_compiler(&apt)?;
    install_linker(&apt, compiler)?;
    match Toolchain::find(root)? {
        Some(toolchain) => Ok(toolchain),
        None => {
            bail!("{compiler:?} compiler and bpf-linker are installed but make no program; {}", by_hand())
        }
    }
}

fn programs() -> Result<()> {
    let missing: Vec<Package> = PROGRAMS.into_iter().filter(Package::is_missing).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let Some(apt) = Apt::of_this_system() else {
        let list: Vec<String> =
            missing.iter().map(|package| format!("{} ({})", package.program, package.purpose)).collect();
        bail!("please install, by your distribution's means: {}", list.join(", "));
    };
    missing.iter().try_for_each(|package| apt.install(&[package.name], package.purpose))
}

/// A compiler whose LLVM the distribution has as well: the linker is made with it.
fn install_compiler(apt: &Apt) -> Result<Compiler> {
    for compiler in Compiler::present() {
        if apt.offers(&llvm_package(compiler)?)? {
            return Ok(compiler);
        }
    }
    let packages = ["rustc-web", "cargo-web", "libstd-rust-web-dev-bpf"];
    if packages.iter().all(|package| apt.offers(package).unwrap_or(false)) {
        apt.install(&packages, "compile the kernel programs")?;
        return Ok(Compiler::Distribution);
    }
    if exec::find_program("rustup").is_some() {
        println!("installing rustup's nightly with rust-src: compile the kernel programs");
        exec::output(Command::new("rustup").args([
            "toolchain",
            "install",
            "nightly",
            "--profile",
            "minimal",
            "--component",
            "rust-src",
        ]))?;
        if apt.offers(&llvm_package(Compiler::Nightly)?)? {
            return Ok(Compiler::Nightly);
        }
    }
    bail!("this distribution has no compiler and LLVM for kernel programs that match; {}", by_hand())
}

fn install_linker(apt: &Apt, compiler: Compiler) -> Result<()> {
    let llvm = compiler.llvm_major()?;
    let purpose = "build the linker of the kernel programs";
    apt.install(&[&llvm_package(compiler)?, "g++", "zlib1g-dev", "libzstd-dev"], purpose)?;
    println!("installing bpf-linker {BPF_LINKER} with LLVM {llvm} (a minute or two)");
    let mut install = exec::cargo(Path::new("."));
    install
        .env("LLVM_PREFIX", format!("/usr/lib/llvm-{llvm}"))
        .args(["install", "--quiet", "--locked", "--force", "bpf-linker", "--version", BPF_LINKER])
        .args(["--no-default-features", "--features", &format!("llvm-{llvm}")]);
    exec::exec(&mut install)
}

fn llvm_package(compiler: Compiler) -> Result<String> {
    Ok(format!("llvm-{}-dev", compiler.llvm_major()?))
}

fn by_hand() -> String {
    format!(
        "by hand: `rustup toolchain install nightly --component rust-src`, the development files of the LLVM that \
         `rustc +nightly -vV` names (version N), then `LLVM_PREFIX=<where it is> cargo install bpf-linker \
         --version {BPF_LINKER} --no-default-features --features llvm-N`"
    )
}

fn for_lint(toolchain: &Toolchain) -> Result<()> {
    for component in ["rustfmt", "clippy"] {
        let subcommand = if component == "rustfmt" { "fmt" } else { component };
        if exec::find_program(&format!("cargo-{subcommand}")).is_none() {
            println!("installing {component}: lint");
            exec::output(Command::new("rustup").args(["component", "add", component]))?;
        }
    }
    if toolchain.compiler == Compiler::Distribution
        && !toolchain.compiler.has_clippy()
        && let Some(apt) = Apt::of_this_system()
        && apt.offers("rust-web-clippy")?
    {
        apt.install(&["rust-web-clippy"], "lint the kernel programs")?;
    }
    if exec::find_program("cargo-deny").is_none() {
        println!("installing cargo-deny: check licences and sources of dependencies (a few minutes)");
        exec::exec(exec::cargo(Path::new(".")).args(["install", "--quiet", "--locked", "cargo-deny"]))?;
    }
    Ok(())
}
