//! HTTPS: which certificate a client is shown, and that listeners of one port are kept apart.

use gateway_tests::client::http::{Connection, Protocol};
use gateway_tests::tls::Identity;
use gateway_tests::topology::Family;

use crate::stand::{gateway, lab, prepared, route, rule, secret, to};

const LISTENERS: &str = "  \
  - {name: exact, protocol: HTTPS, port: 443, hostname: one.example, tls: {certificateRefs: [{name: one}]}}
  - {name: wildcard, protocol: HTTPS, port: 443, hostname: \"*.two.example\", tls: {certificateRefs: [{name: two}]}}
";

#[test]
fn the_server_name_chooses_listener_and_certificate() {
    let (lab, _backends) = lab(1);
    let one = Identity::for_names(&["one.example"]).expect("a certificate");
    let two = Identity::for_names(&["*.two.example"]).expect("a certificate");
    let mut daemon = prepared(&lab, &one);
    daemon.write("gateway.yaml", &gateway(LISTENERS)).expect("write");
    daemon.write("secret.yaml", &(secret("one", &one) + "---\n" + &secret("two", &two))).expect("write");
    let to_one = |listener: &str, backend| {
        let text = route("HTTPRoute", listener, &[], &rule("", "", &to(backend, 1)));
        text.replace("{name: gateway}]", &format!("{{name: gateway, sectionName: {listener}}}]"))
    };
    daemon
        .write("routes.yaml", &(to_one("exact", "backend-1") + &to_one("wildcard", "backend-2")))
        .expect("write");
    let status = daemon.start().expect("gatewayd starts");
    assert_eq!(status.complaints(), Vec::<String>::new());
    for family in Family::ALL {
        let address = std::net::SocketAddr::new(family.service_address(1), 443);
        lab.client().block_on(|| async {
            for alpn in ["h2", "http/1.1"] {
                let way = |identity: &Identity, name: &str| {
                    Protocol::Tls(identity.client(&[alpn]).expect("client settings"), name.to_owned())
                };
                for (identity, name, backend) in
                    [(&one, "one.example", "backend-1"), (&two, "a.two.example", "backend-2")]
                {
                    let mut connection = Connection::open(address, &way(identity, name)).await.expect("TLS");
                    let answer = connection.get(&format!("https://{name}/")).await.expect("an answer");
                    let report = answer.report().expect("a report");
                    assert_eq!(report.backend, backend, "{family}, {alpn}, {name}");
                    assert_eq!(report.headers.get("x-forwarded-proto").map(String::as_str), Some("https"));
                    // The other listener's hosts are not to be asked for here (RFC 9110 §15.5.20).
                    let other = if name == "one.example" { "a.two.example" } else { "one.example" };
                    let answer = connection.get(&format!("https://{other}/")).await.expect("an answer");
                    assert_eq!(answer.status.as_u16(), 421, "{family}, {alpn}, {name}");
                }
                // Each client trusts the one certificate: the other is refused.
                Connection::open(address, &way(&one, "a.two.example"))
                    .await
                    .expect_err("another certificate");
                Connection::open(address, &way(&two, "one.example")).await.expect_err("another certificate");
            }
        });
    }
}
