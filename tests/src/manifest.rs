//! Gateway API documents for tests, of the shape that most of them need.

use std::fmt::Write as _;
use std::net::IpAddr;

use crate::topology::{Family, Host};

/// Port of the backends' TCP and UDP service in tests.
pub const STREAM_PORT: u16 = 7000;

/// Port of the backends' HTTP and gRPC service in tests.
pub const HTTP_PORT: u16 = 8080;

/// A Gateway called `gateway` on the first service address of each family, with a listener for each name, protocol
/// and port.
pub fn gateway(listeners: &[(&str, &str, u16)]) -> String {
    let mut text = String::from(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata:\n  name: gateway\nspec:\n  \
         gatewayClassName: gatewayd\n  addresses:\n",
    );
    for family in Family::ALL {
        push(&mut text, &format!("    - value: {}", family.service_address(1)));
    }
    push(&mut text, "  listeners:");
    for (name, protocol, port) in listeners {
        push(&mut text, &format!("    - {{name: {name}, protocol: {protocol}, port: {port}}}"));
    }
    text
}

/// The address of that Gateway.
pub fn gateway_address(family: Family) -> IpAddr {
    family.service_address(1)
}

/// A Backend for each host, called as the host is, with both addresses at both ports.
pub fn backends(hosts: &[Host]) -> String {
    let document = |host: &Host| {
        let mut text = format!(
            "apiVersion: gatewayd.dev/v1alpha1\nkind: Backend\nmetadata:\n  name: {}\nspec:\n  endpoints:\n",
            host.name
        );
        for port in [STREAM_PORT, HTTP_PORT] {
            for family in Family::ALL {
                push(&mut text, &format!("    - {{address: \"{}\", port: {port}}}", host.address(family)));
            }
        }
        text
    };
    hosts.iter().map(document).collect::<Vec<_>>().join("---\n")
}

/// A `TCPRoute` or `UDPRoute` (`kind`) from the Gateway's `listener` to backends by weight.
pub fn stream_route(kind: &str, name: &str, listener: &str, weights: &[(&str, i64)]) -> String {
    let mut text = route_head(kind, name, listener);
    push(&mut text, "  rules:\n    - backendRefs:");
    for (backend, weight) in weights {
        push(&mut text, &format!("        - {}", backend_ref(backend, STREAM_PORT, *weight)));
    }
    text
}

/// The beginning of a route of any kind, up to its `spec.parentRefs`.
pub fn route_head(kind: &str, name: &str, listener: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}\nspec:\n  \
         parentRefs:\n    - {{name: gateway, sectionName: {listener}}}\n"
    )
}

/// A backendRef in YAML's flow style.
pub fn backend_ref(backend: &str, port: u16, weight: i64) -> String {
    format!("{{group: gatewayd.dev, kind: Backend, name: {backend}, port: {port}, weight: {weight}}}")
}

fn push(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a String takes everything");
}
