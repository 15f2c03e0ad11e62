//! The bench itself: the suite's base set runs on it, and it goes without a trace, even when it is killed.
//!
//! `cargo xtask test --cluster` builds the programs that this needs, names them in the environment and runs it.
// Not `required-features`: cargo refuses `--test "*"`, which runs all others, where a test lacks its own.
#![cfg(feature = "cluster")]
#![expect(clippy::unwrap_used, reason = "a failure anywhere in a test is the test's")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use gateway_tests::cluster::{base_path, kubectl_path, owner};
use gateway_tests::netns;
use gateway_tests::reap::PREFIX;
use gateway_tests::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize as _;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn the_base_set_runs_and_goes_without_a_trace() {
    let bench = Bench::up("clean");
    bench.kubectl(&["apply", "--filename", &base_path(&bench.state).to_string_lossy()]);
    for (namespace, name) in bench.secrets_of_the_base_set() {
        bench.make_secret(&namespace, &name);
    }
    let wanted = bench.replicas_of_the_base_set();
    assert!(wanted > 20, "the base set is not what it was: {wanted} pods");
    eventually(SOON, "all pods to be there and ready", || {
        let pods = bench.all_ready()?;
        ensure!(pods.len() == wanted, "{} pods of {wanted}", pods.len());
        Ok(())
    });
    bench.an_echo_answers_and_its_log_says_so();
    bench.a_deleted_pod_is_replaced();
    let owner = bench.owner;
    bench.run("down");
    assert_eq!(namespaces_of(owner), Vec::<String>::new());
    assert_eq!(processes_under(&bench.state), Vec::<String>::new());
}

#[test]
fn everything_dies_with_a_killed_bench_and_the_next_removes_what_is_left() {
    let bench = Bench::up("killed");
    bench.kubectl(&["apply", "--filename", &base_path(&bench.state).to_string_lossy()]);
    eventually(SOON, "a pod of the base set", || {
        let ready = bench.pods().iter().filter(|pod| pod.ready).count();
        ensure!(ready > 0, "none is ready");
        Ok(())
    });
    let owner =
        i32::try_from(bench.owner).ok().and_then(Pid::from_raw).expect("a process has a positive number");
    kill_process(owner, Signal::KILL).expect("it runs");
    eventually(SOON, "all processes to die", || match processes_under(&bench.state).as_slice() {
        [] => Ok(()),
        left => Err(left.join("\n")),
    });
    bench.run("down");
    assert_eq!(namespaces_of(bench.owner), Vec::<String>::new());
}

/// A bench in the background, with a folder of its own.
struct Bench {
    state: PathBuf,
    owner: u32,
}

/// A pod as its object tells.
struct Pod {
    namespace: String,
    name: String,
    address: String,
    ready: bool,
}

impl Bench {
    fn up(name: &str) -> Self {
        let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{name}"));
        let mut bench = Self { state, owner: 0 };
        bench.run("down");
        bench.run("up");
        bench.owner = owner(&bench.state).unwrap().expect("a bench that is up has an owner");
        bench
    }

    fn run(&self, task: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gateway-bench"));
        finish(command.arg(task).arg("--state").arg(&self.state)).unwrap();
    }

    fn try_kubectl(&self, arguments: &[&str]) -> Result<String> {
        finish(Command::new(kubectl_path(&self.state)).args(arguments))
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        self.try_kubectl(arguments).unwrap()
    }

    fn pods(&self) -> Vec<Pod> {
        let listed: Value =
            serde_json::from_str(&self.kubectl(&["get", "pods", "--all-namespaces", "--output=json"]))
                .unwrap();
        listed["items"].as_array().unwrap().iter().map(Pod::of).collect()
    }

    fn all_ready(&self) -> Result<Vec<Pod>> {
        let pods = self.pods();
        let waiting: Vec<&str> = pods.iter().filter(|pod| !pod.ready).map(|pod| pod.name.as_str()).collect();
        ensure!(!pods.is_empty() && waiting.is_empty(), "not ready: {waiting:?}");
        Ok(pods)
    }

    fn base_objects(&self, kind: &str) -> Vec<Value> {
        let text = fs::read_to_string(base_path(&self.state)).unwrap();
        serde_yaml::Deserializer::from_str(&text)
            .map(|document| Value::deserialize(document).unwrap())
            .filter(|object| object["kind"] == kind)
            .collect()
    }

