//! Precedence, as rows: rules, then requests and the rule that answers each.

use http::{HeaderName, HeaderValue};

use super::*;
use crate::model::l7::{Action, HeaderMatch, Pattern, Policy, QueryMatch, TextMatch};

/// A rule named by what it does, `label` being what rows expect.
fn rule(label: &str, path: PathMatch) -> Rule {
    Rule {
        name: label.into(),
        kind: RuleKind::Http,
        hostnames: Vec::new(),
        matches: vec![Match { path, method: None, headers: Vec::new(), query: Vec::new() }],
        filters: Vec::new(),
        backend_filters: Vec::new(),
        policy: Policy::default(),
        action: Action::NoBackend,
    }
}

fn exact(label: &str, path: &str) -> Rule {
    rule(label, PathMatch::Exact(path.into()))
}

fn prefix(label: &str, path: &str) -> Rule {
    rule(label, PathMatch::Prefix(path.into()))
}

fn regex(label: &str, pattern: &str) -> Rule {
    rule(label, PathMatch::Regex(Pattern(pattern.into())))
}

fn grpc(label: &str, service: Option<TextMatch>, method: Option<TextMatch>) -> Rule {
    Rule { kind: RuleKind::Grpc, ..rule(label, PathMatch::Grpc { service, method }) }
}

fn text(text: &str) -> TextMatch {
    TextMatch::Exact(text.into())
}

fn pattern(text: &str) -> TextMatch {
    TextMatch::Regex(Pattern(text.into()))
}

impl Rule {
    fn on(mut self, hosts: &[&str]) -> Self {
        self.hostnames = hosts
            .iter()
            .map(|host| match host.strip_prefix("*.") {
                Some(suffix) => Hostname::Wildcard(suffix.into()),
                None => Hostname::Exact((*host).into()),
            })
            .collect();
        self
    }

    fn method(mut self, method: Method) -> Self {
        self.matches[0].method = Some(method);
        self
    }

    fn header(mut self, name: &'static str, value: TextMatch) -> Self {
        self.matches[0].headers.push(HeaderMatch { name: HeaderName::from_static(name), value });
        self
    }

    fn query(mut self, name: &str, value: TextMatch) -> Self {
        self.matches[0].query.push(QueryMatch { name: name.into(), value });
        self
    }
}

/// Host, method, path with query, headers, and the label of the rule that answers (empty: none).
type Row<'a> = (&'a str, &'a str, &'a str, &'a [(&'static str, &'static str)], &'a str);

