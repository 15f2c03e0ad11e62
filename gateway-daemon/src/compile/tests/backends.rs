//! Backends, weights, and services of the kernel.

use std::net::SocketAddr;

use super::*;
use crate::model::l4::WEIGHT_SCALE;

const TCP: &str = "{name: db, port: 5432, protocol: TCP}";

/// Backend and weight, in units of a BackendRef's weight, of the only service.
fn shares(compiled: &Compiled) -> Vec<(Option<String>, f64)> {
    assert_eq!(compiled.model.l4.len(), 1);
    #[expect(clippy::cast_precision_loss, reason = "weights of tests are small")]
    let share = |share: &crate::model::l4::Share| {
        (share.backend.map(|backend| backend.to_string()), share.weight as f64 / WEIGHT_SCALE as f64)
    };
    compiled.model.l4[0].shares.iter().map(share).collect()
}

fn some(backend: &str, weight: f64) -> (Option<String>, f64) {
    (Some(backend.to_owned()), weight)
}

fn tcp(backends: &str, refs: &[String]) -> String {
    format!(
        "{}{backends}{}",
        gateway_of("g", &[TCP]),
        route_of("TCPRoute", "r", &format!("rules: [{{backendRefs: [{}]}}]", refs.join(", ")))
    )
}

#[test]
fn weights_are_divided_among_endpoints_and_added_up_per_backend() {
    let backends = format!(
        "{}{}{}",
        backend("a", &[("198.18.1.1", 1), ("198.18.1.2", 1), ("198.18.1.3", 1)]),
        backend("b", &[("198.18.1.1", 1)]),
        backend("c", &[("198.18.1.4", 1)])
    );
    let compiled = compiled(&tcp(&backends, &[to("a", 30), to("b", 5), to("c", 0)]));
    assert_eq!(
        shares(&compiled),
        [
            some("198.18.1.1:1", 15.0),
            some("198.18.1.2:1", 10.0),
            some("198.18.1.3:1", 10.0),
            some("198.18.1.4:1", 0.0)
        ]
    );
    let service = &compiled.model.l4[0];
    assert_eq!(service.name.as_deref(), Some("tcproute.default.r.0"));
    assert_eq!(service.frontend.to_string(), "tcp 198.18.0.1:5432");
    assert_eq!(said(&compiled), Vec::<String>::new());
}

#[test]
fn a_number_of_endpoints_that_does_not_divide_the_weight_loses_nothing() {
    let endpoints: Vec<(String, u16)> = (1..=17).map(|n| (format!("198.18.1.{n}"), 1)).collect();
    let endpoints: Vec<(&str, u16)> =
        endpoints.iter().map(|(address, port)| (address.as_str(), *port)).collect();
    let compiled = compiled(&tcp(&backend("a", &endpoints), &[to("a", 1)]));
    let weights: Vec<u64> = compiled.model.l4[0].shares.iter().map(|share| share.weight).collect();
    assert_eq!(weights.iter().sum::<u64>(), WEIGHT_SCALE);
    assert!(weights.iter().max().unwrap() - weights.iter().min().unwrap() <= 1);
}

#[test]
fn a_family_without_endpoints_is_refused_at_addresses_of_that_family() {
    let text = tcp(&backend("a", &[("198.18.1.1", 1)]), &[to("a", 3)]);
    let compiled = compile(&resources(&text), &node());
    let shares: Vec<Vec<Option<SocketAddr>>> = compiled
        .model
        .l4
        .iter()
        .map(|service| service.shares.iter().map(|share| share.backend).collect())
        .collect();
    assert_eq!(shares, [vec![Some("198.18.1.1:1".parse().unwrap())], vec![None]]);
}

