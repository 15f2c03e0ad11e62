//! Two nodes on one cluster: both serve, each address is on one of them, and it moves when its node is gone.
//!
//! `cargo xtask test --cluster` builds the programs that this needs and names them in the environment.
#![cfg(feature = "cluster")]
#![expect(clippy::unwrap_used, reason = "a failure anywhere in a test is the test's")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use gateway_tests::cluster::{base_path, kubectl_path, owner};
use gateway_tests::daemon;
use gateway_tests::reap::{PINS, PREFIX};
use gateway_tests::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(90);
const GATEWAYS: usize = 6;
const NAMESPACE: &str = "gateway-conformance-infra";

#[test]
fn addresses_move_to_the_node_that_is_left() {
    let bench = Bench::up();
    bench.apply(&manifests());
    let mut nodes = [Node::new(&bench, "node"), Node::new(&bench, "node2")];
    for node in &mut nodes {
        node.start();
    }
    let addresses = eventually(SOON, "every Gateway to have its addresses", || bench.addresses());
    bench.wait_until_all_answer(&addresses);
    let before = eventually(SOON, "both nodes to agree who has which address", || {
        let [one, other] = [nodes[0].owners()?, nodes[1].owners()?];
        ensure!(one == other, "{one:?} and {other:?}");
        ensure!(
            addresses.iter().all(|address| one.contains_key(address)),
            "not all of {addresses:?}: {one:?}"
        );
        ensure!(one.values().collect::<BTreeSet<_>>().len() == 2, "one node has them all: {one:?}");
        Ok(one)
    });

    let leads = eventually(SOON, "a node to write statuses", || bench.leader());
    let (gone, left) = if leads == "node" { (0, 1) } else { (1, 0) };
    bench.wait_until_both_are_needed(&nodes[left]);

    // The one that writes statuses is the one that dies.
    let killed = Instant::now();
    nodes[gone].signal(Signal::KILL);
    bench.wait_until_all_answer(&addresses);
    println!("killed: all addresses answer again after {:.1} s", killed.elapsed().as_secs_f64());
    let after = nodes[left].owners().unwrap();
    assert!(after.values().all(|owner| *owner == nodes[left].name), "{after:?}");
    let took = eventually(SOON, "the other node to write statuses", || {
        ensure!(bench.leader()? == nodes[left].name, "not yet");
        bench.kubectl(&["annotate", "gateway", "--all", "--namespace", NAMESPACE, "--overwrite", "a=b"]);
        Ok(killed.elapsed())
    });
    println!("killed: the other node writes statuses after {:.1} s", took.as_secs_f64());

    nodes[gone].start();
    eventually(SOON, "each address to come back to its node", || {
        let [one, other] = [nodes[0].owners()?, nodes[1].owners()?];
        let as_before = before.iter().all(|(address, owner)| one.get(address) == Some(owner));
        ensure!(as_before && one == other, "{one:?} and {other:?}, not {before:?}");
        Ok(())
    });
    bench.wait_until_all_answer(&addresses);

    let asked = Instant::now();
    nodes[gone].signal(Signal::TERM);
    bench.wait_until_all_answer(&addresses);
    println!("asked to leave: all addresses answer again after {:.1} s", asked.elapsed().as_secs_f64());
    nodes[left].signal(Signal::TERM);
}

/// A cluster in the background, without a gatewayd.
struct Bench {
    state: PathBuf,
    /// How its namespaces' names begin.
    prefix: String,
}

