//! Which rule a request meets: hostname, path, method, headers and query, in the specification's precedence.

use gateway_tests::http::full;
use gateway_tests::tls::Identity;
use gateway_tests::topology::Family;

use crate::stand::{TLS_NAME, lab, route, rule, start, to, ways};

/// Rules of the HTTPRoute `shop`; each but for its name is what it matches. Less specific ones come first, so that
/// the order they are written in never is the right one.
const SHOP: &[(&str, &str)] = &[
    ("root", "{path: {value: /}}"),
    ("a", "{path: {value: /a}}"),
    ("a-query", "{path: {value: /a}, queryParams: [{name: q, value: \"1\"}]}"),
    ("a-queries", "{path: {value: /a}, queryParams: [{name: q, value: \"1\"}, {name: r, value: \"2\"}]}"),
    ("a-header", "{path: {value: /a}, headers: [{name: X-Version, value: two}]}"),
    ("a-headers", "{path: {value: /a}, headers: [{name: x-version, value: two}, {name: x-user, value: me}]}"),
    ("a-post", "{path: {value: /a}, method: POST}"),
    ("a-b", "{path: {value: /a/b}}"),
    ("a-exact", "{path: {type: Exact, value: /a/b/c}}"),
    ("regex", "{path: {type: RegularExpression, value: '/v[0-9]+/status'}}"),
    (
        "header-regex",
        "{path: {value: /h}, headers: [{type: RegularExpression, name: x-version, value: 'v[0-9]'}]}",
    ),
    (
        "query-regex",
        "{path: {value: /q}, queryParams: [{type: RegularExpression, name: q, value: '[a-c]+'}]}",
    ),
    ("either", "{path: {type: Exact, value: /left}}, {path: {type: Exact, value: /right}, method: PUT}"),
    ("same-first", "{path: {type: Exact, value: /same/rule}}"),
    ("same-second", "{path: {type: Exact, value: /same/rule}}"),
    ("same-later-route", "{path: {type: Exact, value: /same/route}}"),
];

/// A request: method, authority, path, headers; and the rule it meets, none for 404.
type Row = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)], &'static str);

const ROWS: &[Row] = &[
    // Hostnames: the exact one, the longest wildcard, any.
    ("GET", "shop.example", "/", &[], "root"),
    ("GET", "SHOP.example:8000", "/", &[], "root"),
    ("GET", "eu.shop.example", "/", &[], "wildcard"),
    ("GET", "x.y.shop.example", "/", &[], "wildcard"),
    ("GET", "x.eu.shop.example", "/", &[], "longer-wildcard"),
    ("GET", "other.example", "/any", &[], "any"),
    ("GET", "other.example", "/", &[], ""),
    // Paths: exact before prefix, longer before shorter, whole segments, case matters.
    ("GET", "shop.example", "/nothing/of/the/others", &[], "root"),
    ("GET", "shop.example", "/a", &[], "a"),
    ("GET", "shop.example", "/a/", &[], "a"),
    ("GET", "shop.example", "/ab", &[], "root"),
    ("GET", "shop.example", "/A", &[], "root"),
    ("GET", "shop.example", "/a/b", &[], "a-b"),
    ("GET", "shop.example", "/a/bc", &[], "a"),
    ("GET", "shop.example", "/a/b/d", &[], "a-b"),
    ("GET", "shop.example", "/a/b/c", &[], "a-exact"),
    ("GET", "shop.example", "/a/b/c/", &[], "a-b"),
    ("GET", "shop.example", "/v12/status", &[], "regex"),
    ("GET", "shop.example", "/v12/status/", &[], "root"),
    ("GET", "shop.example", "/x/v12/status", &[], "root"),
    // Method before headers, headers before query, more before fewer, and a longer path before all of them.
    ("POST", "shop.example", "/a", &[("x-version", "two"), ("x-user", "me")], "a-post"),
    ("PUT", "shop.example", "/a", &[], "a"),
    ("GET", "shop.example", "/a?q=1", &[("x-version", "two")], "a-header"),
    ("GET", "shop.example", "/a?q=1&r=2", &[("x-version", "two")], "a-header"),
    ("GET", "shop.example", "/a?r=2&q=1", &[("x-user", "me"), ("x-version", "two")], "a-headers"),
    ("GET", "shop.example", "/a", &[("x-version", "three")], "a"),
    ("GET", "shop.example", "/a?q=1", &[], "a-query"),
    ("GET", "shop.example", "/a?r=2&q=1&s", &[], "a-queries"),
    ("GET", "shop.example", "/a?q=2&q=1", &[], "a"),
    ("GET", "shop.example", "/a?Q=1", &[], "a"),
    ("POST", "shop.example", "/a/b?q=1", &[("x-version", "two")], "a-b"),
    // Regular expressions match whole values.
    ("GET", "shop.example", "/h", &[("x-version", "v7")], "header-regex"),
    ("GET", "shop.example", "/h", &[("x-version", "v77")], "root"),
    ("GET", "shop.example", "/q?q=abcab", &[], "query-regex"),
    ("GET", "shop.example", "/q?q=abd", &[], "root"),
    // Matches of one rule are alternatives; conditions of one match are not.
    ("GET", "shop.example", "/left", &[], "either"),
    ("PUT", "shop.example", "/right", &[], "either"),
    ("GET", "shop.example", "/right", &[], "root"),
    // What is alike: the first rule, and the route whose name is first.
    ("GET", "shop.example", "/same/rule", &[], "same-first"),
    ("GET", "shop.example", "/same/route", &[], "same-earlier-route"),
];