#[test]
fn an_invalid_reference_keeps_its_weight_and_has_its_reason() {
    for (what, reference, reason) in [
        ("no such Backend", to("none", 1), "BackendNotFound"),
        ("no such Service", "{name: none, port: 80}".to_owned(), "BackendNotFound"),
        (
            "a kind that takes no traffic",
            "{group: apps, kind: Deployment, name: x}".to_owned(),
            "InvalidKind",
        ),
        ("another namespace", to("a", 1).replace("name: a", "name: a, namespace: other"), "RefNotPermitted"),
        ("a port that no endpoint has", to("a", 1).replace("name: a", "name: a, port: 9"), "BackendNotFound"),
    ] {
        let compiled = compiled(&tcp(&backend("a", &[("198.18.1.1", 1)]), &[to("a", 3), reference]));
        assert_eq!(shares(&compiled), [(None, 1.0), some("198.18.1.1:1", 3.0)], "{what}");
        assert_eq!(
            route(&compiled, "TCPRoute", "r"),
            ["Accepted=True Accepted".to_owned(), format!("ResolvedRefs=False {reason}")],
            "{what}"
        );
        assert_eq!(compiled.diagnostics.len(), 1, "{what}");
        assert_eq!(compiled.diagnostics[0].place.as_ref().unwrap().line, 14, "{what}");
    }
}

#[test]
fn a_grant_allows_what_it_names() {
    let grant = |kind: &str, to: &str| {
        object(
            "ReferenceGrant",
            "other/r",
            &format!(
                "{{from: [{{group: gateway.networking.k8s.io, kind: {kind}, namespace: default}}], to: [{to}]}}"
            ),
        )
    };
    let resolved = |grant: &str| {
        let backends = format!("{}{grant}", backend("other/a", &[("198.18.1.1", 1)]));
        let reference = to("a", 1).replace("name: a", "name: a, namespace: other");
        route(&compiled(&tcp(&backends, &[reference])), "TCPRoute", "r")[1].clone()
    };
    let (yes, no) = ("ResolvedRefs=True ResolvedRefs", "ResolvedRefs=False RefNotPermitted");
    assert_eq!(resolved(&grant("TCPRoute", "{group: gatewayd.dev, kind: Backend}")), yes);
    assert_eq!(resolved(&grant("TCPRoute", "{group: gatewayd.dev, kind: Backend, name: a}")), yes);
    assert_eq!(resolved(&grant("TCPRoute", "{group: gatewayd.dev, kind: Backend, name: b}")), no);
    assert_eq!(resolved(&grant("TCPRoute", "{group: '', kind: Service}")), no);
    assert_eq!(resolved(&grant("UDPRoute", "{group: gatewayd.dev, kind: Backend}")), no);
}

const SERVICE: &str = "\
apiVersion: v1
kind: Service
metadata: {name: s}
spec:
  ports:
  - {name: sql, port: 5432, targetPort: sql}
  - {name: dns, port: 53, protocol: UDP}
---
";

fn slice(name: &str, family: &str, endpoints: &str, ports: &str) -> String {
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}, labels: {{kubernetes.io/service-name: s}}}}\naddressType: {family}\nendpoints: [{endpoints}]\nports: [{ports}]\n---\n"
    )
}

#[test]
fn services_lead_to_the_ready_endpoints_of_their_slices() {
    let slices = [
        slice("s-1", "IPv4", "{addresses: [198.18.1.2]}, {addresses: [198.18.1.1], conditions: {ready: true}}, {addresses: [198.18.1.3], conditions: {ready: false}}", "{name: sql, port: 15432}, {name: dns, port: 1053, protocol: UDP}"),
        slice("s-2", "IPv6", "{addresses: ['2001:db8::5']}", "{name: sql, port: 25432}"),
        slice("s-3", "IPv4", "{addresses: [198.18.1.9]}", "{name: other, port: 1}"),
        slice("s-4", "IPv4", "{addresses: [198.18.1.8]}", "{name: sql, port: 1}").replace("service-name: s", "service-name: t"),
        slice("s-5", "FQDN", "{addresses: [a.example]}", "{name: sql, port: 1}"),
    ]
    .concat();
    let text = tcp(&format!("{SERVICE}{slices}"), &["{name: s, port: 5432}".to_owned()]);
    let compiled = compile(&resources(&text), &node());
    let backends: Vec<String> = compiled
        .model
        .l4
        .iter()
        .flat_map(|service| service.shares.iter().map(|share| share.backend.unwrap().to_string()))
        .collect();
    assert_eq!(backends, ["198.18.1.1:15432", "198.18.1.2:15432", "[2001:db8::5]:25432"]);
    // The port is there, but of another protocol.
    let udp_port = tcp(&format!("{SERVICE}{slices}"), &["{name: s, port: 53}".to_owned()]);
    assert_eq!(route(&super::compiled(&udp_port), "TCPRoute", "r")[1], "ResolvedRefs=False BackendNotFound");
}