impl Bench {
    fn up() -> Self {
        let mut bench =
            Self { state: Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-nodes"), prefix: String::new() };
        bench.run("down");
        bench.run("up");
        bench.prefix = format!("{PREFIX}{}-bench-", owner(&bench.state).unwrap().expect("it is up"));
        bench.kubectl(&["apply", "--filename", &base_path(&bench.state).to_string_lossy()]);
        bench.kubectl(&[
            "wait",
            "--namespace",
            NAMESPACE,
            "--for=condition=Available",
            "--timeout=90s",
            "deployment/infra-backend-v1",
        ]);
        bench
    }

    fn run(&self, task: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gateway-bench"));
        finish(command.arg(task).arg("--state").arg(&self.state)).unwrap();
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        finish(Command::new(kubectl_path(&self.state)).args(arguments)).unwrap()
    }

    fn get(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = Command::new(kubectl_path(&self.state));
        let text = finish(command.arg("get").args(arguments).args(["--output", "json"]))?;
        serde_json::from_str(&text).context("read what kubectl says")
    }

    fn apply(&self, text: &str) {
        let file = self.state.join("objects.yaml");
        fs::write(&file, text).unwrap();
        self.kubectl(&["apply", "--filename", &file.to_string_lossy()]);
    }

    /// The addresses of our Gateways, once all of them are programmed.
    fn addresses(&self) -> Result<Vec<String>> {
        let list = self.get(&["gateways", "--namespace", NAMESPACE, "--selector", "of=nodes"])?;
        let gateways = list["items"].as_array().context("a list")?;
        ensure!(gateways.len() == GATEWAYS, "{} Gateways", gateways.len());
        let mut addresses = Vec::new();
        for gateway in gateways {
            let status = &gateway["status"];
            let conditions = status["conditions"].as_array().context("conditions")?;
            let programmed = conditions.iter().any(|of| of["type"] == "Programmed" && of["status"] == "True");
            ensure!(programmed, "not programmed: {status}");
            let own = status["addresses"].as_array().context("addresses")?;
            addresses.extend(own.iter().filter_map(|address| address["value"].as_str().map(str::to_owned)));
        }
        Ok(addresses)
    }

    /// A Gateway is programmed only when the node that does not write statuses has applied it too.
    fn wait_until_both_are_needed(&self, other: &Node<'_>) {
        let programmed = || -> Result<Value> {
            let gateway = self.get(&["gateway", "late", "--namespace", NAMESPACE])?;
            let conditions = gateway["status"]["conditions"].as_array().context("no conditions yet")?;
            // The API server has put a condition there that says nothing, of no generation.
            let written =
                conditions.iter().find(|of| of["type"] == "Programmed" && of["observedGeneration"] == 1);
            Ok(written.context("not written yet")?.clone())
        };
        other.freeze(Signal::STOP);
        self.apply(&gateway("late", ""));
        let said = eventually(SOON, "a word about the Gateway", programmed);
        assert_eq!(said["status"], "False", "{said}");
        let message = said["message"].as_str().unwrap();
        assert!(message.contains(&format!("node {} has not applied it yet", other.name)), "{message}");
        other.freeze(Signal::CONT);
        eventually(SOON, "the Gateway to be programmed", || {
            let said = programmed()?;
            ensure!(said["status"] == "True", "{said}");
            Ok(())
        });
    }

    /// The node that writes statuses.
    fn leader(&self) -> Result<String> {
        let lease = self.get(&["lease", "gatewayd", "--namespace", "default"])?;
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let (node, _) = holder.split_once('_').context("nobody")?;
        Ok(node.to_owned())
    }

    /// Through the proxy and through the kernel.
    fn wait_until_all_answer(&self, addresses: &[String]) {
        for address in addresses {
            // The pods' Service is of IPv4 alone, and the kernel does not translate between families.
            let ports: &[u16] = if address.contains(':') { &[80] } else { &[80, 81] };
            for port in ports {
                let host = if address.contains(':') { format!("[{address}]") } else { address.clone() };
                let url = format!("http://{host}:{port}/");
                eventually(SOON, &format!("an answer from {url}"), || {
                    let mut curl = self.inside("control", "curl");
                    let answer = finish(curl.args(["--silent", "--show-error", "--max-time", "1", &url]))?;
                    ensure!(answer.contains("infra-backend-v1"), "{answer}");
                    Ok(())
                });
            }
        }
    }

    /// A program in one of the cluster's namespaces.
    fn inside(&self, namespace: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}{namespace}", self.prefix)).arg(program);
        command
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.run("down");
    }
}

/// A gatewayd on one of the nodes.
struct Node<'a> {
    bench: &'a Bench,
    name: &'static str,
    state: PathBuf,
    process: Option<Child>,
}

