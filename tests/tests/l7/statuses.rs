//! What clients are told when no backend answers, and how much of the traffic that concerns.

use std::time::Duration;

use gateway_tests::client::http::Connection;
use gateway_tests::http::full;
use gateway_tests::shares;
use gateway_tests::tls::Identity;
use gateway_tests::topology::{Family, Lab};

use crate::stand::{GARBAGE_PORT, TLS_NAME, Way, backend, lab, prepared, route, rule, to, ways};

/// Path, status and a part of the body of each failure; the rules of [`routes`] belong to them.
const FAILURES: &[(&str, u16, &str)] = &[
    ("/no-rule", 404, "no route"),
    ("/invalid", 500, "invalid backend"),
    ("/not-permitted", 500, "invalid backend"),
    ("/no-backend", 500, "no backend"),
    ("/no-weight", 500, "no backend"),
    ("/no-slice", 503, "no ready endpoint"),
    ("/not-ready", 503, "no ready endpoint"),
    ("/refused", 502, "cannot connect"),
    ("/refused-h2c", 502, "cannot connect"),
    ("/garbage", 502, "backend"),
    ("/garbage-h2c", 502, "backend"),
];

/// Longer than the proxy's time for connecting.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Requests for a share: equal weights that were off by a tenth would fail with a chance of 98 %.
const REQUESTS: u32 = 1_000;

/// A Service of the cluster's kind, and a slice of its endpoints that are not ready.
const SERVICES: &str = "\
apiVersion: v1
kind: Service
metadata: {name: no-slice}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: not-ready}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: not-ready-1, labels: {kubernetes.io/service-name: not-ready}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [198.19.1.2], conditions: {ready: false}}]
---
";

/// An address of `backend-1`'s network that takes packets and never answers.
fn silent(lab: &Lab) -> std::net::IpAddr {
    // Nobody has it, but the node need not ask: the backend drops what is not for it.
    let shown = lab.backends[0].netns.ip("-br link show eth0").expect("the backend's link");
    let hardware = shown.split_whitespace().nth(2).expect("a link address");
    let line = format!("neigh replace 198.19.1.99 lladdr {hardware} dev backend-1 nud permanent");
    lab.node.ip_batch(&[line]).expect("a neighbour");
    "198.19.1.99".parse().expect("an address")
}

fn documents(lab: &Lab) -> String {
    let at = |address: std::net::IpAddr, port| format!("{{address: \"{address}\", port: {port}}}");
    let one = lab.backends[0].address(Family::V4);
    let mut text = SERVICES.to_owned();
    for (name, protocol) in [("", "http"), ("-h2c", "kubernetes.io/h2c")] {
        text += &backend(&format!("refused{name}"), protocol, &at(one, 9));
        text += &backend(&format!("garbage{name}"), protocol, &at(one, GARBAGE_PORT));
        text += &backend(&format!("silent{name}"), protocol, &at(silent(lab), 8080));
    }
    let own = |name: &str| format!("{{group: gatewayd.dev, kind: Backend, name: {name}, weight: 1}}");
    let service = |name: &str| format!("{{name: {name}, port: 80}}");
    let elsewhere = "{group: gatewayd.dev, kind: Backend, namespace: elsewhere, name: backend-1}".to_owned();
    let rules = [
        ("/invalid", own("nobody")),
        ("/not-permitted", elsewhere),
        ("/no-backend", String::new()),
        ("/no-weight", format!("{}, {}", to("backend-1", 0), to("backend-2", 0))),
        ("/no-slice", service("no-slice")),
        ("/not-ready", service("not-ready")),
        ("/refused", own("refused")),
        ("/refused-h2c", own("refused-h2c")),
        ("/garbage", own("garbage")),
        ("/garbage-h2c", own("garbage-h2c")),
        ("/silent", own("silent")),
        ("/silent-h2c", own("silent-h2c")),
        ("/half", format!("{}, {}", to("backend-1", 1), own("nobody"))),
        ("/tenth", format!("{}, {}", to("backend-1", 9), service("no-slice"))),
    ];
    let rules = rules.map(|(path, backends)| rule(&format!("{{path: {{value: {path}}}}}"), "", &backends));
    text + &route("HTTPRoute", "statuses", &["status.example"], &rules.concat())
}

