//! `run`: the first try. Builds, then hands over to `gateway-lab run`.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use clap::Args;

use crate::build;
use crate::exec;

/// Options of `run`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Send the traffic, print the table, clean up; succeeds only when every share fits its weight.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    build: build::Options,
}

pub(crate) fn run(options: &Options, root: &Path) -> Result<()> {
    if !exec::is_root() {
        bail!("the lab makes network namespaces and loads kernel programs: run this task as root");
    }
    build::run(&options.build, root)?;
    let mut lab = Command::new(build::binary(root, &options.build, "gateway-lab"));
    lab.current_dir(root).arg("run");
    if options.once {
        lab.arg("--once");
    }
    exec::replace(&mut lab)
}
