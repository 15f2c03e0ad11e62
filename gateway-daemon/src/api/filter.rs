//! Filters of HTTPRoute and GRPCRoute.

use serde::Deserialize;

use super::{
    Faults, NAME_MAX,
    format::Format,
    route::{BACKEND_OBJECT_REF, GROUP, KIND, NAME, PORT},
    schema::{List, Object, Schema},
};

/// A filter. The field that belongs to its type is there, the others are not.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Filter {
    /// Type of the filter.
    #[serde(rename = "type")]
    pub filter_type: String,
    /// RequestHeaderModifier.
    pub request_header_modifier: Option<HeaderModifier>,
    /// ResponseHeaderModifier.
    pub response_header_modifier: Option<HeaderModifier>,
    /// RequestRedirect.
    pub request_redirect: Option<RequestRedirect>,
    /// URLRewrite; not served yet, like those below.
    url_rewrite: Option<serde_json::Value>,
    request_mirror: Option<serde_json::Value>,
    cors: Option<serde_json::Value>,
    external_auth: Option<serde_json::Value>,
    extension_ref: Option<serde_json::Value>,
}

/// Changes to headers.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct HeaderModifier {
    /// Headers to replace.
    #[serde(default)]
    pub set: Vec<Header>,
    /// Headers to add.
    #[serde(default)]
    pub add: Vec<Header>,
    /// Names of headers to remove.
    #[serde(default)]
    pub remove: Vec<String>,
}

/// A header.
#[derive(Clone, Debug, Deserialize)]
pub struct Header {
    /// Name.
    pub name: String,
    /// Value.
    pub value: String,
}

/// An answer that sends the client elsewhere.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestRedirect {
    /// New scheme.
    pub scheme: Option<String>,
    /// New host.
    pub hostname: Option<String>,
    /// Change of path.
    pub path: Option<PathModifier>,
    /// New port.
    pub port: Option<u16>,
    /// 302 when not given.
    pub status_code: Option<u16>,
}

/// A change of path.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathModifier {
    /// `ReplaceFullPath` or `ReplacePrefixMatch`.
    #[serde(rename = "type")]
    pub modifier_type: String,
    /// With `ReplaceFullPath`.
    pub replace_full_path: Option<String>,
    /// With `ReplacePrefixMatch`.
    pub replace_prefix_match: Option<String>,
}

impl Filter {
    /// Types of filters and the fields that belong to them.
    fn fields(&self) -> [(&'static str, &'static str, bool); 8] {
        [
            ("RequestHeaderModifier", "requestHeaderModifier", self.request_header_modifier.is_some()),
            ("ResponseHeaderModifier", "responseHeaderModifier", self.response_header_modifier.is_some()),
            ("RequestRedirect", "requestRedirect", self.request_redirect.is_some()),
            ("URLRewrite", "urlRewrite", self.url_rewrite.is_some()),
            ("RequestMirror", "requestMirror", self.request_mirror.is_some()),
            ("CORS", "cors", self.cors.is_some()),
            ("ExternalAuth", "externalAuth", self.external_auth.is_some()),
            ("ExtensionRef", "extensionRef", self.extension_ref.is_some()),
        ]
    }

    /// Whether it replaces the matched prefix of the path.
    pub(super) fn replaces_prefix(&self) -> bool {
        let type_of = |path: Option<&PathModifier>| path.map(|path| path.modifier_type.clone());
        let redirect = type_of(self.request_redirect.as_ref().and_then(|redirect| redirect.path.as_ref()));
        let rewrite = self.url_rewrite.as_ref().and_then(|rewrite| rewrite["path"]["type"].as_str());
        redirect.as_deref().or(rewrite) == Some("ReplacePrefixMatch")
    }
}

