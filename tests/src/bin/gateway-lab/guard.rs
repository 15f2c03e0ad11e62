//! One lab of a name at a time: who holds the guard owns the namespaces of that name.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use gateway_tests::{netns, reap, wait};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

/// A lock that dies with this process, over a file that says whose it is; removed when dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    path: PathBuf,
    _file: File,
}

impl Guard {
    /// Takes the lab's name, and removes what a killed owner left.
    ///
    /// # Errors
    /// When we are not root, or the lab stands already: whoever started it may want to keep it.
    pub(crate) fn take(name: &str) -> Result<Self> {
        ensure_root()?;
        let path = super::guard_path(name);
        match acquire(&path)? {
            Ok(file) => Self { path, _file: file }.clear(name),
            Err(owner) => {
                bail!("the lab {name} stands already (process {owner}): `cargo xtask lab down` removes it")
            }
        }
    }

    /// As [`Self::take`], but asks an owner to stop and waits until it has.
    ///
    /// # Errors
    /// When we are not root, or the owner does not stop.
    pub(crate) fn take_over(name: &str) -> Result<Self> {
        ensure_root()?;
        let path = super::guard_path(name);
        let file =
            wait::until(Duration::from_secs(30), "the lab's owner to stop", || match acquire(&path)? {
                Ok(file) => Ok(file),
                Err(owner) => {
                    let process =
                        owner.parse().ok().and_then(Pid::from_raw).context("the guard names no process")?;
                    kill_process(process, Signal::TERM).context("ask the lab's owner to stop")?;
                    bail!("process {owner} still owns it")
                }
            })?;
        Self { path, _file: file }.clear(name)
    }

    fn clear(self, name: &str) -> Result<Self> {
        for left in leftovers(name) {
            netns::remove(&left)?;
            println!("removed namespace {left}, which an earlier lab has left");
        }
        let pins = Path::new(reap::PINS).join(name);
        if pins.exists() {
            fs::remove_dir_all(&pins).with_context(|| format!("remove {}", pins.display()))?;
        }
        Ok(self)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            eprintln!("remove {}: {error}", self.path.display());
        }
    }
}

fn ensure_root() -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "the lab makes network namespaces: run this as root");
    Ok(())
}

/// Locks the file and writes our process id into it; if it is locked, returns the process id that it holds.
fn acquire(path: &Path) -> Result<Result<File, String>> {
    let mut file = File::options().create(true).read(true).write(true).truncate(false).open(path)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut owner = String::new();
        file.read_to_string(&mut owner)?;
        return Ok(Err(owner.trim().to_owned()));
    }
    // The owner may have removed the file between our opening and our locking it.
    ensure!(path.exists(), "{} was just removed: try again", path.display());
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}", process::id())?;
    Ok(Ok(file))
}

/// Names that [`gateway_tests::topology::Lab`] gives under `name`, and no others.
fn leftovers(name: &str) -> Vec<String> {
    let entries = fs::read_dir(netns::NAMES).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|found| found.strip_prefix(name).is_some_and(is_role)).collect()
}

fn is_role(suffix: &str) -> bool {
    suffix == "-client"
        || suffix == "-node"
        || suffix.strip_prefix("-backend-").is_some_and(|n| n.parse::<u8>().is_ok())
}
