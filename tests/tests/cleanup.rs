//! Nothing is left behind, and nothing is taken away that was not ours.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use aya::programs::SchedClassifier;
use aya::programs::tc::TcAttachType;
use gateway_tests::backend::{Backend, Serve};
use gateway_tests::client::tcp;
use gateway_tests::daemon::Gatewayd;
use gateway_tests::manifest::{self, STREAM_PORT, gateway_address};
use gateway_tests::netns::Netns;
use gateway_tests::topology::{Family, Lab, Topology};

const PORT: u16 = 9000;

/// All of a node that a daemon could have changed.
#[derive(Debug, Eq, PartialEq)]
struct Node {
    links: String,
    addresses: String,
    routes: String,
    rules: String,
    settings: BTreeMap<String, String>,
    /// Programs attached by tcx, by interface.
    tcx: BTreeMap<String, usize>,
}

fn look(lab: &Lab) -> Node {
    let ip = |arguments: &str| lab.node.ip(arguments).expect("ip");
    // Statistics and lifetimes are not asked for; what is left stays the same while nobody changes it.
    Node {
        links: ip("-o -d link show"),
        addresses: ip("-o address show"),
        routes: [ip("-4 route show table all"), ip("-6 route show table all")].concat(),
        rules: [ip("-4 rule show"), ip("-6 rule show")].concat(),
        settings: lab.node.run(|| settings(Path::new("/proc/sys/net"))),
        tcx: lab.interfaces().map(|name| (name.to_owned(), tcx(&lab.node, name))).collect(),
    }
}

fn tcx(node: &Netns, interface: &str) -> usize {
    let directions = [TcAttachType::Ingress, TcAttachType::Egress];
    let programs =
        directions.map(|direction| node.run(move || SchedClassifier::query_tcx(interface, direction)));
    programs.map(|found| found.expect("ask for tcx programs").1.len()).iter().sum()
}

/// Every value below `dir` that can be read.
fn settings(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a folder of settings").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.append(&mut settings(&path));
        } else if let Ok(value) = fs::read_to_string(&path) {
            found.insert(path.display().to_string(), value);
        }
    }
    // Counters and clocks that live among the settings.
    found.retain(|name, _| !name.ends_with("/dst_entries") && !name.contains("nf_conntrack_count"));
    found
}

fn start(lab: &Lab) -> (Gatewayd<'_>, Backend) {
    let host = &lab.backends[0];
    let backend = Backend::start(&host.netns, &host.name, &[Serve::Tcp(STREAM_PORT)]).expect("serve");
    let mut daemon = Gatewayd::new(lab).expect("a daemon");
    daemon.interfaces = vec!["client=xdp".to_owned(), "backend-1=tc".to_owned()];
    daemon.write("gateway.yaml", &manifest::gateway(&[("tcp", "TCP", PORT)])).expect("write");
    daemon.write("backends.yaml", &manifest::backends(&lab.backends)).expect("write");
    let route = manifest::stream_route("TCPRoute", "route", "tcp", &[("backend-1", 1)]);
    daemon.write("route.yaml", &route).expect("write");
    (daemon, backend)
}

fn connect(lab: &Lab) -> anyhow::Result<()> {
    Family::ALL.into_iter().try_for_each(|family| {
        tcp::connections(lab.client(), SocketAddr::new(gateway_address(family), PORT), 20, 100).map(drop)
    })
}

fn lab() -> Lab {
    let topology = Topology { backends: 1, backends_take_redirects: true, ..Topology::default() };
    Lab::create(topology).expect("a lab")
}

#[test]
fn sigterm_leaves_the_kernel_path_and_cleanup_leaves_nothing() {
    let lab = lab();
    let before = look(&lab);
    let (mut daemon, _backend) = start(&lab);
    daemon.start().expect("gatewayd starts");
    connect(&lab).expect("connections");
    let during = look(&lab);
    assert_ne!(during.addresses, before.addresses, "the Gateway's addresses are on the node");
    assert!(during.tcx["client"] == 1 && during.tcx["backend-1"] == 1, "{:?}", during.tcx);
    assert!(during.links.contains("prog/xdp"), "{}", during.links);

    let exit = daemon.terminate().expect("gatewayd stops");
    assert!(exit.success(), "{exit}: {}", daemon.log());
    connect(&lab).expect("the kernel path serves without a daemon");

    daemon.cleanup().expect("gatewayd cleanup");
    assert_eq!(look(&lab), before);
    assert!(!daemon.pin_dir().exists(), "pins are gone");
    connect(&lab).expect_err("nobody serves any more");
    daemon.cleanup().expect("there is nothing to clean up, and that is no error");
}

#[test]
fn cleanup_after_a_crash_leaves_nothing() {
    let lab = lab();
    let before = look(&lab);
    let (mut daemon, _backend) = start(&lab);
    daemon.start().expect("gatewayd starts");
    daemon.kill().expect("kill -9");
    daemon.cleanup().expect("gatewayd cleanup");
    assert_eq!(look(&lab), before);
    assert!(!daemon.pin_dir().exists(), "pins are gone");
}

#[test]
fn cleanup_on_exit_leaves_nothing() {
    let lab = lab();
    let before = look(&lab);
    let (mut daemon, _backend) = start(&lab);
    daemon.arguments.push("--cleanup-on-exit".to_owned());
    daemon.start().expect("gatewayd starts");
    connect(&lab).expect("connections");
    let exit = daemon.terminate().expect("gatewayd stops");
    assert!(exit.success(), "{exit}: {}", daemon.log());
    assert_eq!(look(&lab), before);
    assert!(!daemon.pin_dir().exists(), "pins are gone");
}
