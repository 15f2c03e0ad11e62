//! Combined services and their names.

use super::*;

fn names(text: &str, combined_services: bool) -> Vec<String> {
    let compiled = compile(&resources(text), &Settings { combined_services, ..node4() });
    let used: Vec<String> = compiled.model.l7.services.keys().cloned().collect();
    for service in compiled.model.l7.services.values() {
        assert!(used.contains(&service.name));
    }
    used
}

fn http(name: &str, refs: &str) -> String {
    route_of("HTTPRoute", name, &format!("rules: [{{backendRefs: [{refs}]}}]"))
}

fn web() -> String {
    gateway_of("g", &["{name: web, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}"])
}

#[test]
fn rules_with_the_same_backends_share_a_service_when_combined() {
    let one = "{name: echo-1, port: 80, weight: 75}";
    let two = "{name: echo-2, port: 8080, weight: 25}";
    let text = format!(
        "{}{}{}",
        web(),
        http("one", &format!("{one}, {two}")),
        http("two", &format!("{two}, {one}"))
    );
    assert_eq!(names(&text, false), ["httproute.default.one.0", "httproute.default.two.0"]);
    assert_eq!(names(&text, true), ["httproute.default.svc.default.echo-1.80.75_default.echo-2.8080.25"]);

    let compiled = compile(&resources(&text), &Settings { combined_services: true, ..node4() });
    let services: Vec<_> = proxy(&compiled)[0]
        .rules
        .iter()
        .map(|rule| match &rule.action {
            crate::model::l7::Action::Forward(service) => Arc::clone(service),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(Arc::ptr_eq(&services[0], &services[1]));
    let backends: Vec<(&str, u32)> =
        services[0].backends.iter().map(|backend| (backend.name.as_str(), backend.weight)).collect();
    assert_eq!(backends, [("default/echo-1:80", 75), ("default/echo-2:8080", 25)]);
    // Rules keep names of their own.
    assert_eq!(proxy(&compiled)[0].rules[1].name, "httproute.default.two.0");
}

#[test]
fn whatever_differs_makes_another_service() {
    let base = "{name: a, port: 80, weight: 1}";
    for (what, other) in [
        ("name", "{name: b, port: 80, weight: 1}"),
        ("port", "{name: a, port: 81, weight: 1}"),
        ("weight", "{name: a, port: 80, weight: 2}"),
        ("namespace", "{name: a, namespace: c, port: 80, weight: 1}"),
        ("kind", "{name: a, group: gatewayd.dev, kind: Backend, port: 80, weight: 1}"),
        ("number", "{name: a, port: 80, weight: 1}, {name: a, port: 80, weight: 1}"),
    ] {
        let text = format!("{}{}{}", web(), http("one", base), http("two", other));
        assert_eq!(names(&text, true).len(), 2, "{what}: {:?}", names(&text, true));
    }
    // Another namespace of the route.
    let text = format!(
        "{}{}{}",
        web(),
        http("one", base),
        http("x/one", "{name: a, namespace: default, port: 80, weight: 1}")
    );
    assert_eq!(
        names(&text, true),
        ["httproute.default.svc.default.a.80.1", "httproute.x.svc.default.a.80.1"]
    );
}

#[test]
fn what_is_not_written_is_not_in_the_name() {
    let text = format!(
        "{}{}",
        web(),
        http("one", "{name: a, port: 80}, {group: gatewayd.dev, kind: Backend, name: b}")
    );
    assert_eq!(names(&text, true), ["httproute.default.svc.default.a.80_default.b"]);
}

#[test]
fn a_name_over_512_characters_is_cut_to_the_first_backend_and_a_hash() {
    let refs = |length: usize| {
        let name = "n".repeat(length);
        format!("{{name: a, port: 80, weight: 1}}, {{name: {name}, port: 80}}, {{name: {name}2, port: 8}}")
    };
    // "httproute.default.svc.default.a.80.1_default." and ".80_default." and "2.8" are 60 characters.
    let fits = names(&format!("{}{}", web(), http("one", &refs(226))), true);
    assert_eq!(fits[0].len(), 512);
    let cut = names(&format!("{}{}", web(), http("one", &refs(227))), true);
    let full = format!("httproute.default.svc.default.a.80.1_default.{0}.80_default.{0}2.8", "n".repeat(227));
    assert_eq!(full.len(), 514);
    let digest = <sha2::Sha256 as sha2::Digest>::digest(full.as_bytes());
    assert_eq!(cut, [format!("httproute.default.svc.default.a.80.1_combined.{digest:x}")]);
}

#[test]
fn grpc_routes_are_not_combined() {
    let rules = "hostnames: [one.example], rules: [{backendRefs: [{name: a, port: 80, weight: 1}]}]";
    let two = "hostnames: [two.example], rules: [{backendRefs: [{name: a, port: 80, weight: 1}]}]";
    let text =
        format!("{}{}{}", web(), route_of("GRPCRoute", "one", rules), route_of("HTTPRoute", "two", two));
    assert_eq!(names(&text, true), ["grpcroute.default.one.0", "httproute.default.svc.default.a.80.1"]);
}
