//! Rules of HTTPRoutes.

use std::time::Duration;

use ::http::StatusCode;

use super::{
    Context,
    combine::Services,
    filter::{Filters, filters},
    route::Rules,
    rule::{Draft, Unusable, everything, header_matches, pattern, text_match},
};
use crate::{
    api::{
        Object,
        http::{HttpMatch, HttpRoute, HttpRule, duration},
    },
    model::l7::{Match, PathMatch, Policy, QueryMatch, Retry, RuleKind},
};

/// The rules of an HTTPRoute.
pub(super) fn rules(cx: &mut Context<'_>, services: &mut Services, route: &Object<HttpRoute>) -> Rules {
    let mut rules = Rules::default();
    for (index, written) in route.spec.rules.iter().enumerate() {
        let path = format!("spec.rules[{index}]");
        let mut matches: Vec<Result<Match, Unusable>> = (0..)
            .zip(&written.matches)
            .map(|(nth, matched)| one_match(cx, route, matched, &format!("{path}.matches[{nth}]")))
            .collect();
        if matches.is_empty() {
            matches.push(Ok(everything()));
        }
        let filters = honoured(written, &path).map(|filters| (filters, policy(written)));
        let draft = Draft::new(route, index, &written.backend_refs);
        draft.finish(cx, services, &mut rules, RuleKind::Http, matches, filters);
    }
    rules
}

/// The filters of a rule, if everything in it but its matches can be honoured.
fn honoured(rule: &HttpRule, path: &str) -> Result<Filters, Unusable> {
    let by_prefix = rule.matches.iter().all(|matched| matched.path.match_type == "PathPrefix");
    let filters = filters(&rule.filters, &rule.backend_refs, by_prefix, path)?;
    if rule.session_persistence.is_some() {
        return Err(Unusable::new(
            format!("{path}.sessionPersistence"),
            "sessionPersistence is not served yet",
        ));
    }
    Ok(filters)
}

/// Retries when a rule does not say how many.
const ATTEMPTS: u32 = 2;
/// Time before the first retry when a rule does not say it.
const BACKOFF: Duration = Duration::from_millis(25);

fn policy(rule: &HttpRule) -> Policy {
    // Zero is no limit.
    let limit = |text: Option<&String>| text.and_then(|text| duration(text)).filter(|limit| !limit.is_zero());
    let timeouts = rule.timeouts.as_ref();
    let retry = rule.retry.as_ref().map(|retry| Retry {
        codes: retry.codes.iter().filter_map(|code| StatusCode::from_u16(*code).ok()).collect(),
        attempts: retry.attempts.unwrap_or(ATTEMPTS),
        backoff: retry.backoff.as_deref().and_then(duration).unwrap_or(BACKOFF),
    });
    Policy {
        request_timeout: limit(timeouts.and_then(|timeouts| timeouts.request.as_ref())),
        backend_timeout: limit(timeouts.and_then(|timeouts| timeouts.backend_request.as_ref())),
        retry,
    }
}

fn one_match(
    cx: &mut Context<'_>,
    route: &Object<HttpRoute>,
    written: &HttpMatch,
    path: &str,
) -> Result<Match, Unusable> {
    Ok(Match {
        path: path_match(written, path)?,
        method: method(written, path)?,
        headers: header_matches(cx, route, &written.headers, &format!("{path}.headers"))?,
        query: query_matches(written, path)?,
    })
}

fn path_match(written: &HttpMatch, path: &str) -> Result<PathMatch, Unusable> {
    let value = &written.path.value;
    match written.path.match_type.as_str() {
        "Exact" => Ok(PathMatch::Exact(value.clone())),
        "PathPrefix" => Ok(PathMatch::Prefix(value.trim_end_matches('/').to_owned())),
        "RegularExpression" => pattern(value, &format!("{path}.path.value")).map(PathMatch::Regex),
        other => {
            let sentence = format!("paths of type {other} are not served");
            Err(Unusable::new(format!("{path}.path.type"), sentence))
        }
    }
}

fn method(written: &HttpMatch, path: &str) -> Result<Option<::http::Method>, Unusable> {
    let parse = |method: &String| {
        method
            .parse()
            .map_err(|_invalid| Unusable::new(format!("{path}.method"), format!("{method} is not a method")))
    };
    written.method.as_ref().map(parse).transpose()
}

/// Conditions on query parameters, of several with the same name the first.
fn query_matches(written: &HttpMatch, path: &str) -> Result<Vec<QueryMatch>, Unusable> {
    let mut matches: Vec<QueryMatch> = Vec::new();
    for (index, parameter) in written.query_params.iter().enumerate() {
        let path = format!("{path}.queryParams[{index}]");
        if matches.iter().all(|earlier| earlier.name != parameter.name) {
            let value = text_match(&parameter.match_type, &parameter.value, &path)?;
            matches.push(QueryMatch { name: parameter.name.clone(), value });
        }
    }
    Ok(matches)
}
