//! Filters of HTTPRoute and GRPCRoute.

mod schema;

use serde::Deserialize;

use super::Faults;
pub(super) use schema::{GRPC_FILTERS, HTTP_FILTERS, TOKEN};

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
    /// URLRewrite.
    pub url_rewrite: Option<UrlRewrite>,
    /// Not served yet, like those below.
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

/// A change of where a request says that it goes.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct UrlRewrite {
    /// New host.
    pub hostname: Option<String>,
    /// Change of path.
    pub path: Option<PathModifier>,
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

    /// Its change of path, and the field that has it.
    fn path_modifier(&self) -> Option<(&'static str, &PathModifier)> {
        let redirect = self.request_redirect.as_ref().and_then(|redirect| redirect.path.as_ref());
        let rewrite = self.url_rewrite.as_ref().and_then(|rewrite| rewrite.path.as_ref());
        let redirect = redirect.map(|path| ("requestRedirect", path));
        redirect.or_else(|| rewrite.map(|path| ("urlRewrite", path)))
    }

    /// Whether it replaces the matched prefix of the path.
    pub(crate) fn replaces_prefix(&self) -> bool {
        self.path_modifier().is_some_and(|(_, path)| path.modifier_type == "ReplacePrefixMatch")
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
        if let Some((field, path)) = filter.path_modifier() {
            path_modifier_rules(path, &format!("{here}.{field}.path"), faults);
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
