//! GRPCRoute.

use serde::Deserialize;

use super::{
    Faults, GATEWAY_GROUP, Kind,
    filter::{Filter, GRPC_FILTERS, filter_rules},
    format::Format,
    http::{
        FilteredBackendRef, MATCH_TYPE, SESSION_PERSISTENCE, VALUE_MATCHES, ValueMatch, exact, regex_rule,
        value_rules,
    },
    route::{
        GONE_FROM_BACKEND_REFS, GONE_FROM_ROUTES, GONE_FROM_RULES, GROUP, HOSTNAMES, KIND, NAME, NAMESPACE,
        PARENT_REFS, PORT, ParentRef, SECTION_NAME, USE_DEFAULT_GATEWAYS, WEIGHT, backend_rules,
        parent_rules,
    },
    schema::{List, Object, Schema},
};

/// Spec of a GRPCRoute.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrpcRoute {
    /// Where to be attached.
    #[serde(default)]
    pub parent_refs: Vec<ParentRef>,
    /// Hosts to serve; none for all of the listener.
    #[serde(default)]
    pub hostnames: Vec<String>,
    /// Rules.
    #[serde(default)]
    pub rules: Vec<GrpcRule>,
    /// Whether to be attached to default Gateways.
    pub use_default_gateways: Option<String>,
}

/// A rule of a GRPCRoute.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrpcRule {
    /// Its name.
    pub name: Option<String>,
    /// Any of them must match; empty matches everything.
    #[serde(default)]
    pub matches: Vec<GrpcMatch>,
    /// Filters.
    #[serde(default)]
    pub filters: Vec<Filter>,
    /// Where requests go.
    #[serde(default)]
    pub backend_refs: Vec<FilteredBackendRef>,
    /// Session persistence; not served yet.
    pub session_persistence: Option<serde_json::Value>,
}

/// Conditions that must all hold.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct GrpcMatch {
    /// On service and method; none for all.
    pub method: Option<MethodMatch>,
    /// On metadata.
    #[serde(default)]
    pub headers: Vec<ValueMatch>,
}

/// A condition on service and method, at least one of them.
#[derive(Clone, Debug, Deserialize)]
pub struct MethodMatch {
    /// `Exact` or `RegularExpression`, of both.
    #[serde(rename = "type", default = "exact")]
    pub match_type: String,
    /// Full name of the service.
    pub service: Option<String>,
    /// Name of the method.
    pub method: Option<String>,
}

impl Kind for GrpcRoute {
    const GROUP: &'static str = GATEWAY_GROUP;
    const VERSIONS: &'static [&'static str] = &["v1"];
    const KIND: &'static str = "GRPCRoute";
    const SCHEMA: &'static Object = &GRPC_ROUTE;

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
            let same = |other: &GrpcRule| rule.name.is_some() && other.name == rule.name;
            if self.rules[..index].iter().any(same) {
                faults.add(
                    format!("{path}.name"),
                    "not-unique",
                    "is the name of an earlier rule: one must differ",
                );
            }
            grpc_rule_rules(rule, &path, faults);
        }
    }
}

fn grpc_rule_rules(rule: &GrpcRule, path: &str, faults: &mut Faults) {
    for (index, matched) in rule.matches.iter().enumerate() {
        let path = format!("{path}.matches[{index}]");
        value_rules(&matched.headers, &format!("{path}.headers"), faults);
        if let Some(method) = &matched.method {
            method_rules(method, &format!("{path}.method"), faults);
        }
    }
    filter_rules(&rule.filters, &format!("{path}.filters"), faults);
    for (index, reference) in rule.backend_refs.iter().enumerate() {
        let path = format!("{path}.backendRefs[{index}]");
        backend_rules(&reference.backend.to, &path, faults);
        filter_rules(&reference.filters, &format!("{path}.filters"), faults);
    }
}

fn method_rules(matched: &MethodMatch, path: &str, faults: &mut Faults) {
    if matched.service.is_none() && matched.method.is_none() {
        faults.add(path, "missing-field", "needs a service or a method");
    }
    for (field, text) in [("service", &matched.service), ("method", &matched.method)] {
        let Some(text) = text else { continue };
        let path = format!("{path}.{field}");
        if matched.match_type == "RegularExpression" {
            regex_rule(text, path, faults);
        } else {
            let identifier = |part: &str| {
                part.bytes().next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
                    && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            };
            // A service may have a package, `method` is one word.
            let good = if field == "service" { text.split('.').all(identifier) } else { identifier(text) };
            if !good {
                faults.add(
                    path,
                    "bad-format",
                    "must be a name as protocol buffers have them, such as `example.Greeter`",
                );
            }
        }
    }
}

const GRPC_ROUTE: Object = Object {
    required: &[],
    optional: &[
        ("parentRefs", PARENT_REFS),
        ("hostnames", HOSTNAMES),
        ("rules", Schema::List(&List::new(0, 16, Schema::Object(&RULE)))),
        ("useDefaultGateways", USE_DEFAULT_GATEWAYS),
    ],
    gone: GONE_FROM_ROUTES,
};

const RULE: Object = Object {
    required: &[],
    optional: &[
        ("name", SECTION_NAME),
        ("matches", Schema::List(&List::new(0, 64, MATCH))),
        ("filters", GRPC_FILTERS),
        ("backendRefs", Schema::List(&List::new(0, 16, Schema::Object(&GRPC_BACKEND_REF)))),
        ("sessionPersistence", SESSION_PERSISTENCE),
    ],
    gone: GONE_FROM_RULES,
};

const GRPC_BACKEND_REF: Object = Object {
    required: &[("name", NAME)],
    optional: &[
        ("group", GROUP),
        ("kind", KIND),
        ("namespace", NAMESPACE),
        ("port", PORT),
        ("weight", WEIGHT),
        ("filters", GRPC_FILTERS),
    ],
    gone: GONE_FROM_BACKEND_REFS,
};

const MATCH: Schema = Schema::Object(&Object::new(&[], &[("method", METHOD), ("headers", VALUE_MATCHES)]));

const METHOD: Schema = Schema::Object(&Object::new(
    &[],
    &[
        ("type", MATCH_TYPE),
        ("service", Schema::Text(1, 1024, Format::Free)),
        ("method", Schema::Text(1, 1024, Format::Free)),
    ],
));
