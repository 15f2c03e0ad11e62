//! Floods of first packets from sources that nobody has: whoever is served, and whoever comes honestly, must not notice.

use std::net::{SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use gateway_tests::backend::{Backend, Serve};
use gateway_tests::client::{streams::Streams, tcp};
use gateway_tests::daemon::Gatewayd;
use gateway_tests::manifest::{self, STREAM_PORT, gateway_address};
use gateway_tests::packet::{Frame, tcp_flags::SYN};
use gateway_tests::topology::{Family, Lab, Topology};
use socket2::{Domain, Protocol, Socket, Type};

const PORT: u16 = 9000;
/// Connections that carry data all the while.
const CONNECTIONS: usize = 1_000;
/// Room for flows: enough for the connections, far too little for the flood.
const MAX_FLOWS: u32 = 8_192;
/// First packets of each kind; more, until honest clients have come in.
const FLOOD: u64 = 100_000;

/// `n`th of some hundred million sources within 198.18.128.0/17, each with a port.
fn source(n: u64) -> String {
    let [.., third, fourth, high, low] = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).to_be_bytes();
    format!("198.18.{}.{fourth}:{}", third | 128, u16::from_be_bytes([high, low]) | 1_024)
}

/// Sends first packets until there were enough and `done` says so; gives back how many.
fn flood(first_packet: impl Fn(&str, &str) -> Frame, to: SocketAddr, sent: &AtomicU64, done: &AtomicBool) {
    // IPPROTO_RAW: the network header is ours.
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255))).expect("a raw socket");
    let SocketAddr::V4(to) = to else { panic!("floods are of IPv4") };
    let next_hop = SocketAddrV4::new(*to.ip(), 0).into();
    let to = to.to_string();
    while sent.load(Ordering::Relaxed) < FLOOD || !done.load(Ordering::Relaxed) {
        let packet = first_packet(&source(sent.fetch_add(1, Ordering::Relaxed)), &to).network();
        // A queue that is full is a packet less.
        let _ = socket.send_to(&packet, &next_hop);
    }
}

fn start(lab: &Lab) -> Gatewayd<'_> {
    let mut daemon = Gatewayd::new(lab).expect("a daemon");
    daemon.interfaces = lab
        .interfaces()
        .map(|name| format!("{name}={}", if name.starts_with("client") { "xdp" } else { "tc" }))
        .collect();
    daemon.arguments = vec!["--max-flows".to_owned(), MAX_FLOWS.to_string()];
    let listeners = [("tcp", "TCP", PORT), ("udp", "UDP", PORT)];
    daemon.write("gateway.yaml", &manifest::gateway(&listeners)).expect("write");
    daemon.write("backends.yaml", &manifest::backends(&lab.backends)).expect("write");
    let weights = [("backend-1", 1), ("backend-2", 1)];
    for (kind, name) in [("TCPRoute", "tcp"), ("UDPRoute", "udp")] {
        daemon
            .write(&format!("{name}.yaml"), &manifest::stream_route(kind, name, name, &weights))
            .expect("write");
    }
    let status = daemon.start().expect("gatewayd starts");
    assert_eq!(status.complaints(), Vec::<String>::new());
    daemon
}

#[test]
fn a_flood_breaks_no_connection_and_keeps_no_client_out() {
    let lab = Lab::create(Topology { backends_take_redirects: true, ..Topology::default() }).expect("a lab");
    let backend = |host: &gateway_tests::topology::Host| {
        Backend::start(&host.netns, &host.name, &[Serve::Tcp(STREAM_PORT)])
    };
    let _backends: Vec<_> = lab.backends.iter().map(|host| backend(host).expect("serve")).collect();
    let daemon = start(&lab);
    let to = SocketAddr::new(gateway_address(Family::V4), PORT);
    let streams = Streams::start(lab.client(), to, CONNECTIONS).expect("streams");

    let (sent, done) = ([AtomicU64::new(0), AtomicU64::new(0)], AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            lab.client().run(|| flood(|from, to| Frame::tcp(from, to, SYN), to, &sent[0], &done));
        });
        scope.spawn(|| {
            lab.client().run(|| flood(|from, to| Frame::udp(from, to, b"flood"), to, &sent[1], &done));
        });
        let honest = tcp::connections(lab.client(), to, 200, 1_000);
        done.store(true, Ordering::Relaxed);
        honest.expect("honest clients come in");
    });
    streams.wait_for_rounds(3, CONNECTIONS);
    let reports = streams.stop().expect("reports");
    let broken: Vec<_> = reports.iter().filter_map(|report| report.failure.as_ref()).collect();
    assert!(broken.is_empty(), "{} of {CONNECTIONS} broke: {broken:?}", broken.len());

    let status = daemon.status().expect("a report");
    let begun: u64 = ["tcp", "udp"]
        .iter()
        .flat_map(|protocol| status.backends(gateway_address(Family::V4), PORT, protocol))
        .map(|backend| backend.flows)
        .sum();
    assert!(begun > FLOOD, "the flood came through: {begun} flows, {status:?}");
}
