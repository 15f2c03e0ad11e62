//! What rules of HTTPRoutes and GRPCRoutes share: conditions on texts, backends (TLSRoutes have those too).

use std::sync::Arc;

use super::{
    Context,
    combine::Services,
    filter::{BackendFilters, Filters, header_name},
    refs::{Referrer, Traffic, resolve},
    route::Rules,
    status::{Problem, UNSUPPORTED_VALUE},
};
use crate::{
    api::{
        Kind, Object, Severity,
        http::{FilteredBackendRef, ValueMatch},
        route as api,
    },
    model::l7::{
        self, Action, BackendRef, HeaderMatch, Match, PathMatch, Pattern, Policy, Rule, RuleKind, Service,
        Target, TextMatch,
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
        parts: Result<(Filters, Policy), Unusable>,
    ) {
        let (mut good, mut wrong) = (Vec::new(), None);
        for one in matches {
            match one {
                Ok(one) => good.push(one),
                Err(unusable) => wrong = wrong.or(Some(unusable)),
            }
        }
        let (filters, backend_filters, policy, action) = match wrong.map_or(parts, Err) {
            Ok((Filters { rule, backends }, policy)) => {
                let (action, backends) = self.action(cx, services, &rule, backends, &mut rules.unresolved);
                (rule, backends, policy, action)
            }
            Err(Unusable { path, sentence }) => {
                let message = format!("{sentence}: the requests of this rule get an error");
                cx.say(self.route, &path, Severity::Error, UNSUPPORTED_VALUE.code, message);
                rules.unusable.push((self.index, sentence.clone()));
                (Vec::new(), Vec::new(), Policy::default(), Action::Unusable(sentence))
            }
        };
        rules.count += 1;
        // None of its matches can be read: no request is this rule's.
        if !good.is_empty() {
            let hostnames = Vec::new();
            rules.compiled.push(Rule {
                name: self.name,
                kind,
                hostnames,
                matches: good,
                filters,
                backend_filters,
                policy,
                action,
            });
        }
    }

    /// What answers: a filter, the backends, or nobody; with the filters of the backends in the order of the service.
    /// Records the first reference that does not resolve.
    fn action(
        &self,
        cx: &mut Context<'_>,
        services: &mut Services,
        filters: &[l7::Filter],
        backend_filters: BackendFilters,
        unresolved: &mut Option<Problem>,
    ) -> (Action, BackendFilters) {
        if filters.iter().any(|filter| matches!(filter, l7::Filter::Redirect(_))) {
            return (Action::Answered, Vec::new());
        }
        if self.backend_refs.is_empty() {
            let message = format!("rule {} has no backendRefs, so its requests get an error", self.index);
            let path = format!("spec.rules[{}]", self.index);
            cx.say(self.route, &path, Severity::Warning, "no-backend", message);
            return (Action::NoBackend, Vec::new());
        }
        let backends = (0..self.backend_refs.len()).map(|nth| self.backend(cx, nth, unresolved)).collect();
        let service = Service { name: self.name.clone(), backends };
        let own = (Arc::new(service), backend_filters);
        let (service, backend_filters) = services.share(self.route, self.backend_refs, own);
        (Action::Forward(service), backend_filters)
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