    fn replicas_of_the_base_set(&self) -> usize {
        let deployments = self.base_objects("Deployment");
        let replicas =
            deployments.iter().map(|deployment| deployment["spec"]["replicas"].as_u64().unwrap_or(1));
        usize::try_from(replicas.sum::<u64>()).unwrap()
    }

    /// The Secrets that its pods mount, which the suite makes by program.
    fn secrets_of_the_base_set(&self) -> BTreeSet<(String, String)> {
        let mut secrets = BTreeSet::new();
        for deployment in self.base_objects("Deployment") {
            let namespace = deployment["metadata"]["namespace"].as_str().unwrap();
            let volumes = deployment["spec"]["template"]["spec"]["volumes"].as_array();
            for name in
                volumes.into_iter().flatten().filter_map(|volume| volume["secret"]["secretName"].as_str())
            {
                secrets.insert((namespace.to_owned(), name.to_owned()));
            }
        }
        secrets
    }

    fn make_secret(&self, namespace: &str, name: &str) {
        let made = rcgen::generate_simple_self_signed(["abc.example.com".to_owned()]).unwrap();
        let (certificate, key) = (self.state.join("tls.crt"), self.state.join("tls.key"));
        fs::write(&certificate, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let (cert, key) = (format!("--cert={}", certificate.display()), format!("--key={}", key.display()));
        self.kubectl(&["create", "secret", "tls", name, "--namespace", namespace, &cert, &key]);
    }

    fn an_echo_answers_and_its_log_says_so(&self) {
        let pods = self.pods();
        let echo =
            pods.iter().find(|pod| pod.name.starts_with("infra-backend-v1-")).expect("it is in the base set");
        let node = format!("/run/netns/{PREFIX}{}-bench-node", self.owner);
        let url = format!("http://{}:3000/from-the-node", echo.address);
        let mut curl = Command::new("nsenter");
        let answer =
            finish(curl.arg(format!("--net={node}")).args(["curl", "--silent", "--max-time", "5", &url]));
        let answer: Value = serde_json::from_str(&answer.unwrap()).unwrap();
        assert_eq!(answer["path"], "/from-the-node");
        assert_eq!(answer["pod"], echo.name.as_str());
        let log = |since: &str| {
            self.kubectl(&[
                "logs",
                "--namespace",
                &echo.namespace,
                &echo.name,
                &format!("--since-time={since}"),
            ])
        };
        assert!(log("2000-01-01T00:00:00Z").contains("request made to /from-the-node"));
        assert_eq!(log("2200-01-01T00:00:00Z"), "");
    }

    fn a_deleted_pod_is_replaced(&self) {
        let before = self.pods();
        let first =
            before.iter().find(|pod| pod.name.starts_with("web-backend-")).expect("it is in the base set");
        self.kubectl(&["delete", "pod", "--namespace", &first.namespace, &first.name, "--timeout=30s"]);
        eventually(SOON, "another pod in its place", || {
            let pods = self.all_ready()?;
            ensure!(pods.len() == before.len(), "{} pods of {}", pods.len(), before.len());
            ensure!(pods.iter().all(|pod| pod.name != first.name), "it is still there");
            Ok(())
        });
    }
}

impl Drop for Bench {
    /// After a failed assertion; otherwise there is nothing left to do.
    fn drop(&mut self) {
        self.run("down");
    }
}

impl Pod {
    fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let conditions = object["status"]["conditions"].as_array();
        let ready = conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        Self {
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"]),
            address: text(&object["status"]["podIP"]),
            ready,
        }
    }
}

/// Names of the namespaces that a bench of this process made.
fn namespaces_of(owner: u32) -> Vec<String> {
    let prefix = format!("{PREFIX}{owner}-");
    let entries = fs::read_dir(netns::NAMES).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|n| n.starts_with(&prefix))
        .collect()
}

/// Processes whose root, working folder or arguments are in the bench's folder: the control plane's and all pods'.
fn processes_under(state: &Path) -> Vec<String> {
    let state = state.to_string_lossy();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        let root = fs::read_link(entry.path().join("root")).unwrap_or_default();
        if arguments.contains(&*state) || root.to_string_lossy().starts_with(&*state) {
            found.push(format!("{pid} {arguments}"));
        }
    }
    found
}

fn finish(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("start {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}: {}{said}", output.status, String::from_utf8_lossy(&output.stdout));
    }
    String::from_utf8(output.stdout).map_err(|error| anyhow!("{command:?}: {error}"))
}
