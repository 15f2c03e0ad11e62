//! Filters of rules and of single BackendRefs.

use ::http::{
    HeaderName, HeaderValue, StatusCode,
    uri::{PathAndQuery, Scheme},
};

use super::rule::Unusable;
use crate::{
    api::{
        filter::{Filter, HeaderModifier, PathModifier, RequestRedirect, UrlRewrite},
        http::FilteredBackendRef,
    },
    model::l7,
};

/// Filters of the BackendRefs of a rule, in their order; empty when none has any.
pub(super) type BackendFilters = Vec<Vec<l7::Filter>>;

/// Filters of a rule and of its BackendRefs.
#[derive(Debug, Default)]
pub(super) struct Filters {
    /// Of the rule, in their order.
    pub(super) rule: Vec<l7::Filter>,
    pub(super) backends: BackendFilters,
}

/// The filters of a rule at `path`. `by_prefix` says whether all its matches are by a prefix of the path.
pub(super) fn filters(
    filters: &[Filter],
    refs: &[FilteredBackendRef],
    by_prefix: bool,
    path: &str,
) -> Result<Filters, Unusable> {
    let rule = list(filters, by_prefix, path)?;
    if refs.iter().all(|reference| reference.filters.is_empty()) {
        return Ok(Filters { rule, backends: Vec::new() });
    }
    let of_backend = |(index, reference): (usize, &FilteredBackendRef)| {
        list(&reference.filters, by_prefix, &format!("{path}.backendRefs[{index}]"))
    };
    Ok(Filters { rule, backends: refs.iter().enumerate().map(of_backend).collect::<Result<_, _>>()? })
}

fn list(filters: &[Filter], by_prefix: bool, path: &str) -> Result<Vec<l7::Filter>, Unusable> {
    let one = |(index, filter): (usize, &Filter)| {
        let path = format!("{path}.filters[{index}]");
        let wrong = |sentence| Unusable::new(&path, sentence);
        if filter.replaces_prefix() && !by_prefix {
            return Err(wrong("a prefix can only be replaced where every match is by PathPrefix".to_owned()));
        }
        if let Some(modifier) = &filter.request_header_modifier {
            modifier_of(modifier).map(l7::Filter::RequestHeaders).map_err(wrong)
        } else if let Some(modifier) = &filter.response_header_modifier {
            modifier_of(modifier).map(l7::Filter::ResponseHeaders).map_err(wrong)
        } else if let Some(redirect) = &filter.request_redirect {
            redirect_of(redirect).map(l7::Filter::Redirect).map_err(wrong)
        } else if let Some(rewrite) = &filter.url_rewrite {
            rewrite_of(rewrite).map(l7::Filter::Rewrite).map_err(wrong)
        } else {
            let sentence = format!("the filter {} is not served yet", filter.filter_type);
            Err(Unusable::new(format!("{path}.type"), sentence))
        }
    };
    filters.iter().enumerate().map(one).collect()
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
    let path = redirect.path.as_ref().map(path_of).transpose()?;
    Ok(l7::Redirect { scheme, hostname: redirect.hostname.clone(), path, port: redirect.port, status })
}

fn rewrite_of(rewrite: &UrlRewrite) -> Result<l7::Rewrite, String> {
    let path = rewrite.path.as_ref().map(path_of).transpose()?;
    Ok(l7::Rewrite { hostname: rewrite.hostname.clone(), path })
}

fn path_of(modifier: &PathModifier) -> Result<l7::PathModifier, String> {
    let checked = |path: &String| match PathAndQuery::try_from(format!("/{path}")) {
        Ok(whole) if whole.query().is_none() && whole.as_str().len() == path.len() + 1 => Ok(path.clone()),
        _ => Err(format!("`{path}` cannot be the path of a request")),
    };
    match modifier {
        PathModifier { replace_full_path: Some(path), .. } => checked(path).map(l7::PathModifier::Full),
        PathModifier { replace_prefix_match: Some(path), .. } => checked(path).map(l7::PathModifier::Prefix),
        other => Err(format!("the path modifier {} is not served", other.modifier_type)),
    }
}

/// The name of a header.
pub(super) fn header_name(text: &str) -> Result<HeaderName, String> {
    text.parse().map_err(|_invalid| format!("`{text}` is not the name of a header"))
}

fn header_value(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_invalid| "this is not the value of a header".to_owned())
}
