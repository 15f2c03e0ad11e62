//! Changes, crashes and mistakes while connections run: none of them may notice.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::ensure;
use gateway_tests::backend::{Backend, Serve};
use gateway_tests::client::streams::{Report, Streams};
use gateway_tests::client::{counts, tcp};
use gateway_tests::daemon::{self, Gatewayd};
use gateway_tests::manifest::{self, STREAM_PORT, gateway_address};
use gateway_tests::shares;
use gateway_tests::topology::{Family, Lab, Topology};

const PORT: u16 = 9000;
const NAMES: [&str; 4] = ["backend-1", "backend-2", "backend-3", "backend-4"];

/// How many long-lived connections run.
const STREAMS: usize = 200;

fn lab() -> (Lab, Vec<Backend>) {
    let topology = Topology { backends_take_redirects: true, ..Topology::default() };
    let lab = Lab::create(topology).expect("a lab");
    let start = |host: &gateway_tests::topology::Host| {
        Backend::start(&host.netns, &host.name, &[Serve::Tcp(STREAM_PORT)])
    };
    let backends = lab.backends.iter().map(|host| start(host).expect("serve")).collect();
    (lab, backends)
}

/// A daemon with a TCPRoute of these weights, its clients on XDP.
fn start<'lab>(lab: &'lab Lab, weights: &[(&str, i64)]) -> Gatewayd<'lab> {
    let mut daemon = Gatewayd::new(lab).expect("a daemon");
    daemon.interfaces = lab
        .interfaces()
        .map(|name| if name == "client" { "client=xdp".to_owned() } else { format!("{name}=tc") })
        .collect();
    let listeners = [("tcp", "TCP", PORT), ("other", "TCP", PORT + 1)];
    daemon.write("gateway.yaml", &manifest::gateway(&listeners)).expect("write");
    daemon.write("backends.yaml", &manifest::backends(&lab.backends)).expect("write");
    daemon.write("route.yaml", &route(weights)).expect("write");
    let status = daemon.start().expect("gatewayd starts");
    assert_eq!(status.complaints(), Vec::<String>::new());
    daemon
}

fn route(weights: &[(&str, i64)]) -> String {
    manifest::stream_route("TCPRoute", "route", "tcp", weights)
}

fn to(family: Family) -> SocketAddr {
    SocketAddr::new(gateway_address(family), PORT)
}

/// New connections follow `weights`, in the order of [`NAMES`].
#[track_caller]
fn assert_shares(lab: &Lab, weights: [u64; 4]) {
    let seen = tcp::connections(lab.client(), to(Family::V4), 500, 100).expect("new connections");
    shares::fit(&counts(&seen, &NAMES), &weights).unwrap_or_else(|faults| panic!("{faults}"));
}

#[test]
fn connections_live_through_edits_a_crash_and_a_restart() {
    let (lab, _backends) = lab();
    let mut daemon = start(&lab, &[("backend-1", 3), ("backend-2", 2), ("backend-3", 1)]);
    let streams =
        Family::ALL.map(|family| Streams::start(lab.client(), to(family), STREAMS / 2).expect("streams"));
    let all_go_on = |least| streams.iter().for_each(|streams| streams.wait_for_rounds(3, least));
    all_go_on(STREAMS / 2);

    daemon
        .change(|daemon| {
            daemon.write("route.yaml", &route(&[("backend-1", 1), ("backend-2", 9), ("backend-3", 5)]))
        })
        .expect("new weights");
    assert_shares(&lab, [1, 9, 5, 0]);
    all_go_on(STREAMS / 2);

    let more = [("backend-1", 1), ("backend-2", 9), ("backend-3", 5), ("backend-4", 15)];
    daemon.change(|daemon| daemon.write("route.yaml", &route(&more))).expect("one backend more");
    assert_shares(&lab, [1, 9, 5, 15]);
    all_go_on(STREAMS / 2);

    daemon
        .change(|daemon| {
            let other = manifest::stream_route("TCPRoute", "other", "other", &[("backend-4", 1)]);
            daemon.write("other.yaml", &other)
        })
        .expect("another route");
    let other = SocketAddr::new(gateway_address(Family::V6), PORT + 1);
    let seen = tcp::connections(lab.client(), other, 20, 100).expect("the other route");
    assert_eq!(counts(&seen, &NAMES), [0, 0, 0, 20]);
    daemon.change(|daemon| daemon.remove("other.yaml")).expect("no other route");
    tcp::connections(lab.client(), other, 1, 100).expect_err("a route that is gone");
    all_go_on(STREAMS / 2);

    daemon.kill().expect("kill -9");
    assert_shares(&lab, [1, 9, 5, 15]);
    all_go_on(STREAMS / 2);
    let status = daemon.start().expect("a restart");
    assert_eq!(status.complaints(), Vec::<String>::new());
    assert_shares(&lab, [1, 9, 5, 15]);
    all_go_on(STREAMS / 2);

    let less = [("backend-1", 1), ("backend-2", 9), ("backend-4", 15)];
    daemon.change(|daemon| daemon.write("route.yaml", &route(&less))).expect("one backend less");
    assert_shares(&lab, [1, 9, 0, 15]);
    // Its connections drain: nothing has been reset within the drain timeout.
    all_go_on(STREAMS / 2);
    let reports: Vec<Report> =
        streams.into_iter().flat_map(|streams| streams.stop().expect("reports")).collect();
    assert_eq!(reports.len(), STREAMS);
    for report in reports {
        assert!(report.failure.is_none(), "{report:?}");
    }
}

