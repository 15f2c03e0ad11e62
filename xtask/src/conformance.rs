//! `conformance`: the official suite of the Gateway API against gatewayd and a real Kubernetes control plane.
//!
//! Builds the Go programs that are missing (`programs`), the daemon and the bench, then hands over to
//! `gateway-bench conformance`. `cargo xtask test --cluster` proves the bench itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use crate::programs::{self, Programs};
use crate::test::CLUSTER;
use crate::{build, exec};

/// Options of `conformance`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// A conformance profile, such as GATEWAY-HTTP; may be given several times. All five for gateways without it.
    #[arg(long = "profile", value_name = "PROFILE")]
    profiles: Vec<String>,
    /// Only the suite's test of this name.
    #[arg(long, value_name = "NAME")]
    run_test: Option<String>,
    /// One test at a time, where the suite would run some together.
    #[arg(long)]
    one_by_one: bool,
    /// Which CRDs of the Gateway API to install.
    #[arg(long, value_enum, default_value = "experimental")]
    channel: Channel,
    /// Correct the list of passing tests by what this run finds, instead of comparing with it.
    #[arg(long)]
    update: bool,
    /// Leave the cluster standing after the suite, until Ctrl-C.
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    build: build::Options,
}

/// Release channels of the Gateway API.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Channel {
    /// What is stable.
    Standard,
    /// What may change as well.
    Experimental,
}

impl Channel {
    /// As the bench takes it.
    pub(crate) fn flag(self) -> [&'static str; 2] {
        ["--channel", if self == Self::Standard { "standard" } else { "experimental" }]
    }
}

pub(crate) fn run(options: &Options, root: &Path) -> Result<()> {
    if !exec::is_root() {
        bail!("the bench makes network namespaces and loads kernel programs: run this task as root");
    }
    let mut bench = bench(&options.build, root, "conformance")?;
    bench.arg("--state").arg(exec::target_dir(root).join("conformance")).args(options.channel.flag());
    for profile in &options.profiles {
        bench.args(["--profile", profile]);
    }
    if let Some(test) = &options.run_test {
        bench.args(["--run-test", test]);
    }
    for (given, flag) in
        [(options.one_by_one, "--one-by-one"), (options.update, "--update"), (options.keep, "--keep")]
    {
        if given {
            bench.arg(flag);
        }
    }
    exec::replace(&mut bench)
}

/// The bench with `task`, everything it needs built: the Go programs, the daemon and itself.
pub(crate) fn bench(build: &build::Options, root: &Path, task: &str) -> Result<Command> {
    let go = programs(root)?;
    build::run(build, root)?;
    let mut bench = Command::new(build_bench(build, root)?);
    bench.current_dir(root).arg(task);
    bench.arg("--gatewayd").arg(build::binary(root, build, "gatewayd"));
    bench.envs(go);
    Ok(bench)
}

/// Builds the bench, which other tasks do not: it brings a Kubernetes client.
pub(crate) fn build_bench(build: &build::Options, root: &Path) -> Result<PathBuf> {
    let mut cargo = exec::cargo(root);
    cargo.args(["build", "--quiet", "--package", "gateway-tests", "--features", CLUSTER]);
    cargo.args(["--bin", "gateway-bench"]);
    if build.release {
        cargo.arg("--release");
    }
    exec::exec(&mut cargo)?;
    Ok(build::binary(root, build, "gateway-bench"))
}

/// Where the Go programs are, built if they were not, by the names under which tests look for them.
pub(crate) fn programs(root: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
    let Programs { control_plane, suite, dns } = programs::build(root)?;
    Ok(vec![
        ("GATEWAYD_BENCH_CONTROL_PLANE", control_plane),
        ("GATEWAYD_BENCH_SUITE", suite),
        ("GATEWAYD_BENCH_DNS", dns),
    ])
}
