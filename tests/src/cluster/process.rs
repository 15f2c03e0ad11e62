//! Programs that run beside us for the life of the bench, each with a log file.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Error, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio::time::timeout;

/// How many lines of a log explain an end.
const LAST_LINES: usize = 15;

/// A program that is not expected to end by itself.
#[derive(Debug)]
pub(super) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; what it prints goes to `NAME.log` in the folder `logs`.
    ///
    /// # Errors
    /// When the file cannot be made or the program cannot be started.
    pub(super) fn start(name: &'static str, mut command: Command, logs: &Path) -> Result<Self> {
        let log = logs.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("make {}", log.display()))?;
        // Ctrl-C is for us; we end the others.
        command.process_group(0).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = tokio::process::Command::from(command)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        Ok(Self { name, child, log })
    }

    /// Waits until the program ends, which is an error, and returns the error.
    pub(super) async fn ended(&mut self) -> Error {
        match self.child.wait().await {
            Ok(status) => {
                anyhow!(
                    "{} ended: {status}; its last lines, of {}:\n{}",
                    self.name,
                    self.log.display(),
                    self.tail()
                )
            }
            Err(error) => anyhow!("wait for {}: {error}", self.name),
        }
    }

    /// Asks the program to end and, when it has not within `patience`, ends it.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub(super) async fn stop(mut self, patience: Duration) -> Result<()> {
        let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)) else {
            return Ok(());
        };
        kill_process(pid, Signal::TERM).with_context(|| format!("end {}", self.name))?;
        if let Ok(ended) = timeout(patience, self.child.wait()).await {
            ended.map(drop)
        } else {
            self.child.kill().await
        }
        .with_context(|| format!("wait for {}", self.name))
    }

    /// Ends the program without asking.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub(super) async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.with_context(|| format!("end {}", self.name))
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When it has ended.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        let pid = pid.with_context(|| format!("{} has ended", self.name))?;
        kill_process(pid, signal).with_context(|| format!("signal {}", self.name))
    }

    fn tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_else(|error: io::Error| error.to_string().into_bytes());
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }
}
