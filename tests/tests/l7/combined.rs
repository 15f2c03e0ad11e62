//! Combined services: what their names are, who shares one, and what is counted.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use gateway_tests::daemon::Gatewayd;
use gateway_tests::tls::Identity;
use gateway_tests::topology::{Family, Lab};

use crate::stand::{HTTP_PORT, TLS_NAME, backend, lab, prepared, route, rule, to, ways};

const FLAG: &str = "--combined-services-from-different-httproutes";
const VARIABLE: &str = "GATEWAYD_COMBINED_SERVICES_FROM_DIFFERENT_HTTPROUTES";

/// Longest name of a service.
const NAME_MAX: usize = 512;

/// Requests to each route.
const REQUESTS: u64 = 10;

/// Four routes: two with the same backends in another order, one with another weight, one with many backends.
fn documents(lab: &Lab) -> String {
    let two = |first: String, second: String| rule("", "", &format!("{first}, {second}"));
    let at = format!("{{address: \"{}\", port: {HTTP_PORT}}}", lab.backends[0].address(Family::V4));
    let many: Vec<String> = many().collect();
    let refs: Vec<String> = many.iter().map(|name| to(name, 5)).collect();
    let mut text: String = many.iter().map(|name| backend(name, "http", &at)).collect();
    for (name, rules) in [
        ("apples", two(to("backend-2", 1), to("backend-1", 3))),
        ("berries", two(to("backend-1", 3), to("backend-2", 1))),
        ("cherries", two(to("backend-1", 3), to("backend-2", 2))),
        ("dates", rule("", "", &refs.join(", "))),
    ] {
        text += &route("HTTPRoute", name, &[&format!("{name}.example")], &rules);
    }
    text
}

/// Names of so many backends that the name of their service is too long, not in order.
fn many() -> impl Iterator<Item = String> {
    (0..9).rev().map(|n| format!("a-backend-whose-name-takes-as-much-room-as-a-label-may-{n:08}"))
}

/// What `gatewayd status` says the services of the proxy are, after requests to each route.
fn services(lab: &Lab, daemon: &mut Gatewayd<'_>, identity: &Identity) -> BTreeMap<String, u64> {
    let status = daemon.start().expect("gatewayd starts");
    assert_eq!(status.complaints(), Vec::<String>::new());
    lab.client().block_on(|| async {
        let [http1, ..] = ways(identity);
        let mut connection = http1.open(Family::V4).await;
        for name in ["apples", "berries", "cherries", "dates"] {
            for _ in 0..REQUESTS {
                let answer = connection.get(&format!("http://{name}.example/")).await.expect("an answer");
                answer.report().expect("a backend's report");
            }
        }
    });
    daemon.status().expect("a status").http_services()
}

/// The name of the shared service of these backends (name, weight), as design.md has it.
fn shared_name(backends: &[(String, u32)]) -> String {
    let mut sorted = backends.to_vec();
    sorted.sort();
    let part = |(name, weight): &(String, u32)| format!("default.{name}.{HTTP_PORT}.{weight}");
    let parts: Vec<String> = sorted.iter().map(part).collect();
    let full = format!("httproute.default.svc.{}", parts.join("_"));
    if full.len() <= NAME_MAX {
        return full;
    }
    format!("httproute.default.svc.{}_combined.{}", parts[0], sha256(&full))
}

/// As coreutils has it, apart from the daemon's own.
fn sha256(text: &str) -> String {
    let mut tool = Command::new("sha256sum");
    let mut running = tool.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sha256sum");
    running.stdin.take().expect("its input").write_all(text.as_bytes()).expect("write");
    let output = running.wait_with_output().expect("its output");
    String::from_utf8(output.stdout).expect("text").split_whitespace().next().expect("a digest").to_owned()
}

#[test]
fn the_same_backends_share_a_service_only_when_asked() {
    let (lab, _backends) = lab(1);
    let identity = Identity::for_names(&[TLS_NAME]).expect("a certificate");
    let mut daemon = prepared(&lab, &identity);
    daemon.write("routes.yaml", &documents(&lab)).expect("write");

    let own = ["apples", "berries", "cherries", "dates"]
        .map(|name| (format!("httproute.default.{name}.0"), REQUESTS));
    assert_eq!(services(&lab, &mut daemon, &identity), BTreeMap::from(own));

    let pair = |weight| [("backend-1".to_owned(), 3), ("backend-2".to_owned(), weight)];
    let many: Vec<(String, u32)> = many().map(|name| (name, 5)).collect();
    let shared = BTreeMap::from([
        (shared_name(&pair(1)), 2 * REQUESTS),
        (shared_name(&pair(2)), REQUESTS),
        (shared_name(&many), REQUESTS),
    ]);
    let shown = shared.keys().map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(
        shown.starts_with("httproute.default.svc.default.a-backend-") && shown.contains("_combined."),
        "{shown}"
    );
    assert!(
        shown.contains("httproute.default.svc.default.backend-1.8080.3_default.backend-2.8080.1\n"),
        "{shown}"
    );

    daemon.terminate().expect("gatewayd stops");
    daemon.arguments = vec![FLAG.to_owned()];
    assert_eq!(services(&lab, &mut daemon, &identity), shared, "by flag");

    daemon.terminate().expect("gatewayd stops");
    daemon.arguments.clear();
    daemon.environment = vec![(VARIABLE.to_owned(), "true".to_owned())];
    assert_eq!(services(&lab, &mut daemon, &identity), shared, "by environment variable");
}
