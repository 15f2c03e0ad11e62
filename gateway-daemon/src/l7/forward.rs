//! Heads of messages on their way through: what belongs to one connection stays there, and HTTP/1.1 and HTTP/2 are
//! translated into each other.
//!
//! A request gets the client's address appended to `X-Forwarded-For`, and `X-Forwarded-Proto` and
//! `X-Forwarded-Host` set anew, since nothing says which clients to trust with them. `Host` stays as the client sent
//! it. `Via` is not added: backends take it as a reason to switch off compression and caching.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header,
    request::Parts,
    uri::{Authority, PathAndQuery, Scheme},
};

use super::{error::Error, upstream::Protocol};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

/// The client's side of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client<'a> {
    pub(crate) address: &'a HeaderValue,
    pub(crate) tls: bool,
}

/// Makes the head of a request what it will be for any backend: `Host` set, connection's headers gone, the origin told.
///
/// Keeps `te: trailers`, and with `upgrade` also `upgrade`.
pub(crate) fn prepare_request(parts: &mut Parts, client: Client<'_>, upgrade: bool) {
    let headers = &mut parts.headers;
    let upgrade = if upgrade { headers.get(header::UPGRADE).cloned() } else { None };
    let trailers = headers.get_all(header::TE).iter().any(|value| has_token(value, "trailers"));
    remove_connection_headers(headers);
    headers.remove(HTTP2_SETTINGS);
    if headers.get(header::EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
    {
        // Answered here, when the backend's connection takes the body.
        headers.remove(header::EXPECT);
    }
    if trailers {
        headers.insert(header::TE, TRAILERS);
    }
    if let Some(upgrade) = upgrade {
        headers.insert(header::UPGRADE, upgrade);
    }
    // The target's authority goes before the Host line (RFC 9112 §3.2.2, RFC 9113 §8.3.1).
    let authority = parts.uri.authority().map(Authority::as_str);
    if let Some(host) = authority.and_then(|authority| HeaderValue::try_from(authority).ok()) {
        headers.insert(header::HOST, host);
    }
    tell_origin(headers, client);
}

fn tell_origin(headers: &mut HeaderMap, client: Client<'_>) {
    // Most requests come from clients that are no proxies: nothing has to be built for them.
    let chain = if headers.contains_key(X_FORWARDED_FOR) {
        let known = headers.get_all(X_FORWARDED_FOR).iter().map(HeaderValue::as_bytes);
        let chain: Vec<&[u8]> = known.chain([client.address.as_bytes()]).collect();
        HeaderValue::from_bytes(&chain.join(&b", "[..])).ok()
    } else {
        None
    };
    headers.insert(X_FORWARDED_FOR, chain.unwrap_or_else(|| client.address.clone()));
    let scheme = HeaderValue::from_static(if client.tls { "https" } else { "http" });
    headers.insert(X_FORWARDED_PROTO, scheme);
    match headers.get(header::HOST).cloned() {
        Some(host) => headers.insert(X_FORWARDED_HOST, host),
        None => headers.remove(X_FORWARDED_HOST),
    };
}

/// Gives a prepared head the form of a protocol. `has_body` tells whether a body follows.
///
/// # Errors
/// `BadRequest` when the host is none that `:authority` can carry.
pub(crate) fn address_request(parts: &mut Parts, protocol: Protocol, has_body: bool) -> Result<(), Error> {
    let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    match protocol {
        Protocol::Http1 => {
            parts.version = Version::HTTP_11;
            parts.uri = Uri::from(path);
            join_cookies(&mut parts.headers);
            let headers = &mut parts.headers;
            headers.entry(header::HOST).or_insert(HeaderValue::from_static(""));
            if headers.contains_key(header::UPGRADE) {
                headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
                headers.remove(header::TE);
            } else if headers.contains_key(header::TE) {
                headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
            }
            // Said outright, because for some methods hyper assumes that there is no body.
            if has_body && !headers.contains_key(header::CONTENT_LENGTH) {
                headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
        }
        Protocol::Http2 => {
            parts.version = Version::HTTP_2;
            let host = parts.headers.remove(header::HOST);
            parts.headers.remove(header::UPGRADE);
            let authority = host.as_ref().filter(|host| !host.is_empty());
            let mut target = Uri::builder().scheme(Scheme::HTTP).path_and_query(path);
            target = match authority {
                Some(host) => target.authority(host.as_bytes()),
                // A URI with a scheme has an authority.
                None => target.authority("localhost"),
            };
            parts.uri = target.build().map_err(|_error| Error::BadRequest("host is not valid"))?;
        }
    }
    Ok(())
}

/// HTTP/2 may split a cookie into several lines; HTTP/1.1 wants one (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(header::COOKIE).iter();
    let (Some(first), Some(second)) = (lines.next(), lines.next()) else { return };
    let mut joined = first.as_bytes().to_vec();
    for line in std::iter::once(second).chain(lines) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(line.as_bytes());
    }
    if let Ok(joined) = HeaderValue::from_bytes(&joined) {
        headers.insert(header::COOKIE, joined);
    }
}

/// Makes the head of a response what the client may see.
pub(crate) fn prepare_response(status: StatusCode, headers: &mut HeaderMap) {
    let upgrade =
        if status == StatusCode::SWITCHING_PROTOCOLS { headers.get(header::UPGRADE).cloned() } else { None };
    if headers.contains_key(header::TRANSFER_ENCODING) {
        // It did not frame the message, so it must not frame ours (RFC 9112 §6.3).
        headers.remove(header::CONTENT_LENGTH);
    }
    remove_connection_headers(headers);
    if let Some(upgrade) = upgrade {
        headers.insert(header::UPGRADE, upgrade);
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

/// Removes what is meant for the next hop only (RFC 9110 §7.6.1).
fn remove_connection_headers(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = headers.get_all(header::CONNECTION).iter().flat_map(named_by).collect();
        for name in named {
            headers.remove(name);
        }
        headers.remove(header::CONNECTION);
    }
    for name in [KEEP_ALIVE, PROXY_CONNECTION, header::TE, header::TRANSFER_ENCODING, header::UPGRADE] {
        headers.remove(name);
    }
}

/// The headers that a Connection line names, but for those which no peer may take out of a request.
fn named_by(value: &HeaderValue) -> impl Iterator<Item = HeaderName> {
    let tokens = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    tokens
        .filter_map(|token| HeaderName::from_bytes(token).ok())
        .filter(|name| !matches!(*name, header::HOST | header::CONTENT_LENGTH))
}

fn has_token(value: &HeaderValue, token: &str) -> bool {
    let tokens = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    { tokens }.any(|one| one.eq_ignore_ascii_case(token.as_bytes()))
}

/// Whether a request asks for another protocol on its connection, and may: HTTP/1.1, without a body, and not `h2c`,
/// which is spoken by prior knowledge only.
pub(crate) fn wants_upgrade(parts: &Parts, has_body: bool) -> bool {
    let headers = &parts.headers;
    parts.version == Version::HTTP_11
        && !has_body
        && headers.get(header::UPGRADE).is_some_and(|upgrade| !has_token(upgrade, "h2c"))
        && headers.get_all(header::CONNECTION).iter().any(|value| has_token(value, "upgrade"))
}

/// Whether a request may be sent twice (RFC 9110 §9.2.2).
pub(crate) fn is_idempotent(method: &Method) -> bool {
    method.is_idempotent()
}
