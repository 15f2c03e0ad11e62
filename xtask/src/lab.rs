//! `lab`: leaves the namespaces and backends of `run` standing, or takes them away.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use crate::build;
use crate::exec;

/// Options of `lab`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[arg(value_enum)]
    action: Action,
    #[command(flatten)]
    build: build::Options,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Action {
    /// Make the namespaces gw-client, gw-node and gw-backend-N, and serve in the backends until Ctrl-C or `down`.
    Up,
    /// Remove whatever `up` or a killed `run` left.
    Down,
}

pub(crate) fn run(options: &Options, root: &Path) -> Result<()> {
    if !exec::is_root() {
        bail!("the lab makes network namespaces: run this task as root");
    }
    build::run(&options.build, root)?;
    let action = match options.action {
        Action::Up => "up",
        Action::Down => "down",
    };
    let mut lab = Command::new(build::binary(root, &options.build, "gateway-lab"));
    exec::replace(lab.current_dir(root).arg(action))
}
