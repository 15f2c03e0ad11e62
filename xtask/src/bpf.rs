//! The compiler of the kernel programs: which ones this machine has, and which one really works.
//!
//! The BPF target needs `core` for it, and a linker (`bpf-linker`) made with the LLVM of the same compiler. Two
//! ways lead there: a nightly toolchain of rustup with `rust-src`, which builds `core`; and the distribution's
//! compiler with the `core` it ships. Which one works is tried once, and remembered until a part of it changes.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::exec;

/// The kernel's byte order is the host's.
pub(crate) const TARGET: &str =
    if cfg!(target_endian = "big") { "bpfeb-unknown-none" } else { "bpfel-unknown-none" };

/// The distribution's compiler, by its path: rustup's proxies come first in `PATH`.
const DISTRIBUTION_RUSTC: &str = "/usr/bin/rustc";
const DISTRIBUTION_CARGO: &str = "/usr/bin/cargo";

/// A compiler that has, or can build, `core` for the BPF target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Compiler {
    /// rustup's nightly with `rust-src`.
    Nightly,
    /// The distribution's.
    Distribution,
}

impl Compiler {
    /// The compilers present here, the preferred one first.
    pub(crate) fn present() -> Vec<Self> {
        [Self::Nightly, Self::Distribution].into_iter().filter(|compiler| compiler.has_core()).collect()
    }

    fn has_core(self) -> bool {
        let Ok(sysroot) = exec::output(self.rustc().args(["--print", "sysroot"])) else {
            return false;
        };
        let rustlib = Path::new(sysroot.trim()).join("lib/rustlib");
        match self {
            Self::Nightly => rustlib.join("src/rust/library/core/src/lib.rs").exists(),
            Self::Distribution => rustlib.join(TARGET).exists() && Path::new(DISTRIBUTION_CARGO).exists(),
        }
    }

    /// What the compiler says of itself.
    fn version(self) -> Result<String> {
        exec::output(self.rustc().arg("-vV"))
    }

    /// The LLVM that `bpf-linker` must be made with.
    pub(crate) fn llvm_major(self) -> Result<u32> {
        let version = self.version()?;
        let llvm = version.lines().find_map(|line| line.strip_prefix("LLVM version: "));
        llvm.and_then(|number| number.split('.').next()?.trim().parse().ok())
            .with_context(|| format!("{self:?}'s rustc does not name its LLVM version"))
    }

    /// Whether clippy is there for exactly this compiler.
    pub(crate) fn has_clippy(self) -> bool {
        match self {
            Self::Nightly => {
                exec::output(clean("rustup").args(["run", "nightly", "cargo-clippy", "-V"])).is_ok()
            }
            Self::Distribution => Path::new("/usr/bin/clippy-driver").exists(),
        }
    }

    fn rustc(self) -> Command {
        match self {
            Self::Nightly => {
                let mut command = clean("rustup");
                command.args(["run", "nightly", "rustc"]);
                command
            }
            Self::Distribution => clean(DISTRIBUTION_RUSTC),
        }
    }
}

/// A compiler and a linker that were seen to make a program together.
#[derive(Debug)]
pub(crate) struct Toolchain {
    pub compiler: Compiler,
    linker: PathBuf,
}

impl Toolchain {
    /// The first of the compilers present that makes a program, or nothing.
    pub(crate) fn find(root: &Path) -> Result<Option<Self>> {
        let Some(linker) = exec::find_program("bpf-linker") else {
            return Ok(None);
        };
        for compiler in Compiler::present() {
            let toolchain = Self { compiler, linker: linker.clone() };
            if toolchain.works(root)? {
                return Ok(Some(toolchain));
            }
        }
        Ok(None)
    }

