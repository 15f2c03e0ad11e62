//! Which routes are attached where, and for which hosts.

use super::*;
use crate::{
    compile::{attach::intersect, gateway::hostname},
    model::l7::Hostname,
};

fn hosts(texts: &str) -> Vec<Hostname> {
    texts.split_whitespace().map(hostname).collect()
}

#[test]
fn hostnames_are_those_that_both_serve() {
    for (listener, route, expected) in [
        ("", "", Some("")),
        ("", "a.example *.b.example", Some("a.example *.b.example")),
        ("a.example", "", Some("")),
        ("a.example", "a.example", Some("a.example")),
        ("a.example", "b.example", None),
        (
            "*.example.com",
            "*.example.com test.example.com foo.example.com",
            Some("foo.example.com test.example.com *.example.com"),
        ),
        ("*.example.com", "test.example.com test.example.net", Some("test.example.com")),
        ("*.example.com", "example.com", None),
        ("*.example.com", "a.b.example.com", Some("a.b.example.com")),
        ("*.example.com", "badexample.com", None),
        ("test.example.com", "*.example.com", Some("test.example.com")),
        ("*.com", "*.example.com", Some("*.example.com")),
        ("*.example.com", "*.com", Some("*.example.com")),
        ("*.example.com", "*.ample.com", None),
        ("*.foo.example.com", "*.bar.example.com", None),
    ] {
        let listener_hostname = (!listener.is_empty()).then(|| hostname(listener));
        assert_eq!(
            intersect(listener_hostname.as_ref(), &hosts(route)),
            expected.map(hosts),
            "{listener} and {route}"
        );
    }
}

#[test]
fn each_way_not_to_be_attached_has_its_reason() {
    let gateway_text = gateway_of(
        "g",
        &[
            "{name: web, port: 80, protocol: HTTP, hostname: a.example}",
            "{name: db, port: 81, protocol: TCP}",
        ],
    );
    let outcome = |kind: &'static str, parent: &str, more: &str| {
        let rules = if kind == "HTTPRoute" { "" } else { "rules: [{backendRefs: [{name: s, port: 1}]}], " };
        let text = object(kind, "r", &format!("{{parentRefs: [{{name: g{parent}}}], {rules}{more}}}"));
        let compiled = compiled(&format!("{gateway_text}{text}"));
        route(&compiled, kind, "r")[0].clone()
    };
    assert_eq!(outcome("HTTPRoute", "", ""), "Accepted=True Accepted");
    assert_eq!(outcome("HTTPRoute", ", sectionName: web, port: 80", ""), "Accepted=True Accepted");
    assert_eq!(outcome("HTTPRoute", ", sectionName: nowhere", ""), "Accepted=False NoMatchingParent");
    assert_eq!(outcome("HTTPRoute", ", port: 8080", ""), "Accepted=False NoMatchingParent");
    assert_eq!(outcome("HTTPRoute", ", sectionName: web, port: 81", ""), "Accepted=False NoMatchingParent");
    assert_eq!(outcome("HTTPRoute", ", sectionName: db", ""), "Accepted=False NotAllowedByListeners");
    assert_eq!(
        outcome("HTTPRoute", "", "hostnames: [b.example]"),
        "Accepted=False NoMatchingListenerHostname"
    );
    assert_eq!(outcome("TCPRoute", "", ""), "Accepted=True Accepted");
    assert_eq!(outcome("UDPRoute", "", ""), "Accepted=False NotAllowedByListeners");
}

#[test]
fn a_refused_route_still_says_whether_its_references_resolve() {
    let text = format!(
        "{}{}{}",
        gateway_of("g", &["{name: web, port: 80, protocol: HTTP}"]),
        backend("b", &[("198.18.1.1", 80)]),
        object(
            "HTTPRoute",
            "r",
            &format!(
                "{{parentRefs: [{{name: g, sectionName: x}}], rules: [{{backendRefs: [{}]}}]}}",
                to("b", 1)
            )
        )
    );
    let compiled = compiled(&text);
    assert_eq!(
        route(&compiled, "HTTPRoute", "r"),
        ["Accepted=False NoMatchingParent", "ResolvedRefs=True ResolvedRefs"]
    );
    assert_eq!(said(&compiled), ["error 14:21 no-matching-parent"]);
    assert_eq!(listener(&compiled, "g", 0).1, 0);
}