impl<'a> Node<'a> {
    fn new(bench: &'a Bench, name: &'static str) -> Self {
        let state = bench.state.join(format!("gatewayd-{name}"));
        fs::remove_dir_all(&state)
            .or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })
            .unwrap();
        Self { bench, name, state, process: None }
    }

    fn start(&mut self) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.bench.state.join(format!("logs/{}.log", self.name)))
            .unwrap();
        let mut command = self.bench.inside(self.name, daemon::program().unwrap());
        command.args(["run", "--kubernetes", "--cleanup-on-exit", "--drain-timeout", "1"]);
        command.args(["--node-name", self.name, "--lease-duration", "8", "--interface", "uplink"]);
        if self.name == "node" {
            command.args(["--interface", "pods0"]);
        }
        command.args(["--address-pool", "198.18.64.0/24", "--address-pool", "fd00:18:64::/64"]);
        command.arg("--state-dir").arg(&self.state).arg("--pin-dir").arg(self.pins());
        command.env("KUBECONFIG", self.bench.state.join("pki/kubeconfig"));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(command.spawn().unwrap());
    }

    /// Named after this process, so that whoever cleans up knows whether anybody still needs them.
    fn pins(&self) -> PathBuf {
        Path::new(PINS).join(format!("{PREFIX}{}-{}", process::id(), self.name))
    }

    /// Stops it where it is, or lets it go on.
    fn freeze(&self, signal: Signal) {
        kill_process(Pid::from_child(self.process.as_ref().unwrap()), signal).unwrap();
    }

    /// Ends it.
    fn signal(&mut self, signal: Signal) {
        let Some(mut process) = self.process.take() else { return };
        kill_process(Pid::from_child(&process), signal).unwrap();
        process.wait().unwrap();
    }

    /// Who has which address, as this node sees it; what it has itself must be on its device.
    fn owners(&self) -> Result<BTreeMap<String, String>> {
        let mut command = Command::new(daemon::program()?);
        let text = finish(command.args(["status", "--output", "json", "--state-dir"]).arg(&self.state))?;
        let status: Value = serde_json::from_str(&text)?;
        let device =
            finish(self.bench.inside(self.name, "ip").args(["-brief", "address", "show", "uplink"]))?;
        let mut owners = BTreeMap::new();
        for of in status["addresses"].as_array().context("addresses")? {
            let address = of["address"].as_str().context("an address")?.to_owned();
            let owner = of["node"].as_str().context("no owner yet")?.to_owned();
            let is_on_device = device.split_whitespace().any(|word| word.split('/').next() == Some(&address));
            ensure!(
                is_on_device == (owner == self.name),
                "{address} is {owner}'s, on {}: {device}",
                self.name
            );
            owners.insert(address, owner);
        }
        Ok(owners)
    }
}

impl Drop for Node<'_> {
    /// After a failed assertion; otherwise it has ended.
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        let mut cleanup = self.bench.inside(self.name, daemon::program().unwrap());
        cleanup.args(["cleanup", "--state-dir"]).arg(&self.state).arg("--pin-dir").arg(self.pins());
        finish(&mut cleanup).unwrap();
    }
}

/// A Gateway with a listener of the proxy and one of the kernel.
fn gateway(name: &str, metadata: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
         metadata: {{name: {name}, namespace: {NAMESPACE}{metadata}}}\n\
         spec:\n  gatewayClassName: gateway-conformance\n  listeners:\n  \
         - {{name: http, port: 80, protocol: HTTP}}\n  - {{name: tcp, port: 81, protocol: TCP}}\n"
    )
}

/// Gateways, each with a listener of the proxy and one of the kernel, all to the same pods.
fn manifests() -> String {
    let mut documents = Vec::new();
    let mut parents = Vec::new();
    for number in 0..GATEWAYS {
        documents.push(gateway(&format!("nodes-{number}"), ", labels: {of: nodes}"));
        parents.push(format!("{{name: nodes-{number}}}"));
    }
    let parents = parents.join(", ");
    for kind in ["HTTPRoute", "TCPRoute"] {
        documents.push(format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\n\
             metadata: {{name: nodes, namespace: {NAMESPACE}}}\n\
             spec:\n  parentRefs: [{parents}]\n  rules:\n  \
             - backendRefs: [{{name: infra-backend-v1, port: 8080}}]\n"
        ));
    }
    documents.join("---\n")
}

fn finish(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("start {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}: {}{said}", output.status, String::from_utf8_lossy(&output.stdout));
    }
    String::from_utf8(output.stdout).with_context(|| format!("read what {command:?} says"))
}
