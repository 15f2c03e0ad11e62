//! `test`: builds, then runs every test of the host packages, those that need root included; with `--cluster`, those
//! that need a Kubernetes control plane instead.

use std::env;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::{build, conformance, exec, manifests};

/// Options of `test`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Only tests whose name contains this.
    filter: Option<String>,
    /// The tests against a real Kubernetes API server, which need Go, in the place of all others.
    #[arg(long)]
    cluster: bool,
}

/// The feature with which gateway-tests has the control plane. What runs on one is in `tests/tests/cluster*.rs`, and
/// empty without the feature; everything else needs no Go.
pub(crate) const CLUSTER: &str = "gateway-tests/cluster";

/// Each test of the lab runs a daemon, backends and clients: more at once only makes them wait for one another.
const MOST_AT_ONCE: usize = 4;

pub(crate) fn run(options: &Options, root: &Path) -> Result<()> {
    if !exec::is_root() {
        bail!("these tests make network namespaces and load kernel programs: run this task as root");
    }
    let build = build::Options::default();
    let programs = options.cluster.then(|| conformance::programs(root)).transpose()?;
    if options.cluster {
        // Here, because it needs Go as well.
        manifests::check(root)?;
    }
    build::run(&build, root)?;
    reap(root, &build)?;
    let ran = match &programs {
        Some(programs) => cluster_tests(options, root, programs),
        None => all_tests(options, root),
    };
    reap(root, &build)?;
    let (unprivileged, privileged) = ran?;
    println!("ran {unprivileged} tests without and {privileged} with network namespaces or kernel programs");
    match &options.filter {
        None if privileged == 0 => bail!("not one test of network namespaces and kernel programs ran"),
        Some(filter) if unprivileged + privileged == 0 => bail!("no test has {filter:?} in its name"),
        _ => Ok(()),
    }
}

/// Runs the tests on a control plane, one at a time: each has one of its own, and two cores are slow enough for one.
fn cluster_tests(options: &Options, root: &Path, programs: &[(&str, PathBuf)]) -> Result<(usize, usize)> {
    let arguments = ["--package", "gateway-tests", "--features", CLUSTER, "--test", "cluster*"];
    let mut test = cargo_test(options, root, &arguments, 1);
    // They measure, and tell what they found.
    test.arg("--show-output");
    Ok((0, counted(test.envs(programs.iter().cloned()), &arguments)?))
}

/// Runs the tests that any user could run, then those that need root, and counts both.
///
/// The second kind are the integration tests of gateway-tests; all of them, and nothing else.
fn all_tests(options: &Options, root: &Path) -> Result<(usize, usize)> {
    let first = ["--exclude", "gateway-ebpf", "--exclude", "gateway-tests", "--workspace"];
    let library = ["--package", "gateway-tests", "--features", CLUSTER, "--lib", "--bins"];
    let privileged = ["--package", "gateway-tests", "--test", "*"];
    let threads = thread::available_parallelism().map_or(1, usize::from).clamp(2, MOST_AT_ONCE);
    let run = |arguments: &[&str]| counted(&mut cargo_test(options, root, arguments, threads), arguments);
    let (first, library, privileged) = (run(&first), run(&library), run(&privileged));
    // All of them have run before the first failure is reported.
    Ok((first? + library?, privileged?))
}

/// `cargo test` with `arguments`.
fn cargo_test(options: &Options, root: &Path, arguments: &[&str], threads: usize) -> Command {
    let mut test = exec::cargo(root);
    test.arg("test").arg("--quiet").arg("--no-fail-fast").args(arguments).arg("--");
    test.args(["--format", "pretty"]).args(&options.filter).stdout(Stdio::piped());
    if env::var_os("RUST_TEST_THREADS").is_none() {
        test.env("RUST_TEST_THREADS", threads.to_string());
    }
    test
}

/// Runs `test`, passes its output on and returns how many tests ran.
fn counted(test: &mut Command, arguments: &[&str]) -> Result<usize> {
    let mut running = test.spawn().context("start cargo test")?;
    let output = running.stdout.take().context("cargo test has no standard output")?;
    let mut ran = 0;
    for line in BufReader::new(output).lines() {
        let line = line.context("read the output of cargo test")?;
        ran += announced(&line).unwrap_or(0);
        println!("{line}");
    }
    let status = running.wait().context("wait for cargo test")?;
    if !status.success() {
        bail!("tests failed (cargo test {}: {status})", arguments.join(" "));
    }
    Ok(ran)
}

/// The number in the harness's `test result: ok. N passed; ...`.
fn announced(line: &str) -> Option<usize> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    counts.split_once(" passed")?.0.parse().ok()
}

/// Removes what an interrupted run has left; the lab knows its own names.
fn reap(root: &Path, build: &build::Options) -> Result<()> {
    exec::exec(Command::new(build::binary(root, build, "gateway-lab")).arg("reap"))
}

#[cfg(test)]
mod tests {
    use super::announced;

    #[test]
    fn counts_what_ran_and_nothing_else() {
        assert_eq!(announced("test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured"), Some(12));
        assert_eq!(announced("test result: FAILED. 3 passed; 1 failed"), Some(3));
        assert_eq!(announced("running 12 tests"), None);
    }
}
