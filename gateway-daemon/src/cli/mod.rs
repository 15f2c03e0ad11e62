//! The command line: flags and environment in, an exit code out.
//!
//! Not here: what the commands do. `run` is in [`crate::app`], `check` in [`crate::check`], `migrate` in
//! [`crate::migrate`], `cleanup` in
//! [`crate::app`], and `status` asks [`crate::admin`].

mod migrate;
mod run;
mod status;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use run::RunArgs;

use crate::{app, check, observe::LogFormat};

/// Exit code for bad configuration (`EX_CONFIG` of sysexits.h).
const EXIT_CONFIG: u8 = 78;

/// An eBPF-accelerated load balancer for the Gateway API.
#[derive(Debug, Parser)]
#[command(name = "gatewayd", disable_version_flag = true, arg_required_else_help = true)]
pub struct Cli {
    /// How to write the log: `text` or `json`; text by default.
    #[arg(long, global = true, env = "GATEWAYD_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve what the configuration says until SIGTERM.
    Run(Box<RunArgs>),
    /// Print every fault of configuration files as `file:line:column: code: sentence`; exit 78 if there is one.
    Check {
        /// Files, or directories that are searched for .yaml, .yml and .json.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Rewrite documents of the Gateway API before v1 to v1, keeping comments, order and every other byte; exit 78 if
    /// something has no successor.
    Migrate {
        /// Files, or directories that are searched for .yaml, .yml and .json.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Change the files; without this, print what would change as a diff.
        #[arg(long)]
        write: bool,
    },
    /// Show what the running daemon serves.
    Status {
        #[command(flatten)]
        state: StateDir,
        /// Output format.
        #[arg(short, long, default_value = "text")]
        output: Output,
    },
    /// Take everything off this node that a daemon left: programs, maps, addresses, settings.
    Cleanup {
        #[command(flatten)]
        state: StateDir,
        #[command(flatten)]
        pins: PinDir,
    },
    /// Print the version.
    Version,
}

/// Where the daemon keeps what must outlive it.
#[derive(Args, Clone, Debug)]
pub struct StateDir {
    /// Directory for the control socket, the status file and the record of changes to this node.
    #[arg(long, env = "GATEWAYD_STATE_DIR", default_value = "/var/lib/gatewayd")]
    pub state_dir: PathBuf,
}

/// Where kernel objects are pinned.
#[derive(Args, Clone, Debug)]
pub struct PinDir {
    /// Directory under a bpffs for maps and links; the bpffs is mounted if it is not.
    #[arg(long, env = "GATEWAYD_PIN_DIR", default_value = "/sys/fs/bpf/gatewayd")]
    pub pin_dir: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Runs one command.
pub fn run(cli: Cli) -> ExitCode {
    let result = match cli.command {
        Command::Run(args) => {
            crate::observe::init(cli.log_format);
            run::run(*args)
        }
        Command::Check { paths } => return run_check(paths),
        Command::Migrate { paths, write } => return migrate::run(&paths, write),
        Command::Status { state, output: Output::Text } => status::print_text(&state.state_dir),
        Command::Status { state, output: Output::Json } => status::print_json(&state.state_dir),
        Command::Cleanup { state, pins } => {
            crate::observe::init(cli.log_format);
            app::cleanup(&state.state_dir, &pins.pin_dir)
        }
        Command::Version => {
            println!("gatewayd {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gatewayd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints every fault; the exit code says whether there is an error among them.
fn run_check(paths: Vec<PathBuf>) -> ExitCode {
    let report = check::check(paths);
    for diagnostic in &report.diagnostics {
        println!("{diagnostic}");
    }
    if report.failed() { ExitCode::from(EXIT_CONFIG) } else { ExitCode::SUCCESS }
}
