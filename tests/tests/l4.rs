//! TCP and UDP steered in the kernel, end to end: by weight, byte for byte, over whichever entry a device has.

use std::fs;
use std::net::{IpAddr, SocketAddr};

use gateway_tests::backend::{Backend, Serve};
use gateway_tests::client::{counts, tcp, udp};
use gateway_tests::daemon::{Gatewayd, Status};
use gateway_tests::manifest::{self, STREAM_PORT, gateway_address};
use gateway_tests::shares;
use gateway_tests::topology::{ClientEnd, Family, Lab, Topology};

const NAMES: [&str; 4] = ["backend-1", "backend-2", "backend-3", "backend-4"];
const WEIGHTS: [u64; 4] = [80, 15, 5, 0];
const PORT: u16 = 9000;

/// The node's side of the clients stands for a NIC, and the backends' side takes what XDP sends to it.
const NIC: Topology = Topology {
    clients: 1,
    backends: 4,
    client_end: ClientEnd::Nic,
    backends_take_redirects: true,
    static_neighbours: false,
};

/// Backends as pods have their veths: XDP must leave packets to them to TC.
const PODS: Topology = Topology { backends_take_redirects: false, ..NIC };

/// Nothing but veths with all their offloads, as between containers.
const VETHS: Topology = Topology { client_end: ClientEnd::Veth, ..PODS };

fn serve(lab: &Lab) -> Vec<Backend> {
    let serve = [Serve::Tcp(STREAM_PORT), Serve::Udp(STREAM_PORT)];
    lab.backends.iter().map(|host| Backend::start(&host.netns, &host.name, &serve).expect("serve")).collect()
}

/// A daemon that serves `weights` over TCP and UDP; the clients' interface and the others each in a mode.
fn start<'lab>(lab: &'lab Lab, clients: &str, others: &str, weights: &[u64]) -> Gatewayd<'lab> {
    let mut daemon = Gatewayd::new(lab).expect("a daemon");
    daemon.interfaces = lab
        .interfaces()
        .map(|name| format!("{name}={}", if name.starts_with("client") { clients } else { others }))
        .collect();
    let weights: Vec<(&str, i64)> = NAMES
        .iter()
        .zip(weights)
        .map(|(name, weight)| (*name, i64::try_from(*weight).expect("a weight")))
        .collect();
    let listeners = [("tcp", "TCP", PORT), ("udp", "UDP", PORT)];
    daemon.write("gateway.yaml", &manifest::gateway(&listeners)).expect("write");
    daemon.write("backends.yaml", &manifest::backends(&lab.backends)).expect("write");
    daemon.write("tcp.yaml", &manifest::stream_route("TCPRoute", "tcp", "tcp", &weights)).expect("write");
    daemon.write("udp.yaml", &manifest::stream_route("UDPRoute", "udp", "udp", &weights)).expect("write");
    let status = daemon.start().expect("gatewayd starts");
    assert_eq!(status.complaints(), Vec::<String>::new());
    daemon
}

fn to(family: Family) -> SocketAddr {
    SocketAddr::new(gateway_address(family), PORT)
}

/// 2,000 new connections of each protocol and family, each with a name, some bytes and an echo of them.
fn assert_shares(lab: &Lab) {
    for family in Family::ALL {
        let seen =
            tcp::connections(lab.client(), to(family), 2_000, 5_000).expect("every connection is whole");
        shares::fit(&counts(&seen, &NAMES), &WEIGHTS)
            .unwrap_or_else(|faults| panic!("TCP over {family}: {faults}"));
        let seen = udp::flows(lab.client(), to(family), 2_000, 1_000).expect("every datagram is answered");
        shares::fit(&counts(&seen, &NAMES), &WEIGHTS)
            .unwrap_or_else(|faults| panic!("UDP over {family}: {faults}"));
    }
}

fn assert_large_bodies(lab: &Lab) {
    for family in Family::ALL {
        tcp::connections(lab.client(), to(family), 20, 1_000_000).expect("a megabyte goes there and back");
    }
}

/// How many flows the kernel says it has begun at the services of both protocols and families.
fn flows(status: &Status) -> u64 {
    let services = Family::ALL.into_iter().flat_map(|family| {
        let address: IpAddr = gateway_address(family);
        ["tcp", "udp"].map(|protocol| status.backends(address, PORT, protocol))
    });
    services.flatten().map(|backend| backend.flows).sum()
}

