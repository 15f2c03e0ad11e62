//! One lab of a name at a time: who holds the guard owns the namespaces of that name.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
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
    /// Takes the lab's name: asks an owner to stop, waits for it, and removes what a killed one left.
    ///
    /// # Errors
    /// When we are not root, or the owner does not stop.
    pub(crate) fn take(name: &str) -> Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "the lab makes network namespaces: run this as root");
        let path = super::guard_path(name);
        let file = wait::until(Duration::from_secs(30), "the lab's owner to stop", || acquire(&path))?;
        for left in leftovers(name) {
            netns::remove(&left)?;
            println!("removed namespace {left}, which an earlier lab has left");
        }
        let pins = Path::new(reap::PINS).join(name);
        if pins.exists() {
            fs::remove_dir_all(&pins).with_context(|| format!("remove {}", pins.display()))?;
        }
        Ok(Self { path, _file: file })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            eprintln!("remove {}: {error}", self.path.display());
        }
    }
}

/// Locks the file and writes our process id, or asks the process in it to stop.
fn acquire(path: &Path) -> Result<File> {
    let mut file = File::options().create(true).read(true).write(true).truncate(false).open(path)?;
    let mut text = String::new();
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        // The owner may have removed the file between our opening and our locking it.
        ensure!(path.exists(), "the guard was just removed");
        file.set_len(0)?;
        file.rewind()?;
        write!(file, "{}", process::id())?;
        return Ok(file);
    }
    file.read_to_string(&mut text)?;
    let owner = text.trim().parse().ok().and_then(Pid::from_raw).context("the guard names no process yet")?;
    kill_process(owner, Signal::TERM).context("ask the lab's owner to stop")?;
    anyhow::bail!("process {} still owns it", owner.as_raw_nonzero())
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
