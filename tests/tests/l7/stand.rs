//! What these tests share: the lab, the documents most of them need, and the ways to ask.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use gateway_tests::backend::{Backend, Serve};
use gateway_tests::client::grpc;
use gateway_tests::client::http::{Connection, Protocol};
use gateway_tests::daemon::Gatewayd;
use gateway_tests::tls::Identity;
use gateway_tests::topology::{Family, Lab, Topology};
use http::Request;

/// Where backends speak HTTP/1.1, h2c and gRPC.
pub(crate) use gateway_tests::manifest::HTTP_PORT;

/// Where backends speak something that is no HTTP.
pub(crate) use gateway_tests::manifest::STREAM_PORT as GARBAGE_PORT;

/// The name that the certificate of the HTTPS listener is for.
pub(crate) const TLS_NAME: &str = "lab.example";

/// A lab whose backends serve, `backend-1` and so on.
pub(crate) fn lab(clients: u8) -> (Lab, Vec<Backend>) {
    let lab = Lab::create(Topology { clients, ..Topology::default() }).expect("a lab");
    let serve = [Serve::Http(HTTP_PORT), Serve::Tcp(GARBAGE_PORT)];
    let backends = lab.backends.iter().map(|host| Backend::start(&host.netns, &host.name, &serve));
    let backends = backends.collect::<Result<_, _>>().expect("backends");
    (lab, backends)
}

/// A daemon on the documents of `files`, with a Gateway `gateway` (HTTP on 80, HTTPS on 443) and the Backends
/// `backend-N` (HTTP/1.1) and `h2c-N`; all of it is in force, and nobody complains.
pub(crate) fn start<'lab>(lab: &'lab Lab, identity: &Identity, files: &[(&str, &str)]) -> Gatewayd<'lab> {
    let mut daemon = prepared(lab, identity);
    for (name, text) in files {
        daemon.write(name, text).expect("write");
    }
    let status = daemon.start().expect("gatewayd starts");
    assert_eq!(status.complaints(), Vec::<String>::new());
    daemon
}

/// As [`start`], but not started, and without more documents.
pub(crate) fn prepared<'lab>(lab: &'lab Lab, identity: &Identity) -> Gatewayd<'lab> {
    let daemon = Gatewayd::new(lab).expect("a daemon");
    let listeners = "  - {name: http, protocol: HTTP, port: 80}\n  \
        - {name: https, protocol: HTTPS, port: 443, tls: {certificateRefs: [{name: lab}]}}\n";
    daemon.write("gateway.yaml", &gateway(listeners)).expect("write");
    daemon.write("secret.yaml", &secret("lab", identity)).expect("write");
    daemon.write("backends.yaml", &backends(lab)).expect("write");
    daemon
}

/// The Gateway `gateway`, with these listeners.
pub(crate) fn gateway(listeners: &str) -> String {
    let [v4, v6] = Family::ALL.map(|family| family.service_address(1));
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: gateway}}\nspec:\n  \
         gatewayClassName: gatewayd\n  addresses: [{{value: {v4}}}, {{value: \"{v6}\"}}]\n  \
         listeners:\n{listeners}"
    )
}

/// A Secret with a certificate.
pub(crate) fn secret(name: &str, identity: &Identity) -> String {
    let indented = |pem: &str| pem.replace('\n', "\n    ");
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\ntype: kubernetes.io/tls\nstringData:\n  \
         tls.crt: |\n    {}\n  tls.key: |\n    {}\n",
        indented(&identity.certificate_pem).trim_end(),
        indented(&identity.key_pem).trim_end(),
    )
}

/// For each backend of the lab, `backend-N` that is spoken to in HTTP/1.1 and `h2c-N` in h2c, at both addresses.
fn backends(lab: &Lab) -> String {
    let mut text = String::new();
    for (index, host) in lab.backends.iter().enumerate() {
        let endpoints = Family::ALL
            .map(|family| format!("{{address: \"{}\", port: {HTTP_PORT}}}", host.address(family)))
            .join(", ");
        let n = index + 1;
        text += &backend(&format!("backend-{n}"), "http", &endpoints);
        text += &backend(&format!("h2c-{n}"), "kubernetes.io/h2c", &endpoints);
    }
    text
}

