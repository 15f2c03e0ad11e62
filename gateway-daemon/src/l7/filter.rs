//! Filters: changes to headers, hosts and paths, and redirects.

use std::fmt::Write as _;

use http::{
    HeaderMap, HeaderName, HeaderValue, Response, header,
    uri::{PathAndQuery, Scheme},
};

use super::{body::ResponseBody, error::Error};
use crate::model::l7::{self, HeaderModifier, PathModifier, Redirect};

/// The filters of a rule or of one of its backends, by when they are applied.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    request: Vec<HeaderModifier>,
    response: Vec<HeaderModifier>,
    pub(crate) redirect: Option<Redirect>,
    rewrite: Option<Rewrite>,
}

/// A URLRewrite filter.
#[derive(Debug)]
struct Rewrite {
    host: Option<HeaderValue>,
    path: Option<PathModifier>,
}

impl Filters {
    /// `rule` is for the log.
    pub(crate) fn compile(list: &[l7::Filter], rule: &str) -> Self {
        let mut filters = Self::default();
        for filter in list {
            match filter {
                l7::Filter::RequestHeaders(modifier) => {
                    filters.request.push(without_framing(modifier, rule));
                }
                l7::Filter::ResponseHeaders(modifier) => {
                    filters.response.push(without_framing(modifier, rule));
                }
                l7::Filter::Redirect(redirect) => {
                    filters.redirect.get_or_insert_with(|| redirect.clone());
                }
                l7::Filter::Rewrite(rewrite) => {
                    let host = rewrite.hostname.as_deref().and_then(|host| host.parse().ok());
                    filters.rewrite.get_or_insert_with(|| Rewrite { host, path: rewrite.path.clone() });
                }
            }
        }
        filters
    }

    /// The path and query that the request gets, if a rewrite changes them.
    ///
    /// # Errors
    /// What comes of it cannot be a path.
    pub(crate) fn rewritten(&self, target: Target<'_>) -> Result<Option<PathAndQuery>, Error> {
        let Some(modifier) = self.rewrite.as_ref().and_then(|rewrite| rewrite.path.as_ref()) else {
            return Ok(None);
        };
        let mut path = String::with_capacity(target.path.len() + 16);
        push_modified(&mut path, modifier, target);
        push_query(&mut path, target.query);
        PathAndQuery::try_from(path).map(Some).map_err(|_invalid| Error::Unusable)
    }

    /// Changes the headers of a request, its host among them.
    pub(crate) fn request_headers(&self, headers: &mut HeaderMap) {
        self.request.iter().for_each(|modifier| modify(modifier, headers));
        if let Some(host) = self.rewrite.as_ref().and_then(|rewrite| rewrite.host.as_ref()) {
            headers.insert(header::HOST, host.clone());
        }
    }

    pub(crate) fn response_headers(&self, headers: &mut HeaderMap) {
        self.response.iter().for_each(|modifier| modify(modifier, headers));
    }
}

/// Drops changes to what frames messages and belongs to the connection: they would break it.
fn without_framing(modifier: &HeaderModifier, rule: &str) -> HeaderModifier {
    let allowed = |name: &HeaderName| {
        let framing = [
            header::CONNECTION,
            header::CONTENT_LENGTH,
            header::TE,
            header::TRANSFER_ENCODING,
            header::UPGRADE,
        ];
        let allowed = !framing.contains(name);
        if !allowed {
            tracing::warn!(rule, header = %name, "filter may not change this header");
        }
        allowed
    };
    let pairs = |pairs: &[(HeaderName, HeaderValue)]| {
        pairs.iter().filter(|(name, _)| allowed(name)).cloned().collect()
    };
    HeaderModifier {
        set: pairs(&modifier.set),
        add: pairs(&modifier.add),
        remove: modifier.remove.iter().filter(|name| allowed(name)).cloned().collect(),
    }
}

fn modify(modifier: &HeaderModifier, headers: &mut HeaderMap) {
    for name in &modifier.remove {
        headers.remove(name);
    }
    for (name, value) in &modifier.set {
        headers.insert(name.clone(), value.clone());
    }
    for (name, value) in &modifier.add {
        headers.append(name.clone(), value.clone());
    }
}

/// What a request asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    /// In canonical form.
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    /// Bytes of `path` that the rule's prefix took.
    pub(crate) prefix_len: usize,
}

/// What a redirect takes from the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    pub(crate) tls: bool,
    /// Without port.
    pub(crate) host: &'a str,
    /// The listener's.
    pub(crate) port: u16,
    pub(crate) target: Target<'a>,
}

