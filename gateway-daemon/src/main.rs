//! The `gatewayd` command.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    gateway_daemon::cli::run(gateway_daemon::cli::Cli::parse())
}
