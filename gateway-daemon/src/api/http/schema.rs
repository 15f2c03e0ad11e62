//! What an HTTPRoute looks like.

use crate::api::{
    filter::{HTTP_FILTERS, TOKEN},
    format::Format,
    route::{
        GONE_FROM_BACKEND_REFS, GONE_FROM_ROUTES, GONE_FROM_RULES, GROUP, HOSTNAMES, KIND, NAME, NAMESPACE,
        PARENT_REFS, PORT, SECTION_NAME, USE_DEFAULT_GATEWAYS, WEIGHT,
    },
    schema::{List, Object, Schema},
};

pub(super) const HTTP_ROUTE: Object = Object {
    required: &[],
    optional: &[
        ("parentRefs", PARENT_REFS),
        ("hostnames", HOSTNAMES),
        ("rules", Schema::List(&List::new(1, 16, Schema::Object(&RULE)))),
        ("useDefaultGateways", USE_DEFAULT_GATEWAYS),
    ],
    gone: GONE_FROM_ROUTES,
};

const RULE: Object = Object {
    required: &[],
    optional: &[
        ("name", SECTION_NAME),
        ("matches", Schema::List(&List::new(0, 64, MATCH))),
        ("filters", HTTP_FILTERS),
        ("backendRefs", Schema::List(&List::new(0, 16, Schema::Object(&HTTP_BACKEND_REF)))),
        ("timeouts", TIMEOUTS),
        ("retry", RETRY),
        ("sessionPersistence", SESSION_PERSISTENCE),
    ],
    gone: GONE_FROM_RULES,
};

const HTTP_BACKEND_REF: Object = Object {
    required: &[("name", NAME)],
    optional: &[
        ("group", GROUP),
        ("kind", KIND),
        ("namespace", NAMESPACE),
        ("port", PORT),
        ("weight", WEIGHT),
        ("filters", HTTP_FILTERS),
    ],
    gone: GONE_FROM_BACKEND_REFS,
};

const MATCH: Schema = Schema::Object(&Object::new(
    &[],
    &[
        ("path", PATH),
        ("headers", VALUE_MATCHES),
        ("queryParams", QUERY_MATCHES),
        (
            "method",
            Schema::OneOf(&["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"]),
        ),
    ],
));

const PATH: Schema = Schema::Object(&Object::new(
    &[],
    &[
        ("type", Schema::OneOf(&["Exact", "PathPrefix", "RegularExpression"])),
        ("value", Schema::Text(0, 1024, Format::Free)),
    ],
));

/// Conditions on headers.
pub(in crate::api) const VALUE_MATCHES: Schema = Schema::List(&List {
    min: 0,
    max: 16,
    of: Schema::Object(&Object::new(
        &[("name", TOKEN), ("value", Schema::Text(1, 4096, Format::Free))],
        &[("type", MATCH_TYPE)],
    )),
    unique: &["name"],
});

const QUERY_MATCHES: Schema = Schema::List(&List {
    min: 0,
    max: 16,
    of: Schema::Object(&Object::new(
        &[("name", TOKEN), ("value", Schema::Text(1, 1024, Format::Free))],
        &[("type", MATCH_TYPE)],
    )),
    unique: &["name"],
});

/// How texts are compared.
pub(in crate::api) const MATCH_TYPE: Schema = Schema::OneOf(&["Exact", "RegularExpression"]);

const DURATION: Schema = Schema::Text(1, 24, Format::Duration);

const TIMEOUTS: Schema =
    Schema::Object(&Object::new(&[], &[("request", DURATION), ("backendRequest", DURATION)]));

const RETRY: Schema = Schema::Object(&Object::new(
    &[],
    &[
        ("attempts", Schema::Int(1, i32::MAX as i64)),
        ("backoff", DURATION),
        ("codes", Schema::List(&List::new(0, 64, Schema::Int(400, 599)))),
    ],
));

/// Session persistence of a rule.
pub(in crate::api) const SESSION_PERSISTENCE: Schema = Schema::Object(&Object::new(
    &[],
    &[
        ("type", Schema::OneOf(&["Cookie", "Header"])),
        ("absoluteTimeout", DURATION),
        (
            "cookie",
            Schema::Object(&Object::new(
                &[],
                &[
                    ("name", TOKEN),
                    ("path", Schema::Text(0, 1024, Format::Free)),
                    ("lifetimeType", Schema::OneOf(&["Permanent", "Session"])),
                ],
            )),
        ),
        ("header", Schema::Object(&Object::new(&[("name", TOKEN)], &[]))),
    ],
));
