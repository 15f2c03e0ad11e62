//! Runs the official suite and reads what it says about each test.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use clap::Args;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::stand::{GATEWAY_CLASS, Stand};

/// The profiles for gateways; those for meshes are not for us.
pub(super) const PROFILES: [&str; 5] =
    ["GATEWAY-HTTP", "GATEWAY-GRPC", "GATEWAY-TLS", "GATEWAY-TCP", "GATEWAY-UDP"];

/// Inside the pool of addresses that gatewayd has, and outside it.
const USABLE_ADDRESS: &str = "198.18.64.200";
const UNUSABLE_ADDRESS: &str = "198.18.65.1";

/// Seconds that the suite waits for a status before the test fails. Its own are up to three minutes each, which a run
/// with many failures would add up; the time to consistency, the only one with a limit for conformant runs, stays.
/// Where pods start or go as well, a busy machine gets more time.
const STATUS_WITHIN: u32 = 30;
const PODS_WITHIN: u32 = 90;
const PODS_TIMEOUTS: [&str; 2] = ["NamespacesMustBeReady", "DeleteTimeout"];
const STATUS_TIMEOUTS: [&str; 14] = [
    "GatewayMustHaveAddress",
    "GatewayMustHaveCondition",
    "GatewayStatusMustHaveListeners",
    "GatewayListenersMustHaveConditions",
    "ListenerSetMustHaveCondition",
    "ListenerSetListenersMustHaveConditions",
    "HTTPRouteMustNotHaveParents",
    "HTTPRouteMustHaveCondition",
    "TLSRouteMustHaveCondition",
    "TCPRouteMustHaveCondition",
    "UDPRouteMustHaveCondition",
    "RouteMustHaveParents",
    "LatestObservedGenerationSet",
    "GWCMustBeAccepted",
];

/// Which part of the suite runs.
#[derive(Args, Clone, Debug)]
pub struct SuiteOptions {
    /// A conformance profile, such as GATEWAY-HTTP; all five for gateways if none is given.
    #[arg(long = "profile", value_name = "PROFILE")]
    pub profiles: Vec<String>,
    /// Only the test of this name.
    #[arg(long, value_name = "NAME")]
    pub run_test: Option<String>,
    /// One test at a time, where the suite would run some together.
    #[arg(long)]
    pub one_by_one: bool,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    Passed,
    Failed,
    Skipped,
}

/// What the suite printed.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// By the test's name.
    pub(super) verdicts: BTreeMap<String, Verdict>,
    /// What was said of each test, and under the empty name of the set-up.
    pub(super) lines: HashMap<String, String>,
    /// The test that the next lines are about.
    pub(super) current: String,
}

/// The control character that `test2json` goes by.
const SYNC: char = '\u{16}';

/// The one test function of our Go file; each of the suite's tests is a part of it.
const ROOT_TEST: &str = "TestConformance";

impl SuiteOptions {
    /// Whether nothing is left out.
    pub(super) fn is_whole(&self) -> bool {
        self.profiles.is_empty() && self.run_test.is_none()
    }

    fn flags(&self) -> Vec<String> {
        let profiles = if self.profiles.is_empty() { PROFILES.join(",") } else { self.profiles.join(",") };
        let statuses = STATUS_TIMEOUTS.map(|name| format!("{name}:{STATUS_WITHIN}")).join(";");
        let pods = PODS_TIMEOUTS.map(|name| format!("{name}:{PODS_WITHIN}")).join(";");
        let mut flags = vec![
            // In this format each result is told as it comes, not when the whole suite ends.
            "-test.v=test2json".to_owned(),
            // The bench has no deadline of its own; CI has.
            "-test.timeout=0".to_owned(),
            format!("--gateway-class={GATEWAY_CLASS}"),
            format!("--conformance-profiles={profiles}"),
            format!("--timeout-config-overrides={statuses};{pods}"),
            format!("--usable-address={USABLE_ADDRESS}"),
            format!("--unusable-address={UNUSABLE_ADDRESS}"),
            "--organization=gatewayd".to_owned(),
            "--project=gatewayd".to_owned(),
            "--url=https://gatewayd.dev".to_owned(),
            "--contact=https://gatewayd.dev".to_owned(),
            format!("--version={}", env!("CARGO_PKG_VERSION")),
        ];
        flags.extend(self.run_test.iter().map(|name| format!("--run-test={name}")));
        if self.one_by_one {
            flags.push("--disable-parallel-tests".to_owned());
        }
        flags
    }
}

