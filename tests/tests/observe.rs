//! `--metrics-address`: what a scraper and a kubelet are told by a daemon that serves.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context as _, Result, ensure};
use gateway_tests::backend::{Backend, Serve};
use gateway_tests::client::tcp;
use gateway_tests::daemon::{Gatewayd, PATIENCE};
use gateway_tests::manifest::{self, STREAM_PORT, gateway_address};
use gateway_tests::topology::{Family, Lab, Topology};
use gateway_tests::wait::eventually;

const PORT: u16 = 9000;
const ADDRESS: &str = "127.0.0.1:9090";

/// Status and body of an answer.
fn ask(lab: &Lab, path: &str) -> Result<(String, String)> {
    let exchange = || {
        let mut stream = TcpStream::connect(ADDRESS)?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        anyhow::Ok(answer)
    };
    let answer = lab.node.run(exchange)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("a head")?;
    let status = head.split(' ').nth(1).context("a status")?;
    Ok((status.to_owned(), body.to_owned()))
}

/// The value of a row, which begins with this.
fn value(lab: &Lab, row: &str) -> Result<f64> {
    let (_, text) = ask(lab, "/metrics")?;
    let line =
        text.lines().find_map(|line| line.strip_prefix(row)).with_context(|| format!("no {row}:\n{text}"))?;
    Ok(line.trim().parse()?)
}

fn route(weight: i64) -> String {
    manifest::stream_route("TCPRoute", "route", "tcp", &[("backend-1", 1), ("backend-2", weight)])
}

#[test]
fn health_and_metrics_of_a_daemon_that_serves() {
    let lab = Lab::create(Topology::default()).expect("a lab");
    let start = |host: &gateway_tests::topology::Host| {
        Backend::start(&host.netns, &host.name, &[Serve::Tcp(STREAM_PORT)])
    };
    let _backends: Vec<Backend> = lab.backends.iter().map(|host| start(host).expect("serve")).collect();
    let mut daemon = Gatewayd::new(&lab).expect("a daemon");
    daemon.arguments = vec!["--metrics-address".to_owned(), ADDRESS.to_owned()];
    daemon.write("gateway.yaml", &manifest::gateway(&[("tcp", "TCP", PORT)])).expect("write");
    daemon.write("backends.yaml", &manifest::backends(&lab.backends)).expect("write");
    daemon.write("route.yaml", &route(1)).expect("write");
    daemon.start().expect("gatewayd starts");
    for (path, wanted) in [("/healthz", "200"), ("/readyz", "200"), ("/metrics", "200"), ("/", "404")] {
        assert_eq!(ask(&lab, path).expect("an answer").0, wanted, "{path}");
    }

    let to = SocketAddr::new(gateway_address(Family::V4), PORT);
    tcp::connections(lab.client(), to, 20, 100).expect("connections");
    let flows = format!(
        "gatewayd_kernel_service_flows_total{{frontend=\"tcp {to}\",service=\"tcproute.default.route.0\"}}"
    );
    assert!((value(&lab, &flows).expect("a row") - 20.0).abs() < f64::EPSILON);

    let served = "gatewayd_event_to_served_seconds_count";
    let before = value(&lab, served).expect("a row");
    daemon.change(|daemon| daemon.write("route.yaml", &route(3))).expect("new weights");
    eventually(PATIENCE, "the change to be measured", || {
        ensure!(value(&lab, served)? > before, "still {before}");
        Ok(())
    });
}
