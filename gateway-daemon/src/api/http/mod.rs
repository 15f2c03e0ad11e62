//! HTTPRoute.

mod schema;

use std::time::Duration;

use serde::Deserialize;

use schema::HTTP_ROUTE;
pub(super) use schema::{MATCH_TYPE, SESSION_PERSISTENCE, VALUE_MATCHES};

use super::{
    Faults, GATEWAY_GROUP, Kind,
    filter::{Filter, filter_rules},
    format::duration_millis,
    route::{BackendRef, ParentRef, backend_rules, parent_rules},
    schema::Object,
};

/// Spec of an HTTPRoute.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRoute {
    /// Where to be attached.
    #[serde(default)]
    pub parent_refs: Vec<ParentRef>,
    /// Hosts to serve; none for all of the listener.
    #[serde(default)]
    pub hostnames: Vec<String>,
    /// Rules. When not given, one that matches everything and has no backend.
    #[serde(default = "one_rule")]
    pub rules: Vec<HttpRule>,
    /// Whether to be attached to default Gateways.
    pub use_default_gateways: Option<String>,
}

/// A rule of an HTTPRoute.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRule {
    /// Its name.
    pub name: Option<String>,
    /// Any of them must match; empty matches everything.
    #[serde(default)]
    pub matches: Vec<HttpMatch>,
    /// Filters.
    #[serde(default)]
    pub filters: Vec<Filter>,
    /// Where requests go.
    #[serde(default)]
    pub backend_refs: Vec<FilteredBackendRef>,
    /// Time limits.
    pub timeouts: Option<Timeouts>,
    /// Retries.
    pub retry: Option<Retry>,
    /// Session persistence; not served yet.
    pub session_persistence: Option<serde_json::Value>,
}

/// A BackendRef with filters of its own.
#[derive(Clone, Debug, Deserialize)]
pub struct FilteredBackendRef {
    /// The reference.
    #[serde(flatten)]
    pub backend: BackendRef,
    /// Filters for requests that go there.
    #[serde(default)]
    pub filters: Vec<Filter>,
}

/// Time limits of a rule, as GEP-2257 writes durations.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// For the whole of a request.
    pub request: Option<String>,
    /// For one try.
    pub backend_request: Option<String>,
}

/// When a request is sent again.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Retry {
    /// Statuses of responses that count as failures.
    #[serde(default)]
    pub codes: Vec<u16>,
    /// How often at most, after the first try.
    pub attempts: Option<u32>,
    /// Least time between two tries, as GEP-2257 writes durations.
    pub backoff: Option<String>,
}

/// Conditions that must all hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpMatch {
    /// On the path.
    #[serde(default)]
    pub path: PathMatch,
    /// On headers.
    #[serde(default)]
    pub headers: Vec<ValueMatch>,
    /// On query parameters.
    #[serde(default)]
    pub query_params: Vec<ValueMatch>,
    /// On the method.
    pub method: Option<String>,
}

/// A condition on the path.
#[derive(Clone, Debug, Deserialize)]
pub struct PathMatch {
    /// `Exact`, `PathPrefix` or `RegularExpression`.
    #[serde(rename = "type", default = "path_prefix")]
    pub match_type: String,
    /// What to compare with.
    #[serde(default = "root")]
    pub value: String,
}

/// A condition on a header or a query parameter.
#[derive(Clone, Debug, Deserialize)]
pub struct ValueMatch {
    /// `Exact` or `RegularExpression`.
    #[serde(rename = "type", default = "exact")]
    pub match_type: String,
    /// Name of the header or parameter.
    pub name: String,
    /// What to compare with.
    pub value: String,
}

impl Default for PathMatch {
    fn default() -> Self {
        Self { match_type: path_prefix(), value: root() }
    }
}

impl Kind for HttpRoute {
    const GROUP: &'static str = GATEWAY_GROUP;
    const VERSIONS: &'static [&'static str] = &["v1", "v1beta1"];
    const KIND: &'static str = "HTTPRoute";
    const SCHEMA: &'static Object = &HTTP_ROUTE;

    fn rules(&self, faults: &mut Faults) {
        parent_rules(&self.parent_refs, faults);
        if self.rules.iter().map(|rule| rule.matches.len()).sum::<usize>() > 128 {
            faults.add(
                "spec.rules",
                "item-count",
                "has more than 128 matches in all its rules: split the route",
            );
        }
        for (index, rule) in self.rules.iter().enumerate() {
            let path = format!("spec.rules[{index}]");
            let same = |other: &HttpRule| rule.name.is_some() && other.name == rule.name;
            if self.rules[..index].iter().any(same) {
                faults.add(
                    format!("{path}.name"),
                    "not-unique",
                    "is the name of an earlier rule: one must differ",
                );
            }
            http_rule_rules(rule, &path, faults);
        }
    }
}