/// Rules of a list of filters; each must have the field of its type and no other, most may occur only once.
pub(super) fn filter_rules(filters: &[Filter], path: &str, faults: &mut Faults) {
    for (index, filter) in filters.iter().enumerate() {
        let here = format!("{path}[{index}]");
        for (filter_type, field, present) in filter.fields() {
            if filter.filter_type == filter_type && !present {
                let message = format!("needs `{field}`, since its type is {filter_type}");
                faults.add(&here, "missing-field", &message);
            } else if filter.filter_type != filter_type && present {
                let message = format!("must not be given for type {}", filter.filter_type);
                faults.add(format!("{here}.{field}"), "conflicting-fields", &message);
            }
        }
        if let Some(path) = filter.request_redirect.as_ref().and_then(|redirect| redirect.path.as_ref()) {
            path_modifier_rules(path, &format!("{here}.requestRedirect.path"), faults);
        }
        let repeatable = matches!(filter.filter_type.as_str(), "RequestMirror" | "ExtensionRef");
        let same = |other: &Filter| other.filter_type == filter.filter_type;
        if let Some(first) = filters[..index].iter().position(same).filter(|_| !repeatable) {
            let message =
                format!("has the same type as {path}[{first}]: {} may occur once", filter.filter_type);
            faults.add(here, "not-unique", &message);
        }
    }
    let position = |name: &str| filters.iter().position(|filter| filter.filter_type == name);
    if let (Some(redirect), Some(_)) = (position("RequestRedirect"), position("URLRewrite")) {
        faults.add(
            format!("{path}[{redirect}]"),
            "conflicting-fields",
            "excludes URLRewrite: remove one of them",
        );
    }
}

fn path_modifier_rules(modifier: &PathModifier, path: &str, faults: &mut Faults) {
    let fields = [
        ("ReplaceFullPath", "replaceFullPath", modifier.replace_full_path.is_some()),
        ("ReplacePrefixMatch", "replacePrefixMatch", modifier.replace_prefix_match.is_some()),
    ];
    for (modifier_type, field, present) in fields {
        if modifier.modifier_type == modifier_type && !present {
            let message = format!("needs `{field}`, since its type is {modifier_type}");
            faults.add(path, "missing-field", &message);
        } else if modifier.modifier_type != modifier_type && present {
            let message = format!("must not be given for type {}", modifier.modifier_type);
            faults.add(format!("{path}.{field}"), "conflicting-fields", &message);
        }
    }
}

pub(super) const HTTP_FILTERS: Schema = Schema::List(&List::new(0, 16, Schema::Object(&HTTP_FILTER)));
pub(super) const GRPC_FILTERS: Schema = Schema::List(&List::new(0, 16, Schema::Object(&GRPC_FILTER)));

const HTTP_FILTER: Object = Object::new(
    &[(
        "type",
        Schema::OneOf(&[
            "RequestHeaderModifier",
            "ResponseHeaderModifier",
            "RequestMirror",
            "RequestRedirect",
            "URLRewrite",
            "ExtensionRef",
            "CORS",
            "ExternalAuth",
        ]),
    )],
    &[
        ("requestHeaderModifier", HEADER_MODIFIER),
        ("responseHeaderModifier", HEADER_MODIFIER),
        ("requestMirror", MIRROR),
        ("requestRedirect", REDIRECT),
        ("urlRewrite", REWRITE),
        ("extensionRef", EXTENSION),
        ("cors", CORS),
        ("externalAuth", EXTERNAL_AUTH),
    ],
);

const GRPC_FILTER: Object = Object::new(
    &[(
        "type",
        Schema::OneOf(&["RequestHeaderModifier", "ResponseHeaderModifier", "RequestMirror", "ExtensionRef"]),
    )],
    &[
        ("requestHeaderModifier", HEADER_MODIFIER),
        ("responseHeaderModifier", HEADER_MODIFIER),
        ("requestMirror", MIRROR),
        ("extensionRef", EXTENSION),
    ],
);