/// The answer of a redirect; none when its Location cannot be a header.
///
/// The port is the filter's, else the well-known one of the filter's scheme, else the listener's; the well-known
/// port of the resulting scheme is left out.
pub(crate) fn redirect(redirect: &Redirect, origin: Origin<'_>) -> Option<Response<ResponseBody>> {
    let scheme = redirect.scheme.as_ref().map_or(if origin.tls { "https" } else { "http" }, Scheme::as_str);
    let well_known = if scheme == "https" { 443 } else { 80 };
    let default_port = if redirect.scheme.is_some() { well_known } else { origin.port };
    let port = redirect.port.unwrap_or(default_port);
    let host = redirect.hostname.as_deref().unwrap_or(origin.host);
    let mut location = String::with_capacity(scheme.len() + host.len() + origin.target.path.len() + 16);
    location.push_str(scheme);
    location.push_str("://");
    location.push_str(host);
    if port != well_known {
        // Writing to a string does not fail.
        let _ = write!(location, ":{port}");
    }
    match &redirect.path {
        None => location.push_str(origin.target.path),
        Some(modifier) => push_modified(&mut location, modifier, origin.target),
    }
    push_query(&mut location, origin.target.query);
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = redirect.status;
    response.headers_mut().insert(header::LOCATION, HeaderValue::try_from(location).ok()?);
    Some(response)
}

fn push_modified(to: &mut String, modifier: &PathModifier, target: Target<'_>) {
    let (PathModifier::Full(text) | PathModifier::Prefix(text)) = modifier;
    if !text.is_empty() && !text.starts_with('/') {
        to.push('/');
    }
    let rest = match modifier {
        PathModifier::Full(_) => "",
        PathModifier::Prefix(_) => target.path.get(target.prefix_len..).unwrap_or_default(),
    };
    push_replaced(to, text, rest);
}

fn push_query(to: &mut String, query: Option<&str>) {
    if let Some(query) = query {
        to.push('?');
        to.push_str(query);
    }
}

/// Puts a new prefix before the rest of a path; exactly one slash stands between them.
fn push_replaced(target: &mut String, prefix: &str, rest: &str) {
    let start = target.len();
    if rest.is_empty() {
        target.push_str(prefix);
    } else {
        target.push_str(prefix.strip_suffix('/').unwrap_or(prefix));
        if !rest.starts_with('/') {
            target.push('/');
        }
        target.push_str(rest);
    }
    if target.len() == start {
        target.push('/');
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn location(filter: &Redirect, origin: Origin<'_>) -> String {
        redirect(filter, origin).unwrap().headers()[header::LOCATION].to_str().unwrap().to_owned()
    }

    fn bare() -> Redirect {
        Redirect { scheme: None, hostname: None, path: None, port: None, status: StatusCode::FOUND }
    }

    const TARGET: Target<'_> = Target { path: "/foo/bar", query: None, prefix_len: 4 };
    const ORIGIN: Origin<'_> = Origin { tls: false, host: "a.example", port: 80, target: TARGET };

    #[test]
    fn ports_of_redirects_follow_scheme_and_listener() {
        let rows = [
            // tls, listener's port, scheme, port, location
            (false, 80, None, None, "http://a.example/foo/bar"),
            (false, 8080, None, None, "http://a.example:8080/foo/bar"),
            (true, 443, None, None, "https://a.example/foo/bar"),
            (true, 8443, None, None, "https://a.example:8443/foo/bar"),
            (false, 80, Some(Scheme::HTTPS), None, "https://a.example/foo/bar"),
            (false, 8080, Some(Scheme::HTTPS), None, "https://a.example/foo/bar"),
            (false, 8080, Some(Scheme::HTTP), None, "http://a.example/foo/bar"),
            (false, 80, None, Some(8083), "http://a.example:8083/foo/bar"),
            (false, 8080, None, Some(80), "http://a.example/foo/bar"),
            (true, 443, Some(Scheme::HTTP), Some(443), "http://a.example:443/foo/bar"),
            (false, 80, Some(Scheme::HTTPS), Some(443), "https://a.example/foo/bar"),
        ];
        for (tls, listener, scheme, port, expected) in rows {
            let filter = Redirect { scheme, port, ..bare() };
            assert_eq!(location(&filter, Origin { tls, port: listener, ..ORIGIN }), expected);
        }
    }

    #[test]
    fn prefixes_are_replaced_with_one_slash_between() {
        let rows = [
            ("/foo/bar", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/xyz/", "/xyz/bar"),
            ("/foo", "/xyz", "/xyz"),
            ("/foo/", "/xyz", "/xyz/"),
            ("/foo", "/xyz/", "/xyz/"),
            ("/foo/bar", "", "/bar"),
            ("/foo/bar", "/", "/bar"),
            ("/foo/", "", "/"),
            ("/foo", "", "/"),
            ("/foo/", "/", "/"),
            ("/foo", "/", "/"),
        ];
        for (path, prefix, expected) in rows {
            let filter = Redirect { path: Some(PathModifier::Prefix(prefix.into())), ..bare() };
            let given = location(&filter, Origin { target: Target { path, ..TARGET }, ..ORIGIN });
            assert_eq!(given, format!("http://a.example{expected}"), "{path} {prefix}");
        }
        let filter = Redirect {
            path: Some(PathModifier::Full("/new".into())),
            hostname: Some("b.example".into()),
            ..bare()
        };
        assert_eq!(
            location(&filter, Origin { target: Target { query: Some("q=1"), ..TARGET }, ..ORIGIN }),
            "http://b.example/new?q=1"
        );
        let root = Redirect { path: Some(PathModifier::Prefix("/v2".into())), ..bare() };
        assert_eq!(
            location(&root, Origin { target: Target { prefix_len: 0, ..TARGET }, ..ORIGIN }),
            "http://a.example/v2/foo/bar"
        );
    }
}