#[test]
fn namespaces_are_allowed_by_name_or_by_label() {
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {tier: front}}\n---\n";
    let attached = |from: &str| {
        let gateway_text = gateway_of(
            "g",
            &[&format!("{{name: web, port: 80, protocol: HTTP, allowedRoutes: {{namespaces: {from}}}}}")],
        );
        let compiled = compiled(&format!(
            "{namespace}{gateway_text}{}",
            route_of("HTTPRoute", "team/r", "hostnames: []")
        ));
        summary(&compiled.statuses.routes[&("HTTPRoute", Key::new("team", "r"))][0].conditions)[0].clone()
    };
    let (yes, no) = ("Accepted=True Accepted", "Accepted=False NotAllowedByListeners");
    for (from, expected) in [
        ("{}", no),
        ("{from: Same}", no),
        ("{from: All}", yes),
        ("{from: Selector, selector: {matchLabels: {tier: front}}}", yes),
        ("{from: Selector, selector: {matchLabels: {tier: back}}}", no),
        ("{from: Selector, selector: {matchLabels: {kubernetes.io/metadata.name: team}}}", yes),
        ("{from: Selector, selector: {matchExpressions: [{key: tier, operator: In, values: [front]}]}}", yes),
        (
            "{from: Selector, selector: {matchExpressions: [{key: tier, operator: NotIn, values: [front]}]}}",
            no,
        ),
        ("{from: Selector, selector: {matchExpressions: [{key: tier, operator: Exists}]}}", yes),
        ("{from: Selector, selector: {matchExpressions: [{key: tier, operator: DoesNotExist}]}}", no),
        ("{from: Selector}", no),
    ] {
        assert_eq!(attached(from), expected, "{from}");
    }
}

#[test]
fn routes_are_counted_even_where_the_listener_is_not_served() {
    let text = format!(
        "{}{}",
        gateway_of("g", &["{name: web, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: none}]}}"]),
        route_of("HTTPRoute", "r", "rules: [{backendRefs: [{name: none, port: 80}]}]")
    );
    let compiled = compiled(&text);
    assert_eq!(listener(&compiled, "g", 0).1, 1);
    assert_eq!(
        route(&compiled, "HTTPRoute", "r"),
        ["Accepted=True Accepted", "ResolvedRefs=False BackendNotFound"]
    );
}

#[test]
fn a_parent_that_is_not_there_is_told() {
    let missing = compiled(&route_of("HTTPRoute", "r", "hostnames: [a.example]"));
    assert!(said(&missing).contains(&"error 4:28 parent-not-found".to_owned()), "{:?}", said(&missing));
    let other = route_of("HTTPRoute", "r", "hostnames: []")
        .replace("{name: g,", "{group: '', kind: Service, name: g,");
    assert!(
        said(&compiled(&other)).contains(&"warning 4:39 unsupported-parent".to_owned()),
        "{:?}",
        said(&compiled(&other))
    );
}

