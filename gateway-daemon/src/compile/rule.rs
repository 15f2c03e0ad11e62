//! What rules of HTTPRoutes and GRPCRoutes share: filters, conditions on texts, backends (TLSRoutes have those too).

use std::sync::Arc;

use ::http::{HeaderName, HeaderValue, StatusCode, uri::Scheme};

use super::{
    Context,
    combine::Services,
    refs::{Referrer, Traffic, resolve},
    route::Rules,
    status::{Problem, UNSUPPORTED_VALUE},
};
use crate::{
    api::{
        Kind, Object, Severity,
        filter::{Filter, HeaderModifier, PathModifier, RequestRedirect},
        http::{FilteredBackendRef, ValueMatch},
        route as api,
    },
    model::l7::{
        self, Action, BackendRef, HeaderMatch, Match, PathMatch, Pattern, Rule, RuleKind, Service, Target,
        TextMatch,
    },
};

/// A part of a rule that cannot be honoured.
#[derive(Debug)]
pub(super) struct Unusable {
    /// Path of the field.
    pub(super) path: String,
    /// Why, in one sentence.
    pub(super) sentence: String,
}

impl Unusable {
    pub(super) fn new(path: impl Into<String>, sentence: impl Into<String>) -> Self {
        Self { path: path.into(), sentence: sentence.into() }
    }
}

/// The filters of a rule at `path`, in their order.
pub(super) fn filters(filters: &[Filter], path: &str) -> Result<Vec<l7::Filter>, Unusable> {
    let one = |(index, filter): (usize, &Filter)| {
        let path = format!("{path}.filters[{index}]");
        let wrong = |sentence| Unusable::new(&path, sentence);
        if let Some(modifier) = &filter.request_header_modifier {
            modifier_of(modifier).map(l7::Filter::RequestHeaders).map_err(wrong)
        } else if let Some(modifier) = &filter.response_header_modifier {
            modifier_of(modifier).map(l7::Filter::ResponseHeaders).map_err(wrong)
        } else if let Some(redirect) = &filter.request_redirect {
            redirect_of(redirect).map(l7::Filter::Redirect).map_err(wrong)
        } else {
            let sentence = format!("the filter {} is not served yet", filter.filter_type);
            Err(Unusable::new(format!("{path}.type"), sentence))
        }
    };
    filters.iter().enumerate().map(one).collect()
}

/// Finds filters of single BackendRefs, which are not served yet.
pub(super) fn backend_filters(refs: &[FilteredBackendRef], path: &str) -> Result<(), Unusable> {
    match refs.iter().position(|reference| !reference.filters.is_empty()) {
        None => Ok(()),
        Some(index) => {
            let path = format!("{path}.backendRefs[{index}].filters");
            Err(Unusable::new(path, "filters of a single backendRef are not served yet"))
        }
    }
}

fn modifier_of(modifier: &HeaderModifier) -> Result<l7::HeaderModifier, String> {
    let headers = |headers: &[crate::api::filter::Header]| -> Result<Vec<_>, String> {
        headers.iter().map(|header| Ok((header_name(&header.name)?, header_value(&header.value)?))).collect()
    };
    Ok(l7::HeaderModifier {
        set: headers(&modifier.set)?,
        add: headers(&modifier.add)?,
        remove: modifier.remove.iter().map(|name| header_name(name)).collect::<Result<_, _>>()?,
    })
}

fn redirect_of(redirect: &RequestRedirect) -> Result<l7::Redirect, String> {
    let scheme = match redirect.scheme.as_deref() {
        None => None,
        Some("http") => Some(Scheme::HTTP),
        Some("https") => Some(Scheme::HTTPS),
        Some(other) => return Err(format!("a redirect to the scheme {other} is not served")),
    };
    let code = redirect.status_code.unwrap_or(302);
    let status = match code {
        301 | 302 | 303 | 307 | 308 => StatusCode::from_u16(code).map_err(|error| error.to_string())?,
        _ => return Err(format!("a redirect with status {code} is not served")),
    };
    let path = match &redirect.path {
        None => None,
        Some(PathModifier { replace_full_path: Some(path), .. }) => {
            Some(l7::PathModifier::Full(path.clone()))
        }
        Some(PathModifier { replace_prefix_match: Some(path), .. }) => {
            Some(l7::PathModifier::Prefix(path.clone()))
        }
        Some(other) => return Err(format!("the path modifier {} is not served", other.modifier_type)),
    };
    Ok(l7::Redirect { scheme, hostname: redirect.hostname.clone(), path, port: redirect.port, status })
}

/// Conditions on headers, of several with the same name the first.
pub(super) fn header_matches<S: Kind>(
    cx: &mut Context<'_>,
    route: &Object<S>,
    headers: &[ValueMatch],
    path: &str,
) -> Result<Vec<HeaderMatch>, Unusable> {
    let mut matches: Vec<HeaderMatch> = Vec::new();
    for (index, header) in headers.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let name = header_name(&header.name).map_err(|sentence| Unusable::new(&path, sentence))?;
        if matches.iter().any(|earlier| earlier.name == name) {
            let message =
                format!("an earlier condition is on the header {name} too, so this one has no effect");
            cx.say(route, &format!("{path}.name"), Severity::Warning, "repeated-header", message);
            continue;
        }
        matches.push(HeaderMatch { name, value: text_match(&header.match_type, &header.value, &path)? });
    }
    Ok(matches)
}

/// What matches every request.
pub(super) fn everything() -> Match {
    Match { path: PathMatch::Prefix(String::new()), method: None, headers: Vec::new(), query: Vec::new() }
}

