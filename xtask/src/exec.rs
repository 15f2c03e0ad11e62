//! Running other programs: whose environment, and what is said when one fails.

use std::env;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Runs `command` with our output and waits for it.
///
/// # Errors
/// When it cannot be started or does not succeed; the message names the command.
pub(crate) fn exec(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start {}", shown(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", shown(command));
    }
    Ok(())
}

/// Runs `command` and returns what it printed.
///
/// # Errors
/// As [`exec`]; the message holds what it said on its standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("start {}", shown(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed: {}\n{}", shown(command), output.status, said.trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("read what {} printed", shown(command)))
}

/// Replaces this process by `command`, so that Ctrl-C and the exit code are its own.
pub(crate) fn replace(command: &mut Command) -> Result<()> {
    let error = command.exec();
    Err(error).with_context(|| format!("start {}", shown(command)))
}

/// The cargo that runs this task, in an environment like the one the task was called from.
///
/// `cargo run` sets variables that describe xtask itself; left in place they would make build scripts that track
/// them (ring's does) run again after each plain `cargo build`.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    for (name, _) in env::vars_os() {
        if describes_xtask(&name) {
            command.env_remove(&name);
        }
    }
    command
}

/// Whether `cargo run` set the variable for the program it ran, rather than the user for cargo.
fn describes_xtask(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name == "CARGO"
        || name == "LD_LIBRARY_PATH"
        || name.starts_with("CARGO_PKG_")
        || name.starts_with("CARGO_MANIFEST_")
        || name.starts_with("CARGO_BIN_")
        || name == "CARGO_PRIMARY_PACKAGE"
        || name == "CARGO_CRATE_NAME"
}

/// Where cargo puts the host's builds.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

/// The first executable of this name in `PATH`, cargo's own bin folder included.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(cargo_home().map(|home| home.join("bin")))
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
}

fn cargo_home() -> Option<PathBuf> {
    env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")))
}

/// Whether this process is root, which apt, network namespaces and loading kernel programs need.
pub(crate) fn is_root() -> bool {
    output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// The command as one would type it.
fn shown(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}
