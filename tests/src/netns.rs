//! Network namespaces: made, entered, and gone when dropped, panic or not.
//!
//! A process or thread enters by `setns` and not by `ip netns exec`, which would also hide `/sys/fs/bpf` behind a
//! fresh `/sys`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::future::Future;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::panic;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;
use rustix::thread::LinkNameSpaceType;

/// Where iproute2 keeps the names of namespaces.
pub const NAMES: &str = "/run/netns";

/// A network namespace with a name that `ip netns` knows; removed when dropped.
#[derive(Debug)]
pub struct Netns {
    name: String,
    file: File,
}

impl Netns {
    /// Makes a namespace, with loopback up and without duplicate address detection, which would hold addresses back.
    ///
    /// # Errors
    /// When we are not root, or a namespace of this name exists.
    pub fn create(name: &str) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "network namespaces need root: run `cargo xtask test` (or run) as root"
        );
        finish(Command::new("ip").args(["netns", "add", name]))?;
        let file =
            File::open(Path::new(NAMES).join(name)).with_context(|| format!("open namespace {name}"))?;
        let netns = Self { name: name.to_owned(), file };
        netns.sysctl("ipv6/conf/default/accept_dad", "0")?;
        netns.sysctl("ipv6/conf/all/accept_dad", "0")?;
        netns.ip_batch(&["link set lo up"])?;
        Ok(netns)
    }

    /// The name, as `ip netns` takes it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Does `work` on a thread of its own inside the namespace; a panic there goes on here.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                enter(&self.file).expect("a namespace that is open can be entered");
                work()
            });
            inside.join().unwrap_or_else(|payload| panic::resume_unwind(payload))
        })
    }

    /// Runs a future inside the namespace, on a runtime of one thread.
    ///
    /// The future is made there, so it need not be `Send`.
    pub fn block_on<F: Future>(&self, future: impl FnOnce() -> F + Send) -> F::Output
    where
        F::Output: Send,
    {
        self.run(|| runtime().block_on(future()))
    }

    /// A thread inside the namespace that outlives this call.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<thread::JoinHandle<T>> {
        let file = self.file.try_clone().context("share a namespace with a thread")?;
        let inside = move || {
            enter(&file).expect("a namespace that is open can be entered");
            work()
        };
        thread::Builder::new().name(self.name.clone()).spawn(inside).context("start a thread")
    }

    /// A command that will run inside the namespace, and die with the thread that starts it.
    ///
    /// # Errors
    /// When no more files can be opened.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Result<Command> {
        let file = self.file.try_clone().context("share a namespace with a process")?;
        let mut command = Command::new(program);
        let prepare = move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            enter(&file)
        };
        // SAFETY: between fork and exec `prepare` makes two system calls and neither allocates nor locks.
        unsafe { command.pre_exec(prepare) };
        Ok(command)
    }

    /// Runs lines of `ip` in the namespace, all or up to the first that fails.
    ///
    /// # Errors
    /// With the line that `ip` refused.
    pub fn ip_batch(&self, lines: &[impl AsRef<str>]) -> Result<()> {
        let text: String = lines.iter().flat_map(|line| [line.as_ref(), "\n"]).collect();
        let mut ip = Command::new("ip");
        ip.args(["-netns", &self.name, "-batch", "-"]);
        ip.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = ip.spawn().context("start ip")?;
        running.stdin.take().context("ip has no standard input")?.write_all(text.as_bytes())?;
        let output = running.wait_with_output().context("wait for ip")?;
        if !output.status.success() {
            bail!("ip in {}: {}\n{text}", self.name, String::from_utf8_lossy(&output.stderr).trim_end());
        }
        Ok(())
    }

    /// What `ip` prints in the namespace.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn ip(&self, arguments: &str) -> Result<String> {
        finish(Command::new("ip").args(["-netns", &self.name]).args(arguments.split_whitespace()))
    }

    /// Sets features of an interface, as `ethtool -K` takes them.
    ///
    /// # Errors
    /// When the interface has no such feature.
    pub fn offload(&self, interface: &str, features: &str) -> Result<()> {
        let mut ethtool = self.command("ethtool")?;
        finish(ethtool.args(["-K", interface]).args(features.split_whitespace())).map(drop)
    }

    /// Sets a value below `/proc/sys/net`.
    ///
    /// # Errors
    /// When there is no such value.
    pub fn sysctl(&self, path: &str, value: &str) -> Result<()> {
        let file = Path::new("/proc/sys/net").join(path);
        self.run(|| fs::write(&file, value))
            .with_context(|| format!("set {} in {}", file.display(), self.name))
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.name) {
            eprintln!("{error:#}");
        }
    }
}

/// Removes a namespace's name. The namespace goes when its last process, thread and socket do.
///
/// # Errors
/// When there is no namespace of this name.
pub fn remove(name: &str) -> Result<()> {
    finish(Command::new("ip").args(["netns", "del", name])).map(drop)
}

/// A runtime of one thread, for a thread inside a namespace: its sockets are made where its thread is.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("epoll and timers are there")
}

fn enter(file: &File) -> std::io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Runs a command to its end and returns what it printed.
pub(crate) fn finish(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("start {}", command.get_program().display()))?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
