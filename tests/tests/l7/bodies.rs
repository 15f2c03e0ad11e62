//! Large bodies: every byte arrives, and the daemon holds few of them at a time.

use std::fs;
use std::time::Duration;

use gateway_tests::daemon::Gatewayd;
use gateway_tests::http::Body;
use gateway_tests::pattern::{Check, PatternBody};
use gateway_tests::tls::Identity;
use gateway_tests::topology::Family;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::stand::{TLS_NAME, Way, lab, route, rule, start, to, ways};

const GIBIBYTE: u64 = 1 << 30;

/// How much more than idle the daemon may hold at any moment, in KiB.
const BOUND: u64 = 64 << 10;

/// No pause of a body is longer.
const STALL: Duration = Duration::from_secs(10);

#[test]
fn a_gibibyte_each_way_passes_in_bounded_memory() {
    let (lab, _backends) = lab(1);
    let identity = Identity::for_names(&[TLS_NAME]).expect("a certificate");
    let rules = rule("{headers: [{name: x-to, value: h2c}]}", "", &to("h2c-2", 1))
        + &rule("", "", &to("backend-1", 1));
    let daemon = start(&lab, &identity, &[("routes.yaml", &route("HTTPRoute", "bodies", &[], &rules))]);
    let idle = memory(&daemon, "VmRSS");
    fs::write(format!("/proc/{}/clear_refs", daemon.pid().expect("it runs")), "5").expect("reset VmHWM");
    let [http1, h2c, ..] = ways(&identity);
    lab.client().block_on(|| async {
        // Each protocol of clients, to backends of the same one.
        for (way, to) in [(http1, "http1"), (h2c, "h2c")] {
            let path = format!("/bytes/{GIBIBYTE}");
            exchange(&way, "GET", &path, to, PatternBody::new(0)).await;
            // What is sent comes back: both ways at once.
            exchange(&way, "POST", "/echo", to, PatternBody::new(GIBIBYTE)).await;
            let peak = memory(&daemon, "VmHWM");
            assert!(peak < idle + BOUND, "{}: {peak} KiB at the peak, {idle} KiB idle", way.name);
        }
    });
}

/// Sends a request and checks that the response's body is a gibibyte of the pattern.
async fn exchange(way: &Way, method: &str, path: &str, to: &str, body: PatternBody) {
    let context = format!("{}: {method} {path}", way.name);
    let request = way.request(method, "bodies.example", path).header("x-to", to);
    let request = request.body(body.boxed_unsync() as Body).expect("a request");
    let response = way.open(Family::V4).await.send(request).await;
    let response = response.unwrap_or_else(|error| panic!("{context}: {error:#}"));
    assert_eq!(response.status().as_u16(), 200, "{context}");
    let check = checked(response.into_body()).await.unwrap_or_else(|error| panic!("{context}: {error:#}"));
    assert_eq!(check.position, GIBIBYTE, "{context}");
}

async fn checked(mut body: Incoming) -> anyhow::Result<Check> {
    let mut check = Check::default();
    while let Some(frame) = tokio::time::timeout(STALL, body.frame()).await? {
        if let Some(data) = frame?.data_ref() {
            check.take(data)?;
        }
    }
    Ok(check)
}

/// A value of the daemon's `/proc/PID/status`, in KiB.
fn memory(daemon: &Gatewayd<'_>, name: &str) -> u64 {
    let path = format!("/proc/{}/status", daemon.pid().expect("it runs"));
    let text = fs::read_to_string(path).expect("the daemon's status");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line of this name");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number of KiB")
}