/// Runs the suite from the control plane's namespace, telling each result as it comes; everything it prints goes to
/// `logs/suite.log`, its report to `report.yaml`.
///
/// # Errors
/// When it cannot be started; failing tests are results.
pub(super) async fn run(stand: &Stand<'_>, options: &SuiteOptions) -> Result<(Results, PathBuf)> {
    if stand.serves {
        // The suite asks the class once which features it has, and does not wait for the answer.
        stand
            .kubectl(&["wait", "--for=condition=Accepted", "--timeout=60s", "gatewayclass", GATEWAY_CLASS])
            .await
            .context("wait for gatewayd to accept its class")?;
    }
    let state = &stand.options.state;
    let report = state.join("report.yaml");
    let mut command = stand.control.command(stand.options.programs.suite()?)?;
    command.args(options.flags()).arg(format!("--report-output={}", report.display()));
    command.env("KUBECONFIG", &stand.kubeconfig).current_dir(state).process_group(0);
    // What it says on its standard error are warnings of the Kubernetes client.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(state.join("logs/suite.err"))?);
    let mut log = File::create(state.join("logs/suite.log")).context("make the suite's log")?;
    let mut child =
        tokio::process::Command::from(command).kill_on_drop(true).spawn().context("start the suite")?;
    let output = child.stdout.take().context("the suite has no standard output")?;
    let mut lines = BufReader::new(output).split(b'\n');
    let mut results = Results::default();
    while let Some(line) = lines.next_segment().await.context("read what the suite prints")? {
        let line = String::from_utf8_lossy(&line);
        writeln!(log, "{line}").context("write the suite's log")?;
        if let Some((name, verdict)) = results.read(&line)
            && verdict != Verdict::Skipped
        {
            println!("{} {name}", if verdict == Verdict::Passed { "ok    " } else { "FAILED" });
        }
    }
    child.wait().await.context("wait for the suite")?;
    Ok((results, report))
}

impl Results {
    /// Takes one line; returns the result that it announces, if it does.
    fn read(&mut self, line: &str) -> Option<(String, Verdict)> {
        // Marks what the test framework says, in the format for programs.
        let line = line.strip_prefix(SYNC).unwrap_or(line);
        if let Some((name, verdict)) = announced(line) {
            self.verdicts.insert(name.to_owned(), verdict);
            return Some((name.to_owned(), verdict));
        }
        if let Some(path) = begun(line) {
            let (_root, below) = path.split_once('/').unwrap_or((path, ""));
            below.split('/').next().unwrap_or("").clone_into(&mut self.current);
        } else {
            let lines = self.lines.entry(self.current.clone()).or_default();
            lines.extend([line, "\n"]);
        }
        None
    }

    pub(super) fn count(&self, verdict: Verdict) -> usize {
        self.verdicts.values().filter(|found| **found == verdict).count()
    }

    /// What was said of a test, or of the set-up under the empty name.
    pub(super) fn lines(&self, name: &str) -> &str {
        self.lines.get(name).map_or("", String::as_str)
    }
}

/// `--- PASS: TestConformance/Name (1.20s)`, of whole tests and not of their parts.
fn announced(line: &str) -> Option<(&str, Verdict)> {
    let (word, rest) = line.trim_start().strip_prefix("--- ")?.split_once(": ")?;
    let verdict = match word {
        "PASS" => Verdict::Passed,
        "FAIL" => Verdict::Failed,
        "SKIP" => Verdict::Skipped,
        _ => return None,
    };
    let path = rest.split_whitespace().next()?;
    let name = path.strip_prefix(ROOT_TEST)?.strip_prefix('/')?;
    (!name.contains('/')).then_some((name, verdict))
}

/// `=== RUN   TestConformance/Name/part`, and the words with which the test goes on after another one.
fn begun(line: &str) -> Option<&str> {
    let mut words = line.strip_prefix("=== ")?.split_whitespace();
    let word = words.next()?;
    let path = words.next()?;
    (matches!(word, "RUN" | "CONT" | "NAME") && path.starts_with(ROOT_TEST)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::{Results, Verdict};

    #[test]
    fn results_are_of_whole_tests() {
        let mut results = Results::default();
        for line in [
            "=== RUN   TestConformance",
            "    suite.go:1: Test Setup: Ensuring GatewayClass has been accepted",
            "\u{16}=== RUN   TestConformance/One",
            "=== RUN   TestConformance/One/part",
            "    one.go:7: wanted 200, got 404",
            "    --- FAIL: TestConformance/One (0.20s)",
            "        --- FAIL: TestConformance/One/part (0.10s)",
            "\u{16}--- PASS: TestConformance/Two (0.00s)",
            "    --- SKIP: TestConformance/Three (0.00s)",
            "--- FAIL: TestConformance (0.30s)",
        ] {
            results.read(line);
        }
        let verdicts: Vec<_> =
            results.verdicts.iter().map(|(name, verdict)| (name.as_str(), *verdict)).collect();
        assert_eq!(
            verdicts,
            [("One", Verdict::Failed), ("Three", Verdict::Skipped), ("Two", Verdict::Passed)]
        );
        assert!(results.lines("One").contains("wanted 200, got 404"));
        assert!(results.lines("").contains("Test Setup"));
    }
}