#[test]
fn a_listener_that_is_away_for_a_while_ends_no_connection() {
    let (lab, _backends) = lab();
    let mut daemon = start(&lab, &[("backend-1", 1), ("backend-2", 1)]);
    let streams = Streams::start(lab.client(), to(Family::V4), 20).expect("streams");
    streams.wait_for_rounds(3, 20);
    daemon
        .change(|daemon| daemon.write("gateway.yaml", &manifest::gateway(&[("other", "TCP", PORT + 1)])))
        .expect("one listener less");
    tcp::connections(lab.client(), to(Family::V4), 1, 100).expect_err("new connections are refused");
    streams.wait_for_rounds(3, 20);
    let status = daemon.status().expect("a report");
    assert_eq!(status.draining(), 2, "of both families: {status:?}");
    let listeners = [("tcp", "TCP", PORT), ("other", "TCP", PORT + 1)];
    daemon.change(|daemon| daemon.write("gateway.yaml", &manifest::gateway(&listeners))).expect("it is back");
    assert_shares(&lab, [1, 1, 0, 0]);
    streams.wait_for_rounds(3, 20);
    let reports = streams.stop().expect("reports");
    assert!(reports.iter().all(|report| report.failure.is_none()), "{reports:?}");
}

#[test]
fn a_bad_edit_changes_nothing_and_is_reported_with_its_place() {
    let (lab, _backends) = lab();
    let weights = [("backend-1", 3), ("backend-2", 1)];
    let mut daemon = start(&lab, &weights);
    let good = route(&weights);
    let streams = Streams::start(lab.client(), to(Family::V4), 20).expect("streams");
    let generation = daemon.status().expect("a report").generation();
    let bad = [
        (good.replace("weight: 3", "weight: -1"), "weight: -1"),
        (good.replace("port: 7000, weight: 3", "prot: TPC, weight: 3"), "prot"),
        (good.replace("  rules:", "  rules: ["), "rules: ["),
    ];
    for (text, wrong) in bad {
        assert_ne!(text, good);
        let line = 1 + text.lines().position(|line| line.contains(wrong)).expect("the bad line");
        daemon.write("route.yaml", &text).expect("write");
        let status = daemon
            .wait_for("the rejection", |status| {
                ensure!(status.rejected().is_some(), "nothing is rejected");
                Ok(())
            })
            .expect("a rejection");
        assert_eq!(status.generation(), generation, "what was served goes on");
        let faults = status.rejected().expect("it was there");
        let (name, from) = ("route.yaml:", faults.join("\n"));
        assert!(from.contains(name), "{wrong}: {from}");
        if wrong != "rules: [" {
            // Broken YAML shows only where it stops making sense.
            assert!(from.contains(&format!("{name}{line}:")), "line {line} ({wrong}): {from}");
        }
        let log = daemon.log();
        let place = faults[0].split(": ").next().expect("a place");
        assert!(log.contains(place), "the log names {place}: {log}");
        assert_check_finds(&daemon, place);
        assert_shares(&lab, [3, 1, 0, 0]);
        daemon.write("route.yaml", &good).expect("write");
        daemon
            .wait_for("the good file to be taken again", |status| {
                ensure!(status.rejected().is_none(), "{:?}", status.rejected());
                Ok(())
            })
            .expect("rolled back");
    }
    streams.wait_for_rounds(3, 20);
    let reports = streams.stop().expect("reports");
    assert!(reports.iter().all(|report| report.failure.is_none()), "{reports:?}");
}

/// `gatewayd check` says the same of the same place, and exits with 78 (`EX_CONFIG`).
#[track_caller]
fn assert_check_finds(daemon: &Gatewayd<'_>, place: &str) {
    let mut check = Command::new(daemon::program().expect("gatewayd"));
    let output = check.arg("check").arg(&daemon.config).output().expect("gatewayd check");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.lines().any(|line| line.starts_with(place)), "{place}: {said}");
}
