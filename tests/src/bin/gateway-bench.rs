//! The bench: a real control plane, pods, gatewayd and the official conformance suite on one machine.
//!
//! `cargo xtask conformance` and `cargo xtask cluster` build it and call it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use gateway_tests::cluster::{self, Expectation, Interrupted, StandOptions, SuiteOptions};
use gateway_tests::{reap, wait};
use rustix::process::{Pid, Signal, kill_process};

#[derive(Debug, Parser)]
#[command(name = "gateway-bench")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Bring a cluster up, run the suite on it, take it down.
    Conformance {
        #[command(flatten)]
        stand: StandOptions,
        #[command(flatten)]
        suite: SuiteOptions,
        /// Correct the list of passing tests by what this run finds, instead of comparing with it.
        #[arg(long)]
        update: bool,
        /// Leave the cluster standing after the suite, until Ctrl-C.
        #[arg(long)]
        keep: bool,
    },
    /// Bring a cluster up and hold it until a signal.
    Serve {
        #[command(flatten)]
        stand: StandOptions,
    },
    /// As `serve`, in the background; returns when the cluster is up.
    Up {
        #[command(flatten)]
        stand: StandOptions,
    },
    /// Take down what `up` brought up, and whatever dead runs left.
    Down {
        /// The folder that `up` was given.
        #[arg(long)]
        state: PathBuf,
    },
}

/// Building nothing, with an empty etcd: half a minute at the worst.
const UP_WITHIN: Duration = Duration::from_secs(240);
const DOWN_WITHIN: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Conformance { stand, suite, update, keep } => conformance(&stand, &suite, update, keep),
        Task::Serve { stand } => match stand.run(async |stand| stand.stand_until_told().await) {
            Err(error) if error.is::<Interrupted>() => Ok(()),
            other => other,
        },
        Task::Up { stand } => up(&stand),
        Task::Down { state } => down(&state),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn conformance(stand: &StandOptions, suite: &SuiteOptions, update: bool, keep: bool) -> Result<()> {
    let expectation = Expectation::read()?;
    stand.run(async |stand| {
        let judged = expectation.judge(stand, suite, update).await;
        if !stand.serves {
            return judged.context("gatewayd has no Kubernetes source, so nothing answers the suite");
        }
        if keep {
            if let Err(error) = &judged {
                eprintln!("error: {error:#}");
            }
            stand.stand_until_told().await?;
        }
        judged
    })
}

fn up(stand: &StandOptions) -> Result<()> {
    if let Some(pid) = cluster::owner(&stand.state)? {
        bail!("process {pid} has a cluster in {} already", stand.state.display());
    }
    let log = stand.state.join("logs/bench.log");
    let mut serving = serve_detached(&log)?;
    let (ready, base) = (cluster::ready_path(&stand.state), cluster::base_path(&stand.state));
    let up = wait::until(UP_WITHIN, "the cluster", || match serving.try_wait() {
        _ if ready.exists() => Ok(Ok(())),
        Ok(Some(status)) => {
            Ok(Err(anyhow::anyhow!("it ended while it started: {status}; see {}", log.display())))
        }
        _ => Err("not yet"),
    });
    up.and_then(|ready_or_ended| ready_or_ended)?;
    println!("{}", fs::read_to_string(&log)?.trim_end());
    println!("`cargo xtask cluster down` takes it down; {} are the suite's base manifests", base.display());
    Ok(())
}

/// This program with `serve` in the place of `up`, in a session of its own: a closed terminal does not end it.
fn serve_detached(log: &Path) -> Result<Child> {
    fs::create_dir_all(log.parent().context("a log has a folder")?).context("make the folder for logs")?;
    let log = File::create(log).with_context(|| format!("make {}", log.display()))?;
    let own = std::env::current_exe().context("find this program")?;
    let mut command = Command::new("setsid");
    command.arg(own).arg("serve").args(std::env::args_os().skip(2));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn().context("start the cluster")
}

fn down(state: &Path) -> Result<()> {
    if let Some(owner) = cluster::owner(state)? {
        let pid =
            i32::try_from(owner).ok().and_then(Pid::from_raw).context("a process has a positive number")?;
        kill_process(pid, Signal::TERM).with_context(|| format!("end process {owner}"))?;
        wait::until(DOWN_WITHIN, "the cluster to go", || match cluster::owner(state) {
            Ok(None) => Ok(()),
            Ok(Some(owner)) => Err(anyhow::anyhow!("process {owner} still holds it")),
            Err(error) => Err(error),
        })?;
    }
    for removed in reap::dead()? {
        println!("removed what a dead run left: {removed}");
    }
    cluster::clean(state)
}