fn http_rule_rules(rule: &HttpRule, path: &str, faults: &mut Faults) {
    for (index, matched) in rule.matches.iter().enumerate() {
        match_rules(matched, &format!("{path}.matches[{index}]"), faults);
    }
    filter_rules(&rule.filters, &format!("{path}.filters"), faults);
    for (index, reference) in rule.backend_refs.iter().enumerate() {
        let path = format!("{path}.backendRefs[{index}]");
        backend_rules(&reference.backend.to, &path, faults);
        filter_rules(&reference.filters, &format!("{path}.filters"), faults);
    }
    let redirects = rule.filters.iter().any(|filter| filter.request_redirect.is_some());
    if redirects && !rule.backend_refs.is_empty() {
        faults.add(
            format!("{path}.backendRefs"),
            "conflicting-fields",
            "excludes the filter RequestRedirect, which answers by itself: remove one of them",
        );
    }
    let by_prefix = match rule.matches.as_slice() {
        [] => true,
        [only] => only.path.match_type == "PathPrefix",
        _ => false,
    };
    let of_backends = rule.backend_refs.iter().enumerate().flat_map(|(nth, reference)| {
        let path = format!("{path}.backendRefs[{nth}].filters");
        (0..).zip(&reference.filters).map(move |(index, filter)| (format!("{path}[{index}]"), filter))
    });
    let of_rule =
        (0..).zip(&rule.filters).map(|(index, filter)| (format!("{path}.filters[{index}]"), filter));
    let replacing = of_rule.chain(of_backends).find(|(_, filter)| filter.replaces_prefix());
    if let Some((path, _)) = replacing.filter(|_| !by_prefix) {
        let message = "replaces a prefix, so the rule must have exactly one match, by PathPrefix";
        faults.add(path, "conflicting-fields", message);
    }
    if let Some(timeouts) = &rule.timeouts {
        let millis = |text: &Option<String>| text.as_deref().and_then(duration_millis);
        if let (Some(request), Some(backend)) = (millis(&timeouts.request), millis(&timeouts.backend_request))
            && request != 0
            && backend > request
        {
            faults.add(
                format!("{path}.timeouts.backendRequest"),
                "conflicting-fields",
                "must not be longer than request",
            );
        }
    }
}

fn match_rules(matched: &HttpMatch, path: &str, faults: &mut Faults) {
    let value_path = format!("{path}.path.value");
    if matched.path.match_type == "RegularExpression" {
        regex_rule(&matched.path.value, value_path, faults);
    } else if let Some(wrong) = path_fault(&matched.path.value) {
        faults.add(value_path, "bad-format", wrong);
    }
    for (field, values) in [("headers", &matched.headers), ("queryParams", &matched.query_params)] {
        value_rules(values, &format!("{path}.{field}"), faults);
    }
}

/// A duration as GEP-2257 writes it, if it is one.
pub fn duration(text: &str) -> Option<Duration> {
    duration_millis(text).map(Duration::from_millis)
}

/// Rules of conditions on headers or query parameters.
pub(super) fn value_rules(values: &[ValueMatch], path: &str, faults: &mut Faults) {
    for (index, value) in values.iter().enumerate() {
        if value.match_type == "RegularExpression" {
            regex_rule(&value.value, format!("{path}[{index}].value"), faults);
        }
    }
}

/// A regular expression must be one, and within the limits of the engine.
pub(super) fn regex_rule(text: &str, path: String, faults: &mut Faults) {
    if let Err(error) = regex::Regex::new(text) {
        // The engine draws a picture of several lines; its last line is the sentence.
        let error = error.to_string();
        let sentence = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        faults.add(path, "bad-regex", &format!("is not a regular expression that can be used: {sentence}"));
    }
}

fn path_fault(path: &str) -> Option<&'static str> {
    let forbidden = ["//", "/./", "/../", "%2f", "%2F", "#"];
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-/._~!$&'()*+,;=:@%".contains(&byte);
    let escapes = path.match_indices('%').all(|(at, _)| {
        path.as_bytes().get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    if !path.starts_with('/') {
        Some("must start with a slash")
    } else if forbidden.iter().any(|part| path.contains(part))
        || path.ends_with("/..")
        || path.ends_with("/.")
    {
        Some("must not contain //, /./, /../, %2f or #, nor end in /. or /..")
    } else if !path.bytes().all(plain) || !escapes {
        Some("has characters that must be percent-encoded")
    } else {
        None
    }
}

fn one_rule() -> Vec<HttpRule> {
    vec![HttpRule::default()]
}

fn path_prefix() -> String {
    "PathPrefix".to_owned()
}

fn root() -> String {
    "/".to_owned()
}

pub(super) fn exact() -> String {
    "Exact".to_owned()
}
