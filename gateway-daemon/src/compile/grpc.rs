//! Rules of GRPCRoutes.

use super::{
    Context,
    combine::Services,
    filter::{Filters, filters},
    route::Rules,
    rule::{Draft, Unusable, everything, header_matches, text_match},
};
use crate::{
    api::{
        Object, Severity,
        grpc::{GrpcMatch, GrpcRoute, GrpcRule, MethodMatch},
    },
    model::l7::{Match, PathMatch, Policy, RuleKind, TextMatch},
};

/// The rules of a GRPCRoute.
pub(super) fn rules(cx: &mut Context<'_>, services: &mut Services, route: &Object<GrpcRoute>) -> Rules {
    let mut rules = Rules::default();
    if route.spec.rules.is_empty() {
        let message = "the route has no rules, so it serves nothing: write spec.rules".to_owned();
        cx.say(route, "spec", Severity::Warning, "no-rules", message);
    }
    for (index, written) in route.spec.rules.iter().enumerate() {
        let path = format!("spec.rules[{index}]");
        let mut matches: Vec<Result<Match, Unusable>> = (0..)
            .zip(&written.matches)
            .map(|(nth, matched)| one_match(cx, route, matched, &format!("{path}.matches[{nth}]")))
            .collect();
        if matches.is_empty() {
            matches.push(Ok(everything()));
        }
        let filters = honoured(written, &path).map(|filters| (filters, Policy::default()));
        let draft = Draft::new(route, index, &written.backend_refs);
        draft.finish(cx, services, &mut rules, RuleKind::Grpc, matches, filters);
    }
    rules
}

/// The filters of a rule, if everything in it but its matches can be honoured.
fn honoured(rule: &GrpcRule, path: &str) -> Result<Filters, Unusable> {
    let filters = filters(&rule.filters, &rule.backend_refs, false, path)?;
    if rule.session_persistence.is_some() {
        let path = format!("{path}.sessionPersistence");
        return Err(Unusable::new(path, "sessionPersistence is not served yet"));
    }
    Ok(filters)
}

fn one_match(
    cx: &mut Context<'_>,
    route: &Object<GrpcRoute>,
    written: &GrpcMatch,
    path: &str,
) -> Result<Match, Unusable> {
    let headers = header_matches(cx, route, &written.headers, &format!("{path}.headers"))?;
    let path = match &written.method {
        None => everything().path,
        Some(method) => path_match(method, &format!("{path}.method"))?,
    };
    Ok(Match { path, headers, ..everything() })
}

/// The path that requests of a service and method have.
fn path_match(written: &MethodMatch, path: &str) -> Result<PathMatch, Unusable> {
    let text = |field: &str, text: &Option<String>| {
        let text = text.as_deref().filter(|text| !text.is_empty());
        text.map(|text| text_match(&written.match_type, text, &format!("{path}.{field}"))).transpose()
    };
    Ok(match (text("service", &written.service)?, text("method", &written.method)?) {
        (None, None) => everything().path,
        (Some(TextMatch::Exact(service)), Some(TextMatch::Exact(method))) => {
            PathMatch::Exact(format!("/{service}/{method}"))
        }
        (service, method) => PathMatch::Grpc { service, method },
    })
}