#[test]
fn every_failure_has_its_status_and_its_share() {
    let (lab, _backends) = lab(1);
    let identity = Identity::for_names(&[TLS_NAME]).expect("a certificate");
    let mut daemon = prepared(&lab, &identity);
    daemon.write("statuses.yaml", &documents(&lab)).expect("write");
    let status = daemon.start().expect("gatewayd starts");
    assert_eq!(status.complaints(), Vec::<String>::new());
    lab.client().block_on(|| async {
        let timeouts = tokio::spawn(timeouts(ways(&identity)));
        for (family, way) in
            Family::ALL.into_iter().flat_map(|family| ways(&identity).map(|way| (family, way)))
        {
            let mut connection = way.open(family).await;
            for (path, status, text) in FAILURES {
                let context = format!("{family}, {}: {path}", way.name);
                let answer = connection.get(&format!("{}://status.example{path}", way.scheme)).await;
                let answer = answer.unwrap_or_else(|error| panic!("{context}: {error:#}"));
                let body = String::from_utf8_lossy(&answer.body);
                assert_eq!(answer.status.as_u16(), *status, "{context}: {body}");
                assert!(body.contains(text), "{context}: {body}");
            }
            let answer =
                connection.get(&format!("{}://unknown.example/", way.scheme)).await.expect("an answer");
            assert_eq!(answer.status.as_u16(), 404, "{family}, {}: an unknown host", way.name);
        }
        let [http1, h2c, ..] = ways(&identity);
        assert_share(&http1, "/half", 500, [1, 1]).await;
        assert_share(&h2c, "/half", 500, [1, 1]).await;
        assert_share(&h2c, "/tenth", 503, [9, 1]).await;
        timeouts.await.expect("504 everywhere");
    });
}

/// A backend's network that swallows what is sent costs its requests 504, over every protocol and at the same time.
async fn timeouts(ways: [Way; 4]) {
    let mut asking = tokio::task::JoinSet::new();
    for (way, path) in
        ways.into_iter().flat_map(|way| ["/silent", "/silent-h2c"].map(|path| (way.clone(), path)))
    {
        asking.spawn(async move {
            let mut connection = way.open(Family::V6).await;
            let request = way.request("GET", "status.example", path).body(full("")).expect("a request");
            let answer = tokio::time::timeout(CONNECT_PATIENCE, async {
                match &mut connection {
                    Connection::Http1(sender) => {
                        let (mut head, body) = request.into_parts();
                        head.headers.insert("host", http::HeaderValue::from_static("status.example"));
                        head.uri = http::Uri::from_static(path);
                        sender.send_request(http::Request::from_parts(head, body)).await
                    }
                    Connection::Http2(sender) => sender.send_request(request).await,
                }
            });
            let answer = answer.await.expect("an answer in time").expect("an answer");
            assert_eq!(answer.status().as_u16(), 504, "{}: {path}", way.name);
        });
    }
    while let Some(asked) = asking.join_next().await {
        asked.expect("a request");
    }
}

/// Of requests to `path`, the backend answers and the proxy fails with `status`, by these weights.
async fn assert_share(way: &Way, path: &str, status: u16, weights: [u64; 2]) {
    let mut connection = way.open(Family::V4).await;
    let mut counts = [0, 0];
    for _ in 0..REQUESTS {
        let answer = connection.get(&format!("http://status.example{path}")).await.expect("an answer");
        match answer.status.as_u16() {
            200 => counts[0] += 1,
            seen if seen == status => counts[1] += 1,
            other => panic!("{path}: status {other}"),
        }
    }
    shares::fit_one_of(3, &counts, &weights).unwrap_or_else(|faults| panic!("{path}: {faults}"));
}
