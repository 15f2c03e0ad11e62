//! The lab itself: what later tests take for granted about it.

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use gateway_tests::backend::{Backend, Said, Serve};
use gateway_tests::client::http::{Connection, Protocol};
use gateway_tests::client::streams::Streams;
use gateway_tests::client::{Seen, counts, grpc, tcp, udp};
use gateway_tests::netns::{self, Netns};
use gateway_tests::pattern::Check;
use gateway_tests::reap;
use gateway_tests::tls::Identity;
use gateway_tests::topology::{ClientEnd, Family, Lab, Topology};
use std::net::SocketAddr;
use tonic::Code;

/// A lab whose first client can reach its first backend by the node's own routing.
fn routed(topology: Topology) -> Lab {
    let lab = Lab::create(topology).expect("a lab");
    let (client, backend) = (&lab.clients[0], &lab.backends[0]);
    for family in Family::ALL {
        let there = format!("route add {} via {}", backend.address(family), client.node_address(family));
        client.netns.ip_batch(&[there]).expect("a route there");
        let back = format!("route add {} via {}", client.address(family), backend.node_address(family));
        backend.netns.ip_batch(&[back]).expect("a route back");
    }
    lab
}

fn seen(name: &str, count: u64) -> Seen {
    Seen::from([(name.to_owned(), count)])
}

#[test]
fn tcp_and_udp_reach_a_backend_and_every_byte_comes_back() {
    let lab = routed(Topology { backends: 1, ..Topology::default() });
    let _backend = Backend::start(&lab.backends[0].netns, "backend-1", &[Serve::Tcp(7001), Serve::Udp(7001)])
        .expect("serve");
    for family in Family::ALL {
        let to = SocketAddr::new(lab.backends[0].address(family), 7001);
        assert_eq!(tcp::connections(lab.client(), to, 100, 10_000).expect("TCP"), seen("backend-1", 100));
        assert_eq!(
            tcp::connections(lab.client(), to, 2, 1_000_000).expect("large TCP"),
            seen("backend-1", 2)
        );
        assert_eq!(udp::flows(lab.client(), to, 100, 1_000).expect("UDP"), seen("backend-1", 100));
    }
}

#[test]
fn without_routes_of_a_test_nobody_reaches_anybody() {
    let lab = Lab::create(Topology { clients: 2, backends: 1, ..Topology::default() }).expect("a lab");
    for host in lab.clients.iter().chain(&lab.backends) {
        for family in ["-4", "-6"] {
            let routes = host.netns.ip(&format!("{family} route show default")).expect("routes");
            assert_eq!(routes, "", "{} has a default route", host.name);
        }
    }
    let to = SocketAddr::new(lab.backends[0].address(Family::V4), 7001);
    let error = tcp::connections(lab.client(), to, 1, 1).expect_err("there is no route");
    assert!(format!("{error:#}").contains("unreachable"), "{error:#}");
}

#[test]
fn a_refused_connection_is_an_error_of_the_client() {
    let lab = routed(Topology { backends: 1, ..Topology::default() });
    let to = SocketAddr::new(lab.backends[0].address(Family::V6), 7001);
    let error = tcp::connections(lab.client(), to, 1, 1).expect_err("nobody listens");
    assert!(format!("{error:#}").contains("refused"), "{error:#}");
}

#[test]
fn http_of_every_version_reaches_a_backend() {
    let lab = routed(Topology { backends: 1, ..Topology::default() });
    let identity = Identity::for_names(&["lab.example"]).expect("a certificate");
    let https = identity.server(&["h2", "http/1.1"]).expect("server settings");
    let _backend =
        Backend::start(&lab.backends[0].netns, "backend-1", &[Serve::Http(8080), Serve::Https(8443, https)])
            .expect("serve");
    let name = "lab.example".to_owned();
    let tls = |protocol| Protocol::Tls(identity.client(&[protocol]).expect("client settings"), name.clone());
    let ways = [
        (8080, Protocol::Http1, "HTTP/1.1"),
        (8080, Protocol::H2c, "HTTP/2.0"),
        (8443, tls("http/1.1"), "HTTP/1.1"),
        (8443, tls("h2"), "HTTP/2.0"),
    ];
    for (port, protocol, version) in &ways {
        let to = SocketAddr::new(lab.backends[0].address(Family::V6), *port);
        lab.client().block_on(|| async {
            let mut connection = Connection::open(to, protocol).await.expect("connect");
            let answer = connection.get("http://lab.example/some/path?q=1").await.expect("a report");
            let report = answer.report().expect("a report");
            assert_eq!((report.backend.as_str(), report.version.as_str()), ("backend-1", *version));
            assert_eq!((report.authority.as_str(), report.path.as_str()), ("lab.example", "/some/path?q=1"));
            let answer = connection.get("http://lab.example/bytes/300000").await.expect("a large body");
            let mut check = Check::default();
            check.take(&answer.body).expect("the right bytes");
            assert_eq!(check.position, 300_000);
            let answer = connection.get("http://lab.example/status/418").await.expect("a status");
            assert_eq!(answer.status.as_u16(), 418);
        });
    }
}

