//! TLS listeners and TLSRoutes.

use super::*;
use crate::model::l7::{Target, Tunnels};

const PASS: &str = "{name: pass, port: 443, protocol: TLS, tls: {mode: Passthrough}}";

fn pass(name: &str, hostname: &str) -> String {
    format!("{{name: {name}, port: 443, protocol: TLS, hostname: '{hostname}', tls: {{mode: Passthrough}}}}")
}

fn tls_route(name: &str, hostnames: &str, refs: &[String]) -> String {
    let fields = format!("hostnames: [{hostnames}], rules: [{{backendRefs: [{}]}}]", refs.join(", "));
    route_of("TLSRoute", name, &fields)
}

/// Each route of a listener, as its service and its hostnames.
fn routes(tunnels: &Tunnels) -> Vec<String> {
    let line = |route: &crate::model::l7::TunnelRoute| {
        let hostnames: Vec<String> = route.hostnames.iter().map(ToString::to_string).collect();
        format!("{} {}", route.service.name, hostnames.join(" "))
    };
    tunnels.routes.iter().map(line).collect()
}

#[test]
fn routes_are_attached_by_hostname_and_older_ones_come_first() {
    let text = [
        gateway_of("g", &[&pass("wild", "*.a.example"), PASS]),
        tls_route("r", "'*.a.example', x.a.example, b.example", &[to("b", 1)]),
        tls_route("s", "x.a.example", &[to("b", 1)]),
        backend("b", &[("198.18.1.1", 1)]),
    ];
    let compiled = compiled(&text.concat());
    let listeners = proxy(&compiled);
    let all: Vec<(Option<String>, Vec<String>)> = listeners
        .iter()
        .map(|listener| {
            let tunnels = listener.tunnels.as_ref().unwrap();
            assert!(!tunnels.terminate && listener.certificates.is_empty());
            (listener.hostname.as_ref().map(ToString::to_string), routes(tunnels))
        })
        .collect();
    let s = "tlsroute.default.s.0 x.a.example".to_owned();
    assert_eq!(
        all,
        [
            (None, vec!["tlsroute.default.r.0 b.example x.a.example *.a.example".into(), s.clone()]),
            (Some("*.a.example".into()), vec!["tlsroute.default.r.0 x.a.example *.a.example".into(), s])
        ]
    );
    assert_eq!(listener(&compiled, "g", 0).1, 2);
    let all_good = ["Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs"];
    assert_eq!(route(&compiled, "TLSRoute", "r"), all_good);
    assert_eq!(route(&compiled, "TLSRoute", "s"), all_good);
    let shadowed: Vec<&str> = compiled.diagnostics.iter().map(|said| said.code).collect();
    assert_eq!(shadowed, ["route-not-served"; 2]);
    let services: Vec<&String> = compiled.model.l7.services.keys().collect();
    assert_eq!(services, ["tlsroute.default.r.0", "tlsroute.default.s.0"]);
}

#[test]
fn each_way_not_to_be_attached_has_its_reason() {
    let gateway = gateway_of("g", &[PASS, "{name: web, port: 80, protocol: HTTP}", &pass("b", "b.example")]);
    let outcome = |parent: &str, hostname: &str| {
        let spec = format!(
            "{{parentRefs: [{{name: g{parent}}}], hostnames: [{hostname}], rules: [{{backendRefs: [{{name: s, port: 1}}]}}]}}"
        );
        route(&compiled(&format!("{gateway}{}", object("TLSRoute", "r", &spec))), "TLSRoute", "r").join(", ")
    };
    let missing = "ResolvedRefs=False BackendNotFound";
    for (parent, hostname, expected) in [
        ("", "a.example", "Accepted=True Accepted"),
        (", sectionName: web", "a.example", "Accepted=False NotAllowedByListeners"),
        (", sectionName: nowhere", "a.example", "Accepted=False NoMatchingParent"),
        (", sectionName: b", "a.example", "Accepted=False NoMatchingListenerHostname"),
        (", sectionName: b", "'*.example'", "Accepted=True Accepted"),
    ] {
        assert_eq!(outcome(parent, hostname), format!("{expected}, {missing}"), "{parent} {hostname}");
    }
}

#[test]
fn an_invalid_reference_keeps_its_share() {
    let text = [
        gateway_of("g", &[PASS]),
        tls_route("r", "a.example", &[to("b", 3), to("nowhere", 1), "{group: x.y, kind: Z, name: z}".into()]),
        backend("b", &[("198.18.1.1", 1)]),
    ];
    let compiled = compiled(&text.concat());
    assert_eq!(route(&compiled, "TLSRoute", "r")[1], "ResolvedRefs=False BackendNotFound");
    let service = &compiled.model.l7.services["tlsroute.default.r.0"];
    let shares: Vec<(u32, bool)> = service
        .backends
        .iter()
        .map(|backend| (backend.weight, matches!(backend.target, Target::Invalid(_))))
        .collect();
    assert_eq!(shares, [(3, false), (1, true), (1, true)]);
}

#[test]
fn listeners_of_tls_share_a_port_by_hostname_only() {
    let https = |hostname: &str| {
        format!(
            "{{name: web, port: 443, protocol: HTTPS, hostname: {hostname}, tls: {{certificateRefs: [{{name: none}}]}}}}"
        )
    };
    let reasons = |listeners: &[&str]| -> Vec<String> {
        let compiled = compiled(&gateway_of("g", listeners));
        (0..listeners.len()).map(|index| listener(&compiled, "g", index).0[1].clone()).collect()
    };
    let fine = "Conflicted=False NoConflicts";
    let hostname = "Conflicted=True HostnameConflict";
    let protocol = "Conflicted=True ProtocolConflict";
    assert_eq!(reasons(&[&pass("a", "a.example"), &https("b.example"), PASS]), [fine; 3]);
    assert_eq!(reasons(&[&pass("a", "a.example"), &https("a.example"), PASS]), [hostname, hostname, fine]);
    assert_eq!(reasons(&[PASS, "{name: db, port: 443, protocol: TCP}"]), [protocol; 2]);
}

#[test]
fn only_what_ends_tls_needs_a_certificate() {
    let terminate =
        "{name: end, port: 8443, protocol: TLS, tls: {mode: Terminate, certificateRefs: [{name: none}]}}";
    let text = [gateway_of("g", &[PASS, terminate]), tls_route("r", "a.example", &[to("b", 1)])];
    let compiled = compiled(&text.concat());
    let summary = |index| listener(&compiled, "g", index).0[2..].join(", ");
    assert_eq!(summary(0), "Programmed=True Programmed, ResolvedRefs=True ResolvedRefs");
    assert_eq!(summary(1), "Programmed=False Invalid, ResolvedRefs=False InvalidCertificateRef");
    let kinds = &compiled.statuses.gateways[&Key::new("default", "g")].listeners[1].supported_kinds;
    assert_eq!(kinds.iter().map(|kind| kind.kind.as_str()).collect::<Vec<_>>(), ["TLSRoute"]);
}