/// A condition on a text, of type `Exact` or `RegularExpression`.
pub(super) fn text_match(match_type: &str, text: &str, path: &str) -> Result<TextMatch, Unusable> {
    match match_type {
        "Exact" => Ok(TextMatch::Exact(text.to_owned())),
        "RegularExpression" => pattern(text, path).map(TextMatch::Regex),
        other => {
            Err(Unusable::new(format!("{path}.type"), format!("matches of type {other} are not served")))
        }
    }
}

/// A regular expression that compiles.
pub(super) fn pattern(text: &str, path: &str) -> Result<Pattern, Unusable> {
    // An API server does not check this.
    match regex::Regex::new(text) {
        Ok(_) => Ok(Pattern(text.to_owned())),
        Err(_) => Err(Unusable::new(path, "this is not a regular expression that can be used")),
    }
}

fn header_name(text: &str) -> Result<HeaderName, String> {
    text.parse().map_err(|_invalid| format!("`{text}` is not the name of a header"))
}

fn header_value(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_invalid| "this is not the value of a header".to_owned())
}

/// A rule on its way into the model.
pub(super) struct Draft<'a, S> {
    route: &'a Object<S>,
    /// Index of the rule.
    index: usize,
    /// `httproute.NAMESPACE.NAME.RULE` or `grpcroute…`.
    name: String,
    backend_refs: &'a [FilteredBackendRef],
}

impl<'a, S: Kind> Draft<'a, S> {
    pub(super) fn new(route: &'a Object<S>, index: usize, backend_refs: &'a [FilteredBackendRef]) -> Self {
        let key = route.key();
        let name = format!("{}.{}.{}.{index}", S::KIND.to_ascii_lowercase(), key.namespace, key.name);
        Self { route, index, name, backend_refs }
    }

    /// Adds the rule. If any part of it cannot be honoured, all its requests get an error.
    pub(super) fn finish(
        self,
        cx: &mut Context<'_>,
        services: &mut Services,
        rules: &mut Rules,
        kind: RuleKind,
        matches: Vec<Result<Match, Unusable>>,
        filters: Result<Vec<l7::Filter>, Unusable>,
    ) {
        let (mut good, mut wrong) = (Vec::new(), None);
        for one in matches {
            match one {
                Ok(one) => good.push(one),
                Err(unusable) => wrong = wrong.or(Some(unusable)),
            }
        }
        let (filters, action) = match wrong.map_or(filters, Err) {
            Ok(filters) => {
                let action = self.action(cx, services, &filters, &mut rules.unresolved);
                (filters, action)
            }
            Err(Unusable { path, sentence }) => {
                let message = format!("{sentence}: the requests of this rule get an error");
                cx.say(self.route, &path, Severity::Error, UNSUPPORTED_VALUE.code, message);
                rules.unusable.push((self.index, sentence.clone()));
                (Vec::new(), Action::Unusable(sentence))
            }
        };
        rules.count += 1;
        // None of its matches can be read: no request is this rule's.
        if !good.is_empty() {
            let hostnames = Vec::new();
            rules.compiled.push(Rule { name: self.name, kind, hostnames, matches: good, filters, action });
        }
    }

    /// What answers: a filter, the backends, or nobody. Records the first reference that does not resolve.
    fn action(
        &self,
        cx: &mut Context<'_>,
        services: &mut Services,
        filters: &[l7::Filter],
        unresolved: &mut Option<Problem>,
    ) -> Action {
        if filters.iter().any(|filter| matches!(filter, l7::Filter::Redirect(_))) {
            return Action::Answered;
        }
        if self.backend_refs.is_empty() {
            let message = format!("rule {} has no backendRefs, so its requests get an error", self.index);
            let path = format!("spec.rules[{}]", self.index);
            cx.say(self.route, &path, Severity::Warning, "no-backend", message);
            return Action::NoBackend;
        }
        let backends = (0..self.backend_refs.len()).map(|nth| self.backend(cx, nth, unresolved)).collect();
        let service = Service { name: self.name.clone(), backends };
        Action::Forward(services.share(self.route, self.backend_refs, Arc::new(service)))
    }

    fn backend(&self, cx: &mut Context<'_>, nth: usize, unresolved: &mut Option<Problem>) -> BackendRef {
        let path = format!("spec.rules[{}].backendRefs[{nth}].name", self.index);
        backend_ref(cx, self.route, &path, &self.backend_refs[nth].backend, Traffic::Http, unresolved)
    }
}

/// A BackendRef, with its endpoints if it can be followed. Records the first one that cannot.
pub(super) fn backend_ref<S: Kind>(
    cx: &mut Context<'_>,
    route: &Object<S>,
    path: &str,
    reference: &api::BackendRef,
    traffic: Traffic,
    unresolved: &mut Option<Problem>,
) -> BackendRef {
    let to = &reference.to;
    let from = Referrer { kind: S::KIND, namespace: &route.metadata.namespace };
    let target = match resolve(cx, from, to, traffic) {
        Ok(found) => {
            if found.addresses.is_empty() && !found.pending {
                cx.no_endpoints(route, path, to);
            }
            Target::Endpoints { protocol: found.protocol, endpoints: found.addresses }
        }
        Err(problem) => {
            cx.error(route, path, &problem);
            let target = Target::Invalid(problem.message.clone());
            unresolved.get_or_insert(problem);
            target
        }
    };
    let namespace = to.namespace.as_deref().unwrap_or(from.namespace);
    let port = to.port.map_or_else(String::new, |port| format!(":{port}"));
    BackendRef { name: format!("{namespace}/{}{port}", to.name), weight: reference.weight(), target }
}
