//! `cluster`: a real Kubernetes control plane with gatewayd on its one node, left standing to play with.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use crate::{build, conformance, exec};

/// Options of `cluster`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[arg(value_enum)]
    action: Action,
    /// Which CRDs of the Gateway API to install.
    #[arg(long, value_enum, default_value = "experimental")]
    channel: conformance::Channel,
    #[command(flatten)]
    build: build::Options,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Action {
    /// Start etcd, kube-apiserver, kube-controller-manager and gatewayd, and say where `kubectl` is.
    Up,
    /// Stop them and remove their namespaces.
    Down,
}

pub(crate) fn run(options: &Options, root: &Path) -> Result<()> {
    if !exec::is_root() {
        bail!("the cluster is made of network namespaces: run this task as root");
    }
    let state = exec::target_dir(root).join("cluster");
    match options.action {
        Action::Up => {
            let mut bench = conformance::bench(&options.build, root, "up")?;
            bench.arg("--state").arg(&state).args(options.channel.flag());
            exec::replace(&mut bench)
        }
        Action::Down => {
            let program = conformance::build_bench(&options.build, root)?;
            exec::replace(Command::new(program).arg("down").arg("--state").arg(&state))
        }
    }
}