#[test]
fn a_service_without_endpoints_resolves_and_is_told() {
    let compiled = compiled(&tcp(SERVICE, &["{name: s, port: 5432}".to_owned()]));
    assert_eq!(shares(&compiled), [(None, 1.0)]);
    assert_eq!(route(&compiled, "TCPRoute", "r")[1], "ResolvedRefs=True ResolvedRefs");
    assert_eq!(said(&compiled), ["warning 17:83 no-ready-endpoint"]);
}

#[test]
fn an_external_name_is_no_backend() {
    let external = SERVICE.replace("spec:\n", "spec:\n  type: ExternalName\n  externalName: a.example\n");
    let compiled = compiled(&tcp(&external, &["{name: s, port: 5432}".to_owned()]));
    assert_eq!(route(&compiled, "TCPRoute", "r")[1], "ResolvedRefs=False InvalidKind");
}

#[test]
fn hostnames_are_asked_for_and_used_once_known() {
    let backend_text = object("Backend", "a", "{endpoints: [{hostname: db.example, port: 5432}]}");
    let text = tcp(&backend_text, &[to("a", 2)]);
    let unknown = compiled(&text);
    assert_eq!(unknown.hostnames.iter().collect::<Vec<_>>(), ["db.example"]);
    assert_eq!((shares(&unknown), said(&unknown)), (vec![(None, 2.0)], vec![]));
    let resolved =
        [("db.example".to_owned(), vec!["198.18.1.1".parse().unwrap(), "2001:db8::7".parse().unwrap()])];
    let known = compile(&resources(&text), &Settings { resolved: resolved.into(), ..node4() });
    assert_eq!(shares(&known), [some("198.18.1.1:5432", 2.0)]);
    let nowhere = compile(
        &resources(&text),
        &Settings { resolved: [("db.example".to_owned(), vec![])].into(), ..node4() },
    );
    assert_eq!(nowhere.diagnostics[0].code, "no-ready-endpoint");
}

#[test]
fn a_listener_without_a_route_refuses() {
    let compiled = compiled(&gateway_of("g", &[TCP]));
    assert_eq!(shares(&compiled), []);
    assert_eq!(compiled.model.l4[0].name, None);
}

#[test]
fn of_two_routes_on_one_listener_the_oldest_serves() {
    let route_text = |name: &str, created: &str| {
        route_of("TCPRoute", name, &format!("rules: [{{backendRefs: [{}]}}]", to("a", 1)))
            .replace("namespace: default}\nspec", &format!("namespace: default{created}}}\nspec"))
    };
    let serves = |first: &str, second: &str| {
        let text = format!(
            "{}{}{}{}",
            gateway_of("g", &[TCP]),
            backend("a", &[("198.18.1.1", 1)]),
            route_text("x", first),
            route_text("y", second)
        );
        let compiled = compiled(&text);
        for name in ["x", "y"] {
            assert_eq!(route(&compiled, "TCPRoute", name)[0], "Accepted=True Accepted");
        }
        assert_eq!(listener(&compiled, "g", 0).1, 2);
        assert_eq!(compiled.diagnostics[0].code, "route-not-served");
        compiled.model.l4[0].name.clone().unwrap()
    };
    assert_eq!(serves("", ""), "tcproute.default.x.0");
    let created = |year: &str| format!(", creationTimestamp: {year}-01-01T00:00:00Z");
    assert_eq!(serves(&created("2026"), &created("2025")), "tcproute.default.y.0");
}
