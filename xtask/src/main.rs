//! Every task of development and of a first try. `cargo xtask --help` lists them.
//!
//! One file a task: its `Options` and a `run`. What several tasks share is in `exec` (running commands), `bpf`
//! (the compiler of the kernel programs) and `packages` (the distribution's packages).
#![forbid(unsafe_code)]

mod bench;
mod bpf;
mod build;
mod cluster;
mod conformance;
mod exec;
mod lab;
mod lint;
mod manifests;
mod packages;
mod programs;
mod run;
mod setup;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The tasks of gatewayd's workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Finds or installs what building and testing need.
    Setup(setup::Options),
    /// Builds the kernel programs, the daemon and the lab.
    Build(build::Options),
    /// Lays out the lab, starts gatewayd on examples/quickstart, sends traffic and shows where it went.
    Run(run::Options),
    /// Builds, then runs every test; needs root.
    Test(test::Options),
    /// Formatting, clippy for both targets, licences, docs and the house rules.
    Lint(lint::Options),
    /// Measures, and prints what the documents quote.
    Bench(bench::Options),
    /// The lab of `run`, without the daemon.
    Lab(lab::Options),
    /// Runs the official suite of the Gateway API against gatewayd and a real Kubernetes control plane; needs root.
    Conformance(conformance::Options),
    /// Renders the Helm chart to deploy/manifests, or says whether they are current.
    Manifests(manifests::Options),
    /// Leaves such a control plane standing to play with, or takes it away.
    Cluster(cluster::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let root = workspace_root();
    let done = match cli.task {
        Task::Setup(options) => setup::run(&options, &root),
        Task::Build(options) => build::run(&options, &root),
        Task::Run(options) => run::run(&options, &root),
        Task::Test(options) => test::run(&options, &root),
        Task::Lint(options) => lint::run(&options, &root),
        Task::Bench(options) => bench::run(&options, &root),
        Task::Lab(options) => lab::run(&options, &root),
        Task::Conformance(options) => conformance::run(&options, &root),
        Task::Manifests(options) => manifests::run(&options, &root),
        Task::Cluster(options) => cluster::run(&options, &root),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn workspace_root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}
