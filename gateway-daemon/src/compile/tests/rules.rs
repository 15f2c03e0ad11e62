//! Rules of HTTPRoutes and GRPCRoutes.

use std::time::Duration;

use ::http::StatusCode;

use super::*;
use crate::model::l7::{
    Action, AppProtocol, Filter, HeaderMatch, Match, PathMatch, PathModifier, Pattern, Policy, QueryMatch,
    Retry, RuleKind, Target, TextMatch,
};

const WEB: &str = "{name: web, port: 80, protocol: HTTP}";

fn http(rules: &str) -> Compiled {
    compiled(&format!(
        "{}{}{}",
        gateway_of("g", &[WEB]),
        backend("b", &[("198.18.1.1", 80)]),
        route_of("HTTPRoute", "r", &format!("rules: [{rules}]"))
    ))
}

fn grpc(rules: &str) -> Compiled {
    compiled(&format!(
        "{}{}{}",
        gateway_of("g", &[WEB]),
        backend("b", &[("198.18.1.1", 80)]),
        route_of("GRPCRoute", "r", &format!("rules: [{rules}]"))
    ))
}

fn everything() -> Match {
    Match { path: PathMatch::Prefix(String::new()), method: None, headers: vec![], query: vec![] }
}

#[test]
fn a_rule_without_matches_matches_everything() {
    let compiled = http(&format!("{{backendRefs: [{}]}}", to("b", 1)));
    let rule = only_rule(&compiled);
    assert_eq!(rule.matches, [everything()]);
    assert_eq!((rule.name.as_str(), rule.kind), ("httproute.default.r.0", RuleKind::Http));
    let Action::Forward(service) = &rule.action else { panic!("{rule:?}") };
    assert_eq!(service.name, "httproute.default.r.0");
    assert_eq!(service.backends[0].name, "default/b");
    assert_eq!(
        service.backends[0].target,
        Target::Endpoints { protocol: AppProtocol::Http, endpoints: vec!["198.18.1.1:80".parse().unwrap()] }
    );
    assert_eq!(compiled.model.l7.services.keys().collect::<Vec<_>>(), ["httproute.default.r.0"]);
}

#[test]
fn matches_are_as_written_and_the_first_of_equal_names_counts() {
    let compiled = http(&format!(
        "{{backendRefs: [{}], matches: [{{path: {{value: /a/}}, method: GET, headers: [{{name: X-One, value: a}}, {{name: x-one, value: b}}], queryParams: [{{name: q, value: 'a.*', type: RegularExpression}}]}}, {{path: {{type: Exact, value: /b/}}}}, {{path: {{type: RegularExpression, value: '/c[0-9]+'}}}}]}}",
        to("b", 1)
    ));
    let regex = |text: &str| TextMatch::Regex(Pattern(text.to_owned()));
    assert_eq!(
        only_rule(&compiled).matches,
        [
            Match {
                path: PathMatch::Prefix("/a".into()),
                method: Some(::http::Method::GET),
                headers: vec![HeaderMatch {
                    name: "x-one".parse().unwrap(),
                    value: TextMatch::Exact("a".into())
                }],
                query: vec![QueryMatch { name: "q".into(), value: regex("a.*") }],
            },
            Match { path: PathMatch::Exact("/b/".into()), ..everything() },
            Match { path: PathMatch::Regex(Pattern("/c[0-9]+".into())), ..everything() },
        ]
    );
    assert_eq!(compiled.diagnostics[0].code, "repeated-header");
}

#[test]
fn filters_keep_their_order_and_a_redirect_answers() {
    let compiled = http(
        "{filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {remove: [A]}}, {type: RequestRedirect, requestRedirect: {scheme: https, statusCode: 301, path: {type: ReplacePrefixMatch, replacePrefixMatch: /x}}}]}",
    );
    let rule = only_rule(&compiled);
    assert_eq!(rule.action, Action::Answered);
    let [Filter::ResponseHeaders(modifier), Filter::Redirect(redirect)] = rule.filters.as_slice() else {
        panic!("{:?}", rule.filters)
    };
    assert_eq!(modifier.remove, ["a"]);
    assert_eq!((redirect.status.as_u16(), redirect.scheme.clone()), (301, Some(::http::uri::Scheme::HTTPS)));
    assert_eq!(redirect.path, Some(PathModifier::Prefix("/x".into())));
    assert_eq!(said(&compiled), Vec::<String>::new());
}