/// A rule that says its name to the backend.
fn named(name: &str, matches: &str, backend: &str) -> String {
    let filter = format!(
        "{{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{{name: x-rule, value: {name}}}]}}}}"
    );
    rule(matches, &filter, &to(backend, 1))
}

fn routes() -> String {
    // Backends of both protocols take part, so that each of the client's meets each of the backend's.
    let backend = |index: usize| if index.is_multiple_of(2) { "backend-1" } else { "h2c-2" };
    let shop: String = SHOP
        .iter()
        .enumerate()
        .map(|(index, (name, matches))| named(name, matches, backend(index)))
        .collect();
    let one = |name, hostnames: &[&str], rule_name, matches| {
        route("HTTPRoute", name, hostnames, &named(rule_name, matches, "backend-3"))
    };
    let everything = "{path: {value: /}}";
    [
        route("HTTPRoute", "shop", &["shop.example"], &shop),
        one("earlier", &["shop.example"], "same-earlier-route", "{path: {type: Exact, value: /same/route}}"),
        one("wildcard", &["*.shop.example"], "wildcard", everything),
        one("longer", &["*.eu.shop.example"], "longer-wildcard", everything),
        one("any", &[], "any", "{path: {type: Exact, value: /any}}"),
    ]
    .concat()
}

#[test]
fn requests_of_every_protocol_meet_the_rule_of_the_highest_precedence() {
    let (lab, _backends) = lab(1);
    let identity = Identity::for_names(&[TLS_NAME]).expect("a certificate");
    let _daemon = start(&lab, &identity, &[("routes.yaml", &routes())]);
    for (family, way) in Family::ALL.into_iter().flat_map(|family| ways(&identity).map(|way| (family, way))) {
        lab.client().block_on(|| async {
            let mut connection = way.open(family).await;
            for (method, authority, path, headers, expected) in ROWS {
                let context = format!("{family}, {}: {method} {authority} {path} {headers:?}", way.name);
                let mut request = way.request(method, authority, path);
                for (name, value) in *headers {
                    request = request.header(*name, *value);
                }
                let answer = connection.ask(request.body(full("")).expect("a request")).await;
                let answer = answer.unwrap_or_else(|error| panic!("{context}: {error:#}"));
                if expected.is_empty() {
                    assert_eq!(answer.status.as_u16(), 404, "{context}");
                    continue;
                }
                let report = answer.report().unwrap_or_else(|error| panic!("{context}: {error:#}"));
                assert_eq!(report.headers.get("x-rule").map(String::as_str), Some(*expected), "{context}");
                assert_eq!((report.method.as_str(), report.path.as_str()), (*method, *path), "{context}");
                assert_eq!(report.authority, *authority, "{context}");
                let version = if report.backend == "backend-2" { "HTTP/2.0" } else { "HTTP/1.1" };
                assert_eq!(report.version, version, "{context}");
            }
        });
    }
}
