//! gatewayd on the lab's node: started, edited, killed and started again as an operator would.

mod status;

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub use status::{BackendStatus, Status};

use crate::netns;
use crate::reap::PINS;
use crate::topology::Lab;
use crate::wait::until;

/// How long the daemon may take to start, to take a change in, or to stop. The change itself is promised within a
/// second; the rest is for a machine that runs other tests beside.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A daemon with its own folders; killed, and its pins removed, when dropped.
#[derive(Debug)]
pub struct Gatewayd<'lab> {
    lab: &'lab Lab,
    dir: TempDir,
    /// What `--config` names: a folder of its own, unless a test says otherwise before `start`.
    pub config: PathBuf,
    /// `--interface` each: at first every interface of the node, clients' first, without a mode.
    pub interfaces: Vec<String>,
    /// More arguments of `gatewayd run`.
    pub arguments: Vec<String>,
    /// Its environment beside ours.
    pub environment: Vec<(String, String)>,
    child: Option<Child>,
}

impl<'lab> Gatewayd<'lab> {
    /// A daemon for the lab's node, not started yet.
    ///
    /// # Errors
    /// When no folder can be made.
    pub fn new(lab: &'lab Lab) -> Result<Self> {
        let dir =
            tempfile::Builder::new().prefix(&lab.name).tempdir().context("make a folder for gatewayd")?;
        let config = dir.path().join("config");
        fs::create_dir(&config)?;
        let interfaces = lab.interfaces().map(str::to_owned).collect();
        let (arguments, environment) = (Vec::new(), Vec::new());
        Ok(Self { lab, dir, config, interfaces, arguments, environment, child: None })
    }

    /// Writes a file of the configuration whole, as an editor does: to a new file that takes the old one's name.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        // The name must not end in .yaml, or the daemon would read both.
        let new = self.config.join(format!(".{name}.new"));
        fs::write(&new, text)?;
        fs::rename(&new, self.config.join(name)).with_context(|| format!("write {name}"))
    }

    /// Removes a file of the configuration.
    ///
    /// # Errors
    /// When it is not there.
    pub fn remove(&self, name: &str) -> Result<()> {
        fs::remove_file(self.config.join(name)).with_context(|| format!("remove {name}"))
    }

    /// Starts the daemon and waits until its first generation is in force.
    ///
    /// The daemon dies with the thread that calls this.
    ///
    /// # Errors
    /// When it exits, or applies nothing; the message holds its log.
    pub fn start(&mut self) -> Result<Status> {
        ensure!(self.child.is_none(), "gatewayd runs already");
        let log = File::options().create(true).append(true).open(self.log_path())?;
        let mut command = self.lab.node.command(program()?)?;
        command.arg("run").arg("--config").arg(&self.config);
        command.args(self.interfaces.iter().flat_map(|interface| ["--interface", interface]));
        command.arg("--state-dir").arg(self.state_dir()).arg("--pin-dir").arg(self.pin_dir());
        command.envs(self.environment.iter().cloned());
        command.args(&self.arguments).stdout(log.try_clone()?).stderr(log);
        // A Ctrl-C in the terminal is for who started us: the daemon is stopped in its turn.
        command.process_group(0);
        self.child = Some(command.spawn().context("start gatewayd")?);
        self.wait_for("the first generation", |status| {
            ensure!(status.generation() > 0, "nothing is applied yet");
            Ok(())
        })
    }

    /// What the daemon says of itself.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn status(&self) -> Result<Status> {
        let mut command = Command::new(program()?);
        command.args(["status", "-o", "json", "--state-dir"]).arg(self.state_dir());
        Status::read(&netns::finish(&mut command)?)
    }

    /// Waits until the daemon's status passes `look`.
    ///
    /// # Errors
    /// When it does not in time, or the daemon has exited; the message holds its log.
    pub fn wait_for(&mut self, what: &str, look: impl Fn(&Status) -> Result<()>) -> Result<Status> {
        let mut exited = None;
        let found = until(PATIENCE, what, || {
            exited = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if exited.is_some() {
                // No use in waiting on.
                return Ok(None);
            }
            let status = self.status()?;
            look(&status)?;
            Ok::<_, anyhow::Error>(Some(status))
        });
        match (found, exited) {
            (Ok(Some(status)), _) => Ok(status),
            (Err(error), _) => Err(error.context(format!("gatewayd's log:\n{}", self.log()))),
            (Ok(None), exited) => bail!("gatewayd exited ({exited:?}); its log:\n{}", self.log()),
        }
    }

    /// Does `edit`, then waits until a newer generation than before it is in force, without a rejection.
    ///
    /// # Errors
    /// When the edit fails or is not applied.
    pub fn change(&mut self, edit: impl FnOnce(&Self) -> Result<()>) -> Result<Status> {
        let before = self.status()?.generation();
        edit(self)?;
        self.wait_for("a newer generation", |status| {
            ensure!(status.generation() > before, "generation {before} is still served");
            ensure!(status.complaints().is_empty(), "it is not whole: {:?}", status.complaints());
            Ok(())
        })
    }

    /// `kill -9`: no warning, no cleanup.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("gatewayd does not run")?;
        child.kill()?;
        child.wait().map(drop).context("wait for gatewayd")
    }

    /// SIGTERM, and waits for the exit.
    ///
    /// # Errors
    /// When it does not run, or does not stop in time.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        let mut child = self.child.take().context("gatewayd does not run")?;
        signal(&child, Signal::TERM)?;
        let stopped = until(PATIENCE, "gatewayd to stop", || {
            child.try_wait().map_err(anyhow::Error::from)?.ok_or_else(|| anyhow!("it runs on"))
        });
        if stopped.is_err() {
            child.kill()?;
            child.wait()?;
        }
        stopped
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When it does not run.
    pub fn signal(&self, number: Signal) -> Result<()> {
        signal(self.child.as_ref().context("gatewayd does not run")?, number)
    }

    /// `gatewayd cleanup`, in the node's namespace.
    ///
    /// # Errors
    /// With what it says.
    pub fn cleanup(&self) -> Result<()> {
        let mut command = self.lab.node.command(program()?)?;
        command.arg("cleanup").arg("--state-dir").arg(self.state_dir()).arg("--pin-dir").arg(self.pin_dir());
        netns::finish(&mut command).map(drop)
    }

    /// The daemon's process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// All that the daemon has logged, over all its starts.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// `--state-dir`.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// `--pin-dir`: named after the lab, so that [`crate::reap`] knows whose it is.
    pub fn pin_dir(&self) -> PathBuf {
        Path::new(PINS).join(&self.lab.name)
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("gatewayd.log")
    }
}

impl Drop for Gatewayd<'_> {
    fn drop(&mut self) {
        if self.child.is_some()
            && let Err(error) = self.kill()
        {
            eprintln!("{error:#}");
        }
        // Links go with their pins. A test that has cleaned up, or got no further, has none.
        let _absent = fs::remove_dir_all(self.pin_dir());
        if thread::panicking() {
            eprintln!("--- gatewayd's log\n{}---", self.log());
        }
    }
}

/// The daemon that was built with this program: the target folder and profile are the same.
///
/// # Errors
/// When there is none; says how to build it.
pub fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("find this program")?;
    // A test lies one folder below the binaries.
    let found = own.ancestors().skip(1).take(2).map(|dir| dir.join("gatewayd")).find(|path| path.is_file());
    found.context("there is no gatewayd beside this program: run `cargo xtask build`")
}

fn signal(child: &Child, signal: Signal) -> Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a process id")?;
    kill_process(pid, signal).context("signal gatewayd")
}
