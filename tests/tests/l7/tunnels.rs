//! TLSRoutes: connections by server name, to backends that end TLS themselves, or here.

use std::net::SocketAddr;

use gateway_tests::backend::{Backend, Serve};
use gateway_tests::client::http::{Connection, Protocol};
use gateway_tests::tls::Identity;
use gateway_tests::topology::{Family, Host, Lab};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::stand::{GARBAGE_PORT, backend, gateway, lab, prepared, route, secret};

/// Where backends end TLS themselves.
const TLS_PORT: u16 = 8443;

const LISTENERS: &str = "  \
  - {name: pass, protocol: TLS, port: 443, tls: {mode: Passthrough}}
  - {name: end, protocol: TLS, port: 443, hostname: \"*.queue.example\",
     tls: {mode: Terminate, certificateRefs: [{name: queue}]}}
";

/// A rule to Backends, which need no port here.
fn rule(backends: &[&str]) -> String {
    let refs = backends.iter().map(|name| format!("{{group: gatewayd.dev, kind: Backend, name: {name}}}"));
    format!("  - backendRefs: [{}]\n", refs.collect::<Vec<_>>().join(", "))
}

fn endpoints(host: &Host, port: u16) -> String {
    Family::ALL.map(|family| format!("{{address: \"{}\", port: {port}}}", host.address(family))).join(", ")
}

fn documents(lab: &Lab) -> String {
    let [first, second, third] = [0, 1, 2].map(|index| &lab.backends[index]);
    [
        backend("db", "http", &endpoints(first, TLS_PORT)),
        backend("other", "http", &endpoints(second, TLS_PORT)),
        backend("queue", "http", &endpoints(third, GARBAGE_PORT)),
        route("TLSRoute", "db", &["*.db.example"], &rule(&["db"])),
        route("TLSRoute", "one", &["one.db.example"], &rule(&["other"])),
        route("TLSRoute", "queue", &["a.queue.example"], &rule(&["queue"])),
        route("TLSRoute", "nowhere", &["nowhere.example"], &rule(&["nobody"])),
    ]
    .concat()
}

/// The line that the backend says, and what it sends back of ours, over TLS that ends at the Gateway.
async fn through_queue(to: SocketAddr, identity: &Identity, name: &'static str) -> std::io::Result<String> {
    let connector = tokio_rustls::TlsConnector::from(identity.client(&[]).expect("client settings"));
    let stream = TcpStream::connect(to).await?;
    let name = rustls::pki_types::ServerName::try_from(name).expect("a server name");
    let (from, mut into) = tokio::io::split(connector.connect(name, stream).await?);
    let (mut from, mut text) = (BufReader::new(from), String::new());
    from.read_line(&mut text).await?;
    into.write_all(b"hello").await?;
    // The backend closes once we have, and not before it has sent back what it got.
    into.shutdown().await?;
    from.read_to_string(&mut text).await?;
    Ok(text)
}

#[test]
fn the_server_name_chooses_the_backend_and_where_tls_ends() {
    let (lab, _backends) = lab(1);
    let passed = Identity::for_names(&["*.db.example"]).expect("a certificate");
    let queue = Identity::for_names(&["*.queue.example"]).expect("a certificate");
    let _own_tls: Vec<Backend> = lab.backends[..2]
        .iter()
        .map(|host| {
            let config = passed.server(&["h2", "http/1.1"]).expect("server settings");
            Backend::start(&host.netns, &host.name, &[Serve::Https(TLS_PORT, config)]).expect("a backend")
        })
        .collect();
    let mut daemon = prepared(&lab, &queue);
    daemon.write("gateway.yaml", &gateway(LISTENERS)).expect("write");
    daemon.write("secret.yaml", &secret("queue", &queue)).expect("write");
    daemon.write("routes.yaml", &documents(&lab)).expect("write");
    let status = daemon.start().expect("gatewayd starts");
    let complaints = status.complaints();
    assert!(complaints.iter().all(|one| one.contains("backend-not-found")), "{complaints:?}");
    for family in Family::ALL {
        let address = SocketAddr::new(family.service_address(1), 443);
        lab.client().block_on(|| async {
            for alpn in ["h2", "http/1.1"] {
                let way = |name: &str| {
                    Protocol::Tls(passed.client(&[alpn]).expect("client settings"), name.to_owned())
                };
                for (name, backend) in [("two.db.example", "backend-1"), ("one.db.example", "backend-2")] {
                    let mut connection = Connection::open(address, &way(name)).await.expect("TLS");
                    let answer = connection.get(&format!("https://{name}/")).await.expect("an answer");
                    let report = answer.report().expect("a report");
                    assert_eq!(report.backend, backend, "{family}, {alpn}, {name}");
                    // Nobody has read the request on its way.
                    assert_eq!(report.headers.get("x-forwarded-for"), None);
                }
                for name in ["db.example", "nowhere.example", "b.queue.example"] {
                    let refused = Connection::open(address, &way(name)).await.expect_err("no such backend");
                    let text = format!("{refused:#}");
                    assert!(text.contains("reset") || text.contains("eof"), "{family}, {name}: {text}");
                }
            }
            let said = through_queue(address, &queue, "a.queue.example").await.expect("a tunnel");
            assert_eq!(said, "backend-3\nhello", "{family}");
        });
    }
}