#[test]
fn filters_of_backends_follow_their_backends() {
    let filtered = |weight: u32, filters: &str| {
        to("b", weight).replace("weight", &format!("filters: [{filters}], weight"))
    };
    let rewrite = "{type: URLRewrite, urlRewrite: {hostname: c.example, path: {type: ReplacePrefixMatch, replacePrefixMatch: /n}}}";
    let set = "{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x, value: y}]}}";
    let rules = format!(
        "{{matches: [{{path: {{value: /a}}}}], backendRefs: [{}, {}]}}",
        filtered(2, rewrite),
        filtered(1, set)
    );
    let kinds = |filters: &[Vec<Filter>]| -> Vec<bool> {
        filters.iter().map(|list| matches!(list.as_slice(), [Filter::Rewrite(_)])).collect()
    };
    let compiled = http(&rules);
    let rule = only_rule(&compiled);
    let Action::Forward(service) = &rule.action else { panic!("{rule:?}") };
    assert_eq!(service.backends.iter().map(|one| one.weight).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(kinds(&rule.backend_filters), [true, false]);
    // A combined service has an order of its own.
    let text = format!(
        "{}{}{}",
        gateway_of("g", &[WEB]),
        backend("b", &[("198.18.1.1", 80)]),
        route_of("HTTPRoute", "r", &format!("rules: [{rules}]"))
    );
    let combined = compile(&resources(&text), &Settings { combined_services: true, ..node4() });
    let rule = only_rule(&combined);
    let Action::Forward(service) = &rule.action else { panic!("{rule:?}") };
    assert_eq!(service.backends.iter().map(|one| one.weight).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(kinds(&rule.backend_filters), [false, true]);
}

#[test]
fn a_path_that_cannot_be_one_is_told() {
    for path in ["/a b", "/a?b=c", "/a#b"] {
        let rewrite = format!("urlRewrite: {{path: {{type: ReplaceFullPath, replaceFullPath: '{path}'}}}}");
        let rule = format!("{{backendRefs: [{}], filters: [{{type: URLRewrite, {rewrite}}}]}}", to("b", 1));
        let compiled = http(&rule);
        assert!(matches!(only_rule(&compiled).action, Action::Unusable(_)), "{path}");
        assert_eq!(compiled.diagnostics[0].code, "unsupported-value", "{path}");
    }
}

#[test]
fn a_rule_without_backends_resolves_and_answers_with_an_error() {
    let compiled = http("{matches: [{path: {value: /a}}]}");
    assert_eq!(only_rule(&compiled).action, Action::NoBackend);
    assert_eq!(
        route(&compiled, "HTTPRoute", "r"),
        ["Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs"]
    );
    assert_eq!(said(&compiled), ["warning 14:61 no-backend"]);
    // A route without rules has one.
    let without = super::compiled(&format!(
        "{}{}",
        gateway_of("g", &[WEB]),
        object("HTTPRoute", "r", "{parentRefs: [{name: g}]}")
    ));
    assert_eq!(only_rule(&without).action, Action::NoBackend);
}

#[test]
fn an_invalid_backend_costs_its_share_only() {
    let compiled = http(&format!("{{backendRefs: [{}, {}]}}", to("b", 3), to("none", 1)));
    let Action::Forward(service) = &only_rule(&compiled).action else { panic!() };
    assert_eq!(service.backends.iter().map(|backend| backend.weight).collect::<Vec<_>>(), [3, 1]);
    assert_eq!(service.backends[1].target, Target::Invalid("there is no Backend default/none".into()));
    assert_eq!(
        route(&compiled, "HTTPRoute", "r"),
        ["Accepted=True Accepted", "ResolvedRefs=False BackendNotFound"]
    );
}

#[test]
fn what_is_not_served_yet_is_an_error_and_never_ignored() {
    let forward = format!("backendRefs: [{}]", to("b", 1));
    for part in [
        "filters: [{type: RequestMirror, requestMirror: {backendRef: {name: a, port: 80}}}]".to_owned(),
        "filters: [{type: CORS, cors: {}}]".to_owned(),
        "filters: [{type: ExtensionRef, extensionRef: {group: a.b, kind: C, name: d}}]".to_owned(),
        "filters: [{type: ExternalAuth, externalAuth: {protocol: HTTP, backendRef: {name: a, port: 80}}}]"
            .to_owned(),
        "sessionPersistence: {type: Cookie}".to_owned(),
    ] {
        let all = http(&format!("{{{forward}, {part}}}"));
        assert!(matches!(only_rule(&all).action, Action::Unusable(_)), "{part}");
        assert_eq!(
            route(&all, "HTTPRoute", "r"),
            ["Accepted=False UnsupportedValue", "ResolvedRefs=True ResolvedRefs"],
            "{part}"
        );
        assert_eq!(all.diagnostics[0].code, "unsupported-value", "{part}");
        assert_eq!(all.diagnostics[0].place.as_ref().unwrap().line, 14, "{part}");
        assert_eq!(listener(&all, "g", 0).1, 0, "{part}");
        let some = http(&format!("{{{forward}}}, {{{forward}, {part}}}"));
        assert_eq!(
            route(&some, "HTTPRoute", "r"),
            [
                "Accepted=True Accepted",
                "PartiallyInvalid=True UnsupportedValue",
                "ResolvedRefs=True ResolvedRefs"
            ],
            "{part}"
        );
        let status = &some.statuses.routes[&("HTTPRoute", Key::new("default", "r"))][0];
        assert!(status.conditions[1].message.starts_with("Dropped Rule"), "{part}");
    }
}

#[test]
fn timeouts_and_retries_are_as_written() {
    let millis = Duration::from_millis;
    let rows = [
        ("timeouts: {request: 0s, backendRequest: 0s}", Policy::default()),
        (
            "timeouts: {request: 1m10s, backendRequest: 500ms}",
            Policy {
                request_timeout: Some(millis(70_000)),
                backend_timeout: Some(millis(500)),
                ..Policy::default()
            },
        ),
        (
            "retry: {codes: [500, 503], attempts: 3, backoff: 1s}",
            Policy {
                retry: Some(Retry {
                    codes: vec![StatusCode::INTERNAL_SERVER_ERROR, StatusCode::SERVICE_UNAVAILABLE],
                    attempts: 3,
                    backoff: millis(1000),
                }),
                ..Policy::default()
            },
        ),
        (
            "retry: {}",
            Policy {
                retry: Some(Retry { codes: vec![], attempts: 2, backoff: millis(25) }),
                ..Policy::default()
            },
        ),
    ];
    for (written, expected) in rows {
        let compiled = http(&format!("{{backendRefs: [{}], {written}}}", to("b", 1)));
        assert_eq!(only_rule(&compiled).policy, expected, "{written}");
        assert_eq!(said(&compiled), Vec::<String>::new(), "{written}");
    }
}

#[test]
fn backends_speak_what_their_app_protocol_says() {
    for (app_protocol, expected) in [
        ("http", Some(AppProtocol::Http)),
        ("kubernetes.io/ws", Some(AppProtocol::Http)),
        ("kubernetes.io/h2c", Some(AppProtocol::H2c)),
        ("https", None),
        ("kubernetes.io/wss", None),
    ] {
        let backend = object(
            "Backend",
            "b",
            &format!("{{appProtocol: {app_protocol}, endpoints: [{{address: 198.18.1.1, port: 80}}]}}"),
        );
        let route_text = route_of("HTTPRoute", "r", &format!("rules: [{{backendRefs: [{}]}}]", to("b", 1)));
        let compiled = compiled(&format!("{}{backend}{route_text}", gateway_of("g", &[WEB])));
        let Action::Forward(service) = &only_rule(&compiled).action else { panic!() };
        let found = match &service.backends[0].target {
            Target::Endpoints { protocol, .. } => Some(*protocol),
            Target::Invalid(_) => None,
        };
        assert_eq!(found, expected, "{app_protocol}");
        let reason = if expected.is_some() { "True ResolvedRefs" } else { "False UnsupportedProtocol" };
        assert_eq!(route(&compiled, "HTTPRoute", "r")[1], format!("ResolvedRefs={reason}"), "{app_protocol}");
    }
}

#[test]
fn methods_of_grpc_become_paths() {
    let exact = |text: &str| Some(TextMatch::Exact(text.to_owned()));
    let regex = |text: &str| Some(TextMatch::Regex(Pattern(text.to_owned())));
    for (written, expected) in [
        ("{}", PathMatch::Prefix(String::new())),
        ("{method: {service: a.B, method: C}}", PathMatch::Exact("/a.B/C".into())),
        ("{method: {service: a.B}}", PathMatch::Grpc { service: exact("a.B"), method: None }),
        ("{method: {method: C}}", PathMatch::Grpc { service: None, method: exact("C") }),
        (
            "{method: {type: RegularExpression, service: 'a[.].*', method: 'C|D'}}",
            PathMatch::Grpc { service: regex("a[.].*"), method: regex("C|D") },
        ),
    ] {
        let compiled = grpc(&format!("{{backendRefs: [{}], matches: [{written}]}}", to("b", 1)));
        let rule = only_rule(&compiled);
        assert_eq!((rule.kind, &rule.matches[0].path), (RuleKind::Grpc, &expected), "{written}");
    }
}

#[test]
fn both_kinds_share_a_listener_and_the_oldest_comes_first() {
    let rules = format!("rules: [{{backendRefs: [{}]}}]", to("b", 1));
    let created = |text: String, year: u16| {
        text.replace(
            "namespace: default}\nspec",
            &format!("namespace: default, creationTimestamp: {year}-01-01T00:00:00Z}}\nspec"),
        )
    };
    let text = format!(
        "{}{}{}{}{}",
        gateway_of("g", &[WEB]),
        backend("b", &[("198.18.1.1", 80)]),
        created(route_of("HTTPRoute", "a", &format!("hostnames: [a.example], {rules}")), 2026),
        created(route_of("GRPCRoute", "c", &format!("hostnames: [c.example], {rules}")), 2024),
        created(route_of("HTTPRoute", "b", &format!("hostnames: [a.example], {rules}")), 2025),
    );
    let compiled = compiled(&text);
    let listeners = proxy(&compiled);
    let rules: Vec<(&str, usize)> =
        listeners[0].rules.iter().map(|rule| (rule.name.as_str(), rule.hostnames.len())).collect();
    assert_eq!(
        rules,
        [("grpcroute.default.c.0", 1), ("httproute.default.b.0", 1), ("httproute.default.a.0", 1)]
    );
    assert_eq!(listener(&compiled, "g", 0).1, 3);
}