    /// cargo's `subcommand` (`build`, `check`, `clippy`) for the BPF target, in a target folder of its own.
    pub(crate) fn cargo(&self, root: &Path, subcommand: &str) -> Command {
        let mut command = match self.compiler {
            Compiler::Nightly => {
                let mut command = clean("rustup");
                command.args(["run", "nightly", "cargo", subcommand, "-Zbuild-std=core"]);
                command
            }
            Compiler::Distribution => {
                let mut command = clean(DISTRIBUTION_CARGO);
                command.arg(subcommand).env("RUSTC", DISTRIBUTION_RUSTC).env("RUSTC_BOOTSTRAP", "1");
                // `cargo clippy` looks for its driver beside the first `cargo-clippy` of PATH.
                command.env("PATH", path_with_first("/usr/bin"));
                command
            }
        };
        let linker = format!("-Clinker={}", self.linker.display());
        let flags = ["-Cdebuginfo=2", &linker, "-Clink-arg=--btf"];
        command
            .current_dir(root)
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
            .env("CARGO_TARGET_DIR", exec::target_dir(root).join("bpf/cargo"))
            .args(["--release", "--target", TARGET]);
        command
    }

    /// Tries the toolchain on a small program, once for each version of its parts.
    fn works(&self, root: &Path) -> Result<bool> {
        let probe = exec::target_dir(root).join("bpf/probe");
        let linker = exec::output(clean(&self.linker).arg("--version"))?;
        let changed = fs::metadata(&self.linker).and_then(|meta| meta.modified())?;
        let identity = format!(
            "{:?}\n{}{linker}{} {changed:?}\n",
            self.compiler,
            self.compiler.version()?,
            self.linker.display()
        );
        let verdict = probe.join(format!("{:?}", self.compiler).to_lowercase());
        if let Some(works) = remembered(&verdict, &identity) {
            return Ok(works);
        }
        println!("trying the compiler for kernel programs ({:?})", self.compiler);
        write_probe(&probe)?;
        let works = exec::output(&mut self.cargo(&probe, "build")).is_ok();
        fs::write(&verdict, format!("{works}\n{identity}"))?;
        Ok(works)
    }
}

/// The verdict written by an earlier run, if nothing has changed since.
fn remembered(verdict: &Path, identity: &str) -> Option<bool> {
    let text = fs::read_to_string(verdict).ok()?;
    let (works, of) = text.split_once('\n')?;
    if of == identity { works.parse().ok() } else { None }
}

/// The smallest program that uses compiler, `core`, linker and BTF.
fn write_probe(dir: &Path) -> Result<()> {
    let program = "#![no_std]\n#![no_main]\n\
        #[panic_handler]\nfn panic(_: &core::panic::PanicInfo<'_>) -> ! {\n    loop {}\n}\n\
        #[unsafe(no_mangle)]\n#[unsafe(link_section = \"xdp\")]\nextern \"C\" fn probe() -> u32 {\n    2\n}\n";
    let manifest = "[package]\nname = \"probe\"\nedition = \"2024\"\n[workspace]\n\
        [profile.release]\npanic = \"abort\"\n";
    fs::create_dir_all(dir.join("src"))?;
    fs::write(dir.join("src/main.rs"), program)?;
    fs::write(dir.join("Cargo.toml"), manifest)?;
    Ok(())
}

/// A command that sees nothing of the cargo and toolchain that run this task, but their download settings.
fn clean(program: impl AsRef<OsStr>) -> Command {
    const KEPT: [&str; 7] = [
        "CARGO_HOME",
        "CARGO_HTTP_",
        "CARGO_NET_",
        "CARGO_REGISTRIES_",
        "CARGO_REGISTRY_",
        "CARGO_SOURCE_",
        "CARGO_TERM_",
    ];
    const KEPT_OF_RUSTUP: [&str; 2] = ["RUSTUP_HOME", "RUSTUP_DIST_"];
    let mut command = Command::new(program);
    for (variable, _) in env::vars_os() {
        let name = variable.to_string_lossy();
        let ours = name.starts_with("CARGO") || name.starts_with("RUST") || name == "LD_LIBRARY_PATH";
        let kept = KEPT.iter().chain(&KEPT_OF_RUSTUP).any(|prefix| name.starts_with(prefix));
        if ours && !kept {
            command.env_remove(&variable);
        }
    }
    command
}

fn path_with_first(dir: &str) -> std::ffi::OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut joined = std::ffi::OsString::from(dir);
    joined.push(":");
    joined.push(path);
    joined
}