/// A Backend, with its endpoints in YAML's flow style; followed by other documents.
pub(crate) fn backend(name: &str, protocol: &str, endpoints: &str) -> String {
    format!(
        "apiVersion: gatewayd.dev/v1alpha1\nkind: Backend\nmetadata: {{name: {name}}}\n\
         spec: {{appProtocol: {protocol}, endpoints: [{endpoints}]}}\n---\n"
    )
}

/// A route of the Gateway, with its rules as a YAML list; followed by other documents.
pub(crate) fn route(kind: &str, name: &str, hostnames: &[&str], rules: &str) -> String {
    let mut text = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  \
         parentRefs: [{{name: gateway}}]\n"
    );
    if !hostnames.is_empty() {
        writeln!(text, "  hostnames: {hostnames:?}").expect("a String takes everything");
    }
    text + &format!("  rules:\n{rules}---\n")
}

/// A rule: what it matches, its filters and its backendRefs, each the inside of a list in YAML's flow style.
pub(crate) fn rule(matches: &str, filters: &str, backends: &str) -> String {
    format!("  - {{matches: [{matches}], filters: [{filters}], backendRefs: [{backends}]}}\n")
}

/// A backendRef to a Backend.
pub(crate) fn to(backend: &str, weight: u32) -> String {
    format!("{{group: gatewayd.dev, kind: Backend, name: {backend}, port: {HTTP_PORT}, weight: {weight}}}")
}

/// A protocol that a client speaks to the Gateway.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) protocol: Protocol,
    pub(crate) scheme: &'static str,
    port: u16,
}

/// HTTP/1.1 and h2c to the HTTP listener, both versions over TLS to the HTTPS listener.
pub(crate) fn ways(identity: &Identity) -> [Way; 4] {
    let tls = |alpn| {
        let config = identity.client(&[alpn]).expect("client settings");
        Protocol::Tls(config, TLS_NAME.to_owned())
    };
    let plain = |name, protocol| Way { name, protocol, scheme: "http", port: 80 };
    let secure = |name, alpn| Way { name, protocol: tls(alpn), scheme: "https", port: 443 };
    [
        plain("HTTP/1.1", Protocol::Http1),
        plain("h2c", Protocol::H2c),
        secure("HTTP/1.1 over TLS", "http/1.1"),
        secure("h2 over TLS", "h2"),
    ]
}

impl Way {
    /// Where a client of this way connects to.
    pub(crate) fn address(&self, family: Family) -> SocketAddr {
        SocketAddr::new(family.service_address(1), self.port)
    }

    /// A connection to the Gateway.
    pub(crate) async fn open(&self, family: Family) -> Connection {
        Connection::open(self.address(family), &self.protocol).await.expect("a connection to the Gateway")
    }

    /// A gRPC client of `service` at `authority`. For h2 only.
    pub(crate) async fn grpc(&self, family: Family, authority: &str, service: &str) -> grpc::Client {
        let to = self.address(family);
        let client = match &self.protocol {
            Protocol::Tls(config, name) => {
                grpc::Client::connect_tls(to, (Arc::clone(config), name), authority, service).await
            }
            Protocol::Http1 | Protocol::H2c => grpc::Client::connect(to, authority, service).await,
        };
        client.expect("a channel to the Gateway")
    }

    /// A request of this way's scheme.
    pub(crate) fn request(&self, method: &str, authority: &str, path: &str) -> http::request::Builder {
        Request::builder().method(method).uri(format!("{}://{authority}{path}", self.scheme))
    }

    /// Whether it speaks HTTP/2, as gRPC does.
    pub(crate) fn is_http2(&self) -> bool {
        self.name.starts_with("h2")
    }
}