const HEADER_MODIFIER: Schema = Schema::Object(&Object::new(
    &[],
    &[
        ("set", Schema::List(&List { min: 0, max: 16, of: HEADER, unique: &["name"] })),
        ("add", Schema::List(&List { min: 0, max: 16, of: HEADER, unique: &["name"] })),
        ("remove", Schema::List(&List::new(0, 16, TOKEN))),
    ],
));

const HEADER: Schema = Schema::Object(&Object::new(&[("name", TOKEN), ("value", HEADER_VALUE)], &[]));

/// The name of a header or a query parameter.
pub(super) const TOKEN: Schema = Schema::Text(1, 256, Format::Token);
const HEADER_VALUE: Schema = Schema::Text(1, 4096, Format::HeaderValue);

const MIRROR: Schema = Schema::Object(&Object::new(
    &[("backendRef", Schema::Object(&BACKEND_OBJECT_REF))],
    &[("percent", Schema::Int(0, 100)), ("fraction", FRACTION)],
));

const FRACTION: Schema = Schema::Object(&Object::new(
    &[("numerator", Schema::Int(0, i32::MAX as i64))],
    &[("denominator", Schema::Int(1, i32::MAX as i64))],
));

const REDIRECT: Schema = Schema::Object(&Object::new(
    &[],
    &[
        ("scheme", Schema::OneOf(&["http", "https"])),
        ("hostname", Schema::Text(1, NAME_MAX, Format::ExactHostname)),
        ("path", PATH_MODIFIER),
        ("port", PORT),
        ("statusCode", Schema::IntOf(&[301, 302, 303, 307, 308])),
    ],
));

const REWRITE: Schema = Schema::Object(&Object::new(
    &[],
    &[("hostname", Schema::Text(1, NAME_MAX, Format::ExactHostname)), ("path", PATH_MODIFIER)],
));

const PATH_MODIFIER: Schema = Schema::Object(&Object::new(
    &[("type", Schema::OneOf(&["ReplaceFullPath", "ReplacePrefixMatch"]))],
    &[
        ("replaceFullPath", Schema::Text(0, 1024, Format::Free)),
        ("replacePrefixMatch", Schema::Text(0, 1024, Format::Free)),
    ],
));

const EXTENSION: Schema =
    Schema::Object(&Object::new(&[("group", GROUP), ("kind", KIND), ("name", NAME)], &[]));

const CORS: Schema = Schema::Object(&Object::new(
    &[],
    &[
        ("allowCredentials", Schema::Bool),
        ("allowHeaders", Schema::List(&List::new(0, 64, TOKEN))),
        (
            "allowMethods",
            Schema::List(&List::new(
                0,
                9,
                Schema::OneOf(&[
                    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "*",
                ]),
            )),
        ),
        ("allowOrigins", Schema::List(&List::new(0, 64, Schema::Text(1, NAME_MAX, Format::Free)))),
        ("exposeHeaders", Schema::List(&List::new(0, 64, TOKEN))),
        ("maxAge", Schema::Int(1, i32::MAX as i64)),
    ],
));

const EXTERNAL_AUTH: Schema = Schema::Object(&Object::new(
    &[("protocol", Schema::OneOf(&["HTTP", "GRPC"])), ("backendRef", Schema::Object(&BACKEND_OBJECT_REF))],
    &[
        ("forwardBody", Schema::Object(&Object::new(&[], &[("maxSize", Schema::Int(0, i32::MAX as i64))]))),
        ("grpc", Schema::Object(&Object::new(&[], &[("allowedHeaders", AUTH_HEADERS)]))),
        (
            "http",
            Schema::Object(&Object::new(
                &[],
                &[
                    ("path", Schema::Text(0, 1024, Format::Free)),
                    ("allowedHeaders", AUTH_HEADERS),
                    ("allowedResponseHeaders", AUTH_HEADERS),
                ],
            )),
        ),
    ],
));

const AUTH_HEADERS: Schema = Schema::List(&List::new(0, 64, Schema::Text(0, 256, Format::Free)));