#[test]
fn connections_land_by_weight_in_on_xdp_and_back_through_tc() {
    let lab = Lab::create(NIC).expect("a lab");
    let _backends = serve(&lab);
    let daemon = start(&lab, "xdp", "tc", &WEIGHTS);
    assert_shares(&lab);
    let status = daemon.status().expect("a report");
    assert_eq!(flows(&status), 8_000, "the kernel began each connection: {status:?}");
    // Each connection takes a handful of packets; all but what met an unknown neighbour went in on XDP.
    let (xdp, tc) = (status.packets("xdp", "forwarded"), status.packets("tc", "forwarded"));
    assert!(xdp > 8_000 && tc < 400, "{xdp} packets went in on XDP and {tc} through TC");
    assert!(status.packets("tc", "replied") > 8_000, "{status:?}");
    assert_eq!(status.packets("xdp", "replied"), 0, "backends' devices have no XDP program");
}

#[test]
fn connections_land_by_weight_with_tc_alone_and_all_offloads_on() {
    let lab = Lab::create(VETHS).expect("a lab");
    let _backends = serve(&lab);
    let daemon = start(&lab, "tc", "tc", &WEIGHTS);
    assert_shares(&lab);
    let status = daemon.status().expect("a report");
    assert_eq!(flows(&status), 8_000, "the kernel began each connection: {status:?}");
    assert_eq!(status.packets("xdp", "forwarded"), 0);
    assert!(
        status.packets("tc", "forwarded") > 8_000 && status.packets("tc", "replied") > 8_000,
        "{status:?}"
    );
}

#[test]
fn a_megabyte_goes_there_and_back_over_xdp() {
    let lab = Lab::create(NIC).expect("a lab");
    let _backends = serve(&lab);
    let daemon = start(&lab, "xdp", "tc", &[1, 1, 1, 1]);
    assert_large_bodies(&lab);
    let status = daemon.status().expect("a report");
    // 20 connections of a megabyte, two families, 1,448 bytes a packet at most.
    assert!(status.packets("xdp", "forwarded") > 25_000, "{status:?}");
}

#[test]
fn a_megabyte_goes_there_and_back_over_tc_with_all_offloads_on() {
    let lab = Lab::create(VETHS).expect("a lab");
    let _backends = serve(&lab);
    let _daemon = start(&lab, "tc", "tc", &[1, 1, 1, 1]);
    assert_large_bodies(&lab);
}

#[test]
fn xdp_leaves_to_tc_what_a_pod_would_not_get() {
    let lab = Lab::create(PODS).expect("a lab");
    let _backends = serve(&lab);
    let daemon = start(&lab, "xdp", "tc", &WEIGHTS);
    assert_large_bodies(&lab);
    let status = daemon.status().expect("a report");
    assert!(status.packets("xdp", "left_to_tc") > 1_000, "{status:?}");
    assert_eq!(status.packets("xdp", "forwarded"), 0, "a pod's veth takes no redirects");
}

/// How many SYNs the client has sent a second time.
fn syn_retransmissions(lab: &Lab) -> String {
    let netstat = lab.client().run(|| fs::read_to_string("/proc/thread-self/net/netstat")).expect("counters");
    let (titles, values) = netstat.split_once('\n').expect("TcpExt has two lines");
    let pairs = titles.split(' ').zip(values.split_whitespace());
    let found = pairs.into_iter().find(|(title, _)| *title == "TCPSynRetrans").expect("Linux counts them").1;
    found.to_owned()
}

#[test]
fn the_first_connection_to_a_backend_needs_no_retransmission() {
    let lab = Lab::create(NIC).expect("a lab");
    let _backends = serve(&lab);
    let _daemon = start(&lab, "xdp", "tc", &[1, 0, 0, 0]);
    for family in Family::ALL {
        lab.node.ip_batch(&["neigh flush dev backend-1"]).expect("forget the backend's link address");
        let before = syn_retransmissions(&lab);
        tcp::connections(lab.client(), to(family), 1, 100).expect("a connection");
        assert_eq!(syn_retransmissions(&lab), before, "{family}: a SYN was lost");
    }
}

#[test]
fn a_service_whose_weights_are_all_zero_refuses() {
    let lab = Lab::create(NIC).expect("a lab");
    let _backends = serve(&lab);
    let daemon = start(&lab, "xdp", "tc", &[0, 0, 0, 0]);
    for family in Family::ALL {
        let error = tcp::connections(lab.client(), to(family), 1, 1).expect_err("nobody may answer");
        assert!(format!("{error:#}").contains("refused"), "TCP over {family} is reset: {error:#}");
        let error = udp::flows(lab.client(), to(family), 1, 1).expect_err("nobody may answer");
        assert!(format!("{error:#}").contains("refused"), "UDP over {family} is unreachable: {error:#}");
    }
    let status = daemon.status().expect("a report");
    assert!(status.packets("xdp", "refused") + status.packets("tc", "refused") >= 4, "{status:?}");
}