#[test]
fn grpc_of_all_four_kinds_reaches_a_backend() {
    let lab = routed(Topology { backends: 1, ..Topology::default() });
    let _backend = Backend::start(&lab.backends[0].netns, "backend-1", &[Serve::Http(8080)]).expect("serve");
    let to = SocketAddr::new(lab.backends[0].address(Family::V4), 8080);
    lab.client().block_on(|| async {
        let said = |text: &str, count| Said { backend: String::new(), text: text.to_owned(), count };
        let mut client =
            grpc::Client::connect(to, "lab.example", "gatewayd.lab.Echo").await.expect("connect");
        let answer = client.unary("Unary", said("a", 1)).await.expect("unary");
        assert_eq!((answer.backend.as_str(), answer.text.as_str()), ("backend-1", "a"));
        let answer =
            client.client_stream("Collect", vec![said("a", 0), said("b", 0)]).await.expect("collect");
        assert_eq!((answer.text.as_str(), answer.count), ("ab", 2));
        let answers = client.server_stream("Count", said("a", 3)).await.expect("count");
        assert_eq!(answers.iter().map(|said| said.count).collect::<Vec<_>>(), [1, 2, 3]);
        let answers = client.chat("Chat", vec![said("a", 0), said("b", 0)]).await.expect("chat");
        assert_eq!(answers.iter().map(|said| said.text.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let status = client.unary("Fail", said("no more", 8)).await.expect_err("a status");
        assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "no more"));
        assert_eq!(
            status.metadata().get("x-lab-backend").and_then(|name| name.to_str().ok()),
            Some("backend-1")
        );
        let status = client.unary("Nothing", said("", 0)).await.expect_err("a status");
        assert_eq!(status.code(), Code::Unimplemented);
    });
}

#[test]
fn long_lived_connections_tell_when_they_were_cut() {
    let lab = routed(Topology { backends: 1, ..Topology::default() });
    let backend = Backend::start(&lab.backends[0].netns, "backend-1", &[Serve::Tcp(7001)]).expect("serve");
    let to = SocketAddr::new(lab.backends[0].address(Family::V4), 7001);
    let streams = Streams::start(lab.client(), to, 20).expect("streams");
    streams.wait_for_rounds(3, 20);
    let reports = streams.stop().expect("reports");
    assert!(
        reports.iter().all(|report| report.failure.is_none() && report.backend == "backend-1"),
        "{reports:?}"
    );
    let streams = Streams::start(lab.client(), to, 20).expect("streams");
    drop(backend);
    streams.wait_for_end();
    let reports = streams.stop().expect("reports");
    assert!(reports.iter().all(|report| report.failure.is_some()), "{reports:?}");
}

#[test]
fn each_end_has_the_offloads_that_were_asked_for() {
    let features = |netns: &Netns, interface: &str| {
        let mut ethtool = netns.command("ethtool").expect("a command");
        let output = ethtool.args(["-k", interface]).output().expect("ethtool");
        String::from_utf8(output.stdout).expect("text")
    };
    let lab = Lab::create(Topology { backends: 1, backends_take_redirects: true, ..Topology::default() })
        .expect("a lab");
    let shown = features(lab.client(), "eth0");
    assert!(shown.contains("tx-checksumming: off"), "{shown}");
    let link = lab.client().ip("-d link show eth0").expect("a link");
    assert!(link.contains("prog/xdp"), "without a program a veth keeps what XDP sends back: {link}");
    assert!(features(&lab.backends[0].netns, "eth0").contains("generic-receive-offload: on"));
    let pods =
        Topology { backends: 1, client_end: ClientEnd::Veth, static_neighbours: true, ..Topology::default() };
    let lab = Lab::create(pods).expect("a lab");
    let shown = features(lab.client(), "eth0");
    assert!(
        shown.contains("tx-checksumming: on") && shown.contains("tcp-segmentation-offload: on"),
        "{shown}"
    );
    let neighbours = lab.node.ip("neigh show nud permanent").expect("neighbours");
    assert_eq!(neighbours.lines().count(), 4, "{neighbours}");
}

#[test]
fn a_panic_leaves_no_namespace_and_no_link() {
    let mut name = String::new();
    let panicked = panic::catch_unwind(AssertUnwindSafe(|| {
        let lab = Lab::create(Topology::default()).expect("a lab");
        name.clone_from(&lab.name);
        assert!(names_with(&name) == 6, "client, node and four backends");
        let _backend =
            Backend::start(&lab.backends[0].netns, "backend-1", &[Serve::Tcp(7001)]).expect("serve");
        panic!("as a failing test does");
    }));
    assert!(panicked.is_err());
    assert_eq!(names_with(&name), 0);
}

#[test]
fn what_a_killed_test_left_is_removed() {
    reap::dead().expect("what an earlier failure of this test left");
    // Above the kernel's largest process id: nobody's.
    let orphan = format!("{}4194999-0-client", reap::PREFIX);
    let left = Netns::create(&orphan).expect("a namespace");
    std::mem::forget(left);
    let lab = Lab::create(Topology { backends: 1, ..Topology::default() }).expect("a lab");
    let removed = reap::dead().expect("reap");
    assert!(removed.contains(&format!("namespace {orphan}")), "{removed:?}");
    assert!(!Path::new(netns::NAMES).join(&orphan).exists());
    assert_eq!(names_with(&lab.name), 3, "a living test keeps its own");
}

#[test]
#[should_panic(expected = "a backend answered that was not asked for")]
fn an_answer_of_a_stranger_is_not_lost() {
    counts(&seen("backend-9", 1), &["backend-1"]);
}

fn names_with(prefix: &str) -> usize {
    let entries = fs::read_dir(netns::NAMES).expect("names of namespaces");
    entries
        .filter(|entry| entry.as_ref().is_ok_and(|e| e.file_name().to_string_lossy().starts_with(prefix)))
        .count()
}
