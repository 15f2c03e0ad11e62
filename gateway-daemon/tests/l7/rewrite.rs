//! URLRewrite, and filters of single backends.

use gateway_daemon::model::l7::{AppProtocol, Filter, HeaderModifier, PathModifier, Redirect, Rewrite, Rule};
use http::{HeaderName, HeaderValue, StatusCode};

use crate::support::*;

fn rewrite(hostname: Option<&str>, path: impl Into<Option<PathModifier>>) -> Filter {
    Filter::Rewrite(Rewrite { hostname: hostname.map(Into::into), path: path.into() })
}

fn prefix(text: &str) -> PathModifier {
    PathModifier::Prefix(text.into())
}

fn whole(text: &str) -> PathModifier {
    PathModifier::Full(text.into())
}

fn set(name: &'static str, value: &'static str) -> HeaderModifier {
    let header = (HeaderName::from_static(name), HeaderValue::from_static(value));
    HeaderModifier { set: vec![header], ..HeaderModifier::default() }
}

fn of_backends(filters: Vec<Vec<Filter>>, rule: Rule) -> Rule {
    Rule { backend_filters: filters, ..rule }
}

/// What the backend saw: path and query, and the host.
fn seen(response: &Raw) -> (&str, &str) {
    let mut lines = response.body.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a path");
    (path, lines.find_map(|line| line.strip_prefix("host: ")).expect("a host"))
}

#[tokio::test]
async fn paths_and_hosts_are_rewritten() {
    // The specification's table for ReplacePrefixMatch, then the rest.
    let rows = [
        ("/foo", "/foo/bar", rewrite(None, prefix("/xyz")), "/xyz/bar", "a.example"),
        ("/foo", "/foo/bar", rewrite(None, prefix("/xyz/")), "/xyz/bar", "a.example"),
        ("/foo/", "/foo/bar", rewrite(None, prefix("/xyz")), "/xyz/bar", "a.example"),
        ("/foo/", "/foo/bar", rewrite(None, prefix("/xyz/")), "/xyz/bar", "a.example"),
        ("/foo", "/foo", rewrite(None, prefix("/xyz")), "/xyz", "a.example"),
        ("/foo", "/foo/", rewrite(None, prefix("/xyz")), "/xyz/", "a.example"),
        ("/foo", "/foo/bar", rewrite(None, prefix("")), "/bar", "a.example"),
        ("/foo", "/foo/", rewrite(None, prefix("")), "/", "a.example"),
        ("/foo", "/foo", rewrite(None, prefix("")), "/", "a.example"),
        ("/foo", "/foo/", rewrite(None, prefix("/")), "/", "a.example"),
        ("/foo", "/foo", rewrite(None, prefix("/")), "/", "a.example"),
        ("/", "/foo/bar", rewrite(None, prefix("/xyz")), "/xyz/foo/bar", "a.example"),
        ("/foo", "/foo/a%20b", rewrite(None, prefix("xyz")), "/xyz/a%20b", "a.example"),
        ("/foo", "/foo/bar", rewrite(None, whole("/one")), "/one", "a.example"),
        ("/foo", "/foo/bar", rewrite(None, whole("one")), "/one", "a.example"),
        ("/foo", "/foo/bar", rewrite(None, whole("")), "/", "a.example"),
        ("/foo", "/foo/bar", rewrite(Some("b.example"), None), "/foo/bar", "b.example"),
        ("/foo", "/foo/bar", rewrite(Some("b.example"), whole("/one")), "/one", "b.example"),
    ];
    let h1 = Backend::echo_head().await;
    let h2 = Backend::http2(|request| async move {
        let (path, host) = (request.uri().path_and_query().unwrap(), request.uri().authority().unwrap());
        http::Response::new(full(format!("GET {path} HTTP/2\nhost: {host}\n")))
    })
    .await;
    for (protocol, backend) in [(AppProtocol::Http, &h1), (AppProtocol::H2c, &h2)] {
        let action = to_endpoints(protocol, &[backend.address]);
        for (matched, path, filter, expected, host) in &rows {
            for query in ["", "?q=/foo&x"] {
                let address = address();
                let filters = vec![filter.clone()];
                let rule = with_filters(filters, rule(vec![path_prefix(matched)], action.clone()));
                let _proxy = serving(settings(), plain(address, vec![rule])).await;
                let response = get(address, "a.example", &format!("{path}{query}")).await;
                let wanted = format!("{expected}{query}");
                assert_eq!(
                    seen(&response),
                    (wanted.as_str(), *host),
                    "{protocol:?} {matched} {path} {filter:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn filters_of_a_backend_are_applied_to_its_requests_only() {
    let backend = Backend::echo_head().await;
    let to = |name: &str, weight| backend_ref(name, weight, AppProtocol::Http, &[backend.address]);
    let redirect = |path| {
        let (path, status) = (Some(path), StatusCode::FOUND);
        Filter::Redirect(Redirect { scheme: None, hostname: None, path, port: None, status })
    };
    let filters = [
        vec![],
        vec![Filter::RequestHeaders(set("x-backend", "b")), Filter::ResponseHeaders(set("x-who", "b"))],
        vec![rewrite(Some("c.example"), prefix("/two"))],
        vec![redirect(prefix("/three"))],
    ];
    // One of the four has all the weight.
    for (heavy, path, host, who, location) in [
        (0, "/rule/x?q", "rule.example", "rule", None),
        (1, "/rule/x?q", "rule.example", "b", None),
        (2, "/two/x?q", "c.example", "rule", None),
        (3, "", "", "", Some("/three/x?q")),
    ] {
        let backends = (0..4).map(|nth| to(&format!("b{nth}"), u32::from(nth == heavy))).collect();
        let action = gateway_daemon::model::l7::Action::Forward(service("s", backends));
        let of_rule = vec![
            rewrite(Some("rule.example"), prefix("/rule")),
            Filter::RequestHeaders(set("x-backend", "rule")),
        ];
        let rule = with_filters(of_rule, rule(vec![path_prefix("/a")], action));
        let address = address();
        let model = plain(address, vec![of_backends(filters.to_vec(), rule)]);
        let proxy = serving(settings(), model).await;
        let response = get(address, "a.example", "/a/x?q").await;
        if let Some(location) = location {
            let port = address.port();
            assert_eq!(response.status, 302);
            assert_eq!(response.header("location"), Some(&*format!("http://a.example:{port}{location}")));
            assert_eq!(proxy.stats()["s"].backends[heavy].responses[2], 1);
            continue;
        }
        assert_eq!(seen(&response), (path, host), "{heavy}");
        assert!(response.body.contains(&format!("\nx-backend: {who}\n")), "{heavy}: {}", response.body);
        assert_eq!(response.header("x-who"), (heavy == 1).then_some("b"), "{heavy}");
    }
}