fn check(rules: &[Rule], rows: &[Row<'_>]) {
    let table = RouteTable::compile(rules);
    for row in rows {
        let (host, method, target, headers, expected) = row;
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let headers: HeaderMap = headers.collect();
        let (path, query) =
            target.split_once('?').map_or((*target, None), |(path, query)| (path, Some(query)));
        let host = Host::parse(host.as_bytes()).unwrap();
        let facts = Facts {
            host: host.as_str(),
            path: &canonical(path).unwrap(),
            query,
            method: &method.parse().unwrap(),
            headers: &headers,
            grpc: headers.contains_key("content-type"),
        };
        let found = table.find(&facts).map_or("", |found| rules[found.rule].name.as_str());
        assert_eq!(found, *expected, "{row:?}");
    }
}

#[test]
fn paths_go_exact_then_longest_prefix_then_pattern_then_root() {
    let rules = [
        prefix("root", ""),
        regex("pattern", "/[a-z]+/[0-9]+"),
        prefix("a", "/a"),
        prefix("a/b", "/a/b"),
        exact("=a/b", "/a/b"),
        exact("=a/b/", "/a/b/"),
        prefix("deep", "/a/b/c/d"),
        prefix("escaped", "/e%20f"),
    ];
    check(
        &rules,
        &[
            ("h", "GET", "/", &[], "root"),
            ("h", "GET", "/x", &[], "root"),
            ("h", "GET", "/a", &[], "a"),
            ("h", "GET", "/a/", &[], "a"),
            ("h", "GET", "/ab", &[], "root"),
            ("h", "GET", "/a/x", &[], "a"),
            ("h", "GET", "/a/b", &[], "=a/b"),
            ("h", "GET", "/a/b/", &[], "=a/b/"),
            ("h", "GET", "/a/b/c", &[], "a/b"),
            ("h", "GET", "/a/b/c/dd", &[], "a/b"),
            ("h", "GET", "/a/b/c/d", &[], "deep"),
            ("h", "GET", "/a/b/c/d/e/f", &[], "deep"),
            ("h", "GET", "/a/bc", &[], "a"),
            ("h", "GET", "/a/12", &[], "a"),
            ("h", "GET", "/x/12", &[], "pattern"),
            ("h", "GET", "/x/12/", &[], "root"),
            ("h", "GET", "/y/x/12", &[], "root"),
            ("h", "GET", "//a///b", &[], "=a/b"),
            ("h", "GET", "/%61/x", &[], "a"),
            ("h", "GET", "/e%20f/g", &[], "escaped"),
            ("h", "GET", "/a%2Fb", &[], "root"),
            ("h", "GET", "/A", &[], "root"),
        ],
    );
}

#[test]
fn ties_go_method_then_headers_then_query_then_order() {
    let rules = [
        prefix("plain", "/a"),
        prefix("plain again", "/a"),
        prefix("query", "/a").query("q", text("1")),
        prefix("two queries", "/a").query("q", text("1")).query("r", text("2")),
        prefix("header", "/a").header("x", text("1")),
        prefix("header and query", "/a").header("x", text("1")).query("q", text("1")),
        prefix("two headers", "/a").header("x", text("1")).header("y", text("2")),
        prefix("method", "/a").method(Method::PUT),
        prefix("method and header", "/a").method(Method::PUT).header("x", text("1")),
        prefix("long", "/a/b"),
        prefix("long with header", "/a/b").header("z", pattern("[0-9]+")),
    ];
    check(
        &rules,
        &[
            ("h", "GET", "/a", &[], "plain"),
            ("h", "GET", "/a?q=1", &[], "query"),
            ("h", "GET", "/a?q=1&r=2", &[], "two queries"),
            ("h", "GET", "/a?r=2&q=2&q=1", &[], "plain"),
            ("h", "GET", "/a", &[("x", "1")], "header"),
            ("h", "GET", "/a", &[("x", "2")], "plain"),
            ("h", "GET", "/a?q=1&r=2", &[("x", "1")], "header and query"),
            ("h", "GET", "/a?q=1", &[("x", "1"), ("y", "2")], "two headers"),
            ("h", "PUT", "/a?q=1", &[("y", "2")], "method"),
            ("h", "PUT", "/a", &[("x", "1"), ("y", "2")], "method and header"),
            ("h", "PUT", "/a/b", &[("x", "1")], "long"),
            ("h", "GET", "/a/b", &[("z", "12")], "long with header"),
            ("h", "GET", "/a/b", &[("z", "12x")], "long"),
        ],
    );
}

#[test]
fn longer_prefix_whose_conditions_fail_leaves_the_request_to_shorter_ones() {
    let rules = [
        prefix("a", "/a"),
        prefix("a/b", "/a/b").header("x", text("1")),
        exact("=a/b/c", "/a/b/c").method(Method::POST),
    ];
    check(
        &rules,
        &[
            ("h", "POST", "/a/b/c", &[], "=a/b/c"),
            ("h", "GET", "/a/b/c", &[("x", "1")], "a/b"),
            ("h", "GET", "/a/b/c", &[], "a"),
            ("h", "GET", "/b", &[], ""),
        ],
    );
}

#[test]
fn more_specific_hostnames_go_first_and_do_not_hide_the_others() {
    let rules = [
        prefix("any", "/"),
        prefix("any deep", "/x/y"),
        prefix("wild", "/x").on(&["*.example.com"]),
        prefix("longer wild", "/x").on(&["*.b.example.com"]),
        prefix("exact", "/x").on(&["a.b.example.com", "other.org"]),
    ];
    // A prefix is written without its trailing slash in the model.
    let rules = rules.map(|mut rule| {
        if rule.name == "any" {
            rule.matches[0].path = PathMatch::Prefix(String::new());
        }
        rule
    });
    check(
        &rules,
        &[
            ("a.b.example.com", "GET", "/x/y", &[], "exact"),
            ("A.B.Example.COM:8080", "GET", "/x", &[], "exact"),
            ("a.b.example.com.", "GET", "/x", &[], "exact"),
            ("c.b.example.com", "GET", "/x/y", &[], "longer wild"),
            ("d.c.b.example.com", "GET", "/x", &[], "longer wild"),
            ("b.example.com", "GET", "/x", &[], "wild"),
            ("example.com", "GET", "/x", &[], "any"),
            ("example.com", "GET", "/x/y", &[], "any deep"),
            ("other.org", "GET", "/x", &[], "exact"),
            ("a.b.example.com", "GET", "/z", &[], "any"),
        ],
    );
}

#[test]
fn grpc_goes_service_then_method_then_headers() {
    const GRPC: (&str, &str) = ("content-type", "application/grpc");
    let rules = [
        grpc("any method Get", None, Some(text("Get"))),
        grpc("method pattern", None, Some(pattern("Get.*"))),
        grpc("service", Some(text("a.B")), None),
        grpc("service with header", Some(text("a.B")), None).header("x", text("1")),
        grpc("service, method pattern", Some(text("a.B")), Some(pattern("Li.t"))),
        grpc("service pattern", Some(pattern("a\\..*")), None),
        Rule { kind: RuleKind::Grpc, ..exact("both", "/a.B/Get") },
        prefix("http", "/a.B").header("y", text("1")),
        Rule { kind: RuleKind::Grpc, ..prefix("any", "").on(&["h.example"]) },
    ];
    check(
        &rules,
        &[
            ("h", "POST", "/a.B/Get", &[GRPC], "both"),
            ("h", "POST", "/a.B/List", &[GRPC], "service, method pattern"),
            ("h", "POST", "/a.B/List2", &[GRPC], "service"),
            ("h", "POST", "/a.B/Put", &[GRPC, ("x", "1")], "service with header"),
            ("h", "POST", "/a.C/Get", &[GRPC], "service pattern"),
            ("h", "POST", "/b.C/Get", &[GRPC], "any method Get"),
            ("h", "POST", "/b.C/GetAll", &[GRPC], "method pattern"),
            ("h", "POST", "/b.C/Put", &[GRPC], ""),
            ("h.example", "POST", "/b.C/Put", &[GRPC], "any"),
            ("h", "POST", "/a.B/Get", &[], ""),
            ("h", "POST", "/a.B/Get", &[("y", "1")], "http"),
            ("h", "POST", "/a.B/Get", &[GRPC, ("y", "1")], "both"),
        ],
    );
}

#[test]
fn first_of_equal_matches_wins_whichever_rule_it_is_in() {
    let mut first = exact("first", "/a");
    first.matches.push(Match {
        path: PathMatch::Exact("/b".into()),
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
    });
    check(
        &[first, exact("second", "/b"), exact("third", "/c")],
        &[
            ("h", "GET", "/b", &[], "first"),
            ("h", "GET", "/a", &[], "first"),
            ("h", "GET", "/c", &[], "third"),
        ],
    );
}

/// What is lost in a proxy on hyper is lost in what it adds.
#[test]
fn lookup_allocates_nothing() {
    let mut rules: Vec<Rule> = (0..500)
        .map(|index| prefix(&index.to_string(), &format!("/a/{index}/c")).on(&["*.example.com", "b.example"]))
        .collect();
    rules.push(
        prefix("last", "/a")
            .on(&["*.com"])
            .method(Method::GET)
            .header("x-version", pattern("v[0-9]+"))
            .query("q", text("a b")),
    );
    let table = RouteTable::compile(&rules);
    let headers =
        HeaderMap::from_iter([(HeaderName::from_static("x-version"), HeaderValue::from_static("v12"))]);
    let search = |path: &str, expected: usize| {
        let host = Host::parse(b"WWW.shop.Example.com:8080").unwrap();
        let path = canonical(path).unwrap();
        let facts = Facts {
            host: host.as_str(),
            path: &path,
            query: Some("p=1&q=a%20b"),
            method: &Method::GET,
            headers: &headers,
            grpc: false,
        };
        assert_eq!(table.find(&facts).map(|found| found.rule), Some(expected));
    };
    // A regular expression gets its scratch space at its first use on a thread.
    search("/a/x", 500);
    let counted = allocation_counter::measure(|| {
        search("/a/499/c/d/e", 499);
        search("/a/0/c", 0);
        search("/a/77/x", 500);
        search("/a/x", 500);
    });
    assert_eq!(counted.count_total, 0, "{counted:?}");
    let counted = allocation_counter::measure(|| search("/%61/x", 500));
    assert!(counted.count_total > 0, "the counter counts");
}