/// Routes as (kind, name, hostnames); then which of them are accepted.
#[test]
fn http_and_grpc_do_not_share_a_host_of_a_listener() {
    let gateway_text = gateway_of("g", &["{name: web, port: 80, protocol: HTTP}"]);
    for (routes, accepted) in [
        ([("HTTPRoute", "a", "[x.example]"), ("GRPCRoute", "b", "[x.example]")], [true, false]),
        ([("GRPCRoute", "a", "[x.example]"), ("HTTPRoute", "b", "[x.example]")], [true, false]),
        ([("HTTPRoute", "a", "[x.example]"), ("GRPCRoute", "b", "[y.example]")], [true, true]),
        ([("HTTPRoute", "a", "[x.example]"), ("HTTPRoute", "b", "[x.example]")], [true, true]),
        ([("HTTPRoute", "a", "[x.example]"), ("GRPCRoute", "b", "[]")], [true, false]),
        ([("HTTPRoute", "a", "[]"), ("GRPCRoute", "b", "[y.example]")], [true, false]),
        ([("HTTPRoute", "a", "['*.example']"), ("GRPCRoute", "b", "[y.example]")], [true, false]),
        ([("HTTPRoute", "a", "[y.x.example]"), ("GRPCRoute", "b", "['*.example']")], [true, false]),
        ([("HTTPRoute", "a", "['*.x.example']"), ("GRPCRoute", "b", "['*.example']")], [true, false]),
        ([("HTTPRoute", "a", "[example]"), ("GRPCRoute", "b", "['*.example']")], [true, true]),
    ] {
        let text: String = routes
            .iter()
            .map(|(kind, name, hosts)| route_of(kind, name, &format!("hostnames: {hosts}, rules: [{{}}]")))
            .collect();
        let compiled = compiled(&format!("{gateway_text}{text}"));
        let found = routes.map(|(kind, name, _)| route(&compiled, kind, name)[0] == "Accepted=True Accepted");
        assert_eq!(found, accepted, "{routes:?}");
        let refused = accepted.iter().filter(|accepted| !**accepted).count();
        assert_eq!(listener(&compiled, "g", 0).1, 2 - refused, "{routes:?}");
    }
}

#[test]
fn the_later_route_is_told_which_one_is_earlier() {
    let text = gateway_of("g", &["{name: web, port: 80, protocol: HTTP}"])
        + &route_of("HTTPRoute", "a", "rules: [{}]")
        + &route_of("GRPCRoute", "b", "rules: [{}]");
    let compiled = compiled(&text);
    let status = &compiled.statuses.routes[&("GRPCRoute", Key::new("default", "b"))][0].conditions[0];
    assert_eq!((status.status, status.reason), (false, "HostnameConflict"));
    assert!(status.message.starts_with("HTTPRoute default/a is older"), "{}", status.message);
}

#[test]
fn default_gateways_take_routes_that_ask_for_them() {
    let gateway_text = |name: &str, scope: &str| {
        let listeners = "[{name: web, port: 80, protocol: HTTP}, {name: db, port: 81, protocol: TCP}]";
        object(
            "Gateway",
            name,
            &format!("{{gatewayClassName: gatewayd, defaultScope: {scope}, listeners: {listeners}}}"),
        )
    };
    let gateways = gateway_text("g", "All") + &gateway_text("h", "All") + &gateway_text("i", "None");
    let parents = |kind: &'static str, fields: &str| -> Vec<(String, Option<String>)> {
        let rules = if kind == "HTTPRoute" { "{}" } else { "{backendRefs: [{name: s, port: 1}]}" };
        let compiled =
            compiled(&format!("{gateways}{}", object(kind, "r", &format!("{{{fields}, rules: [{rules}]}}"))));
        let Some(parents) = compiled.statuses.routes.get(&(kind, Key::new("default", "r"))) else {
            return Vec::new();
        };
        assert!(parents.iter().all(|parent| parent.conditions[0].status), "{parents:?}");
        parents.iter().map(|of| (of.parent.name.clone(), of.parent.section_name.clone())).collect()
    };
    let named = |name: &str| (name.to_owned(), None);
    for kind in ["HTTPRoute", "TCPRoute"] {
        assert_eq!(parents(kind, "useDefaultGateways: All"), [named("g"), named("h")]);
        assert_eq!(parents(kind, "useDefaultGateways: None"), []);
    }
    assert_eq!(
        parents("HTTPRoute", "useDefaultGateways: All, parentRefs: [{name: i}, {name: g, sectionName: web}]"),
        [named("i"), ("g".to_owned(), Some("web".to_owned())), named("h")]
    );
}
