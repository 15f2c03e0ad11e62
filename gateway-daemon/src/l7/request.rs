//! The way of a request: select -> connect -> send -> classify -> respond.

use std::{borrow::Cow, convert::Infallible, sync::Arc};

use http::{Method, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;

use super::{
    balance::pick_endpoint,
    body::{RequestBody, ResponseBody},
    connection::Connection,
    error::{Error, Retry, Source},
    filter::{Origin, redirect},
    forward::{Client, address_request, is_idempotent, prepare_request, prepare_response, wants_upgrade},
    grpc::{is_grpc, trailers_only},
    route::{Facts, Host, canonical},
    snapshot::{Action, Bind, Rule},
    stats::Active,
    upgrade,
    upstream::{Endpoint, Lease, Protocol},
    worker::View,
};
use crate::model::l7::{AppProtocol, Target};

/// How often a request is sent at most, where each failure allows another attempt.
const ATTEMPTS: usize = 3;

/// Answers one request. Sees one snapshot, whatever is published meanwhile.
pub(crate) async fn handle(
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    let view = connection.worker.view();
    let grpc = is_grpc(&request);
    let answered = answer(&connection, &view, request, grpc).await;
    Ok(answered.unwrap_or_else(|error| respond_with(&error, grpc)))
}

async fn answer(
    connection: &Arc<Connection>,
    view: &View,
    request: Request<Incoming>,
    grpc: bool,
) -> Result<Response<ResponseBody>, Error> {
    check_framing(connection, &request)?;
    let bind = view.snapshot.binds.get(&connection.bind).filter(|bind| bind.tls == connection.tls);
    let Some(bind) = bind else {
        connection.drain.cancel();
        return Err(Error::NoRoute);
    };
    let host = host_of(&request)?;
    let (rule, prefix_len, path) = match select(connection, bind, &host, &request, grpc)? {
        Selected::Rule(rule, prefix_len, path) => (rule, prefix_len, path),
        Selected::Options => return Ok(Response::new(ResponseBody::empty())),
    };
    if let Some(filter) = &rule.filters.redirect {
        let origin = Origin {
            tls: connection.tls,
            host: host.as_str(),
            port: connection.bind.port(),
            path: &path,
            query: request.uri().query(),
            prefix_len,
        };
        let (status, location) = redirect(filter, origin).ok_or(Error::Unusable)?;
        let mut response = Response::new(ResponseBody::empty());
        *response.status_mut() = status;
        response.headers_mut().insert(header::LOCATION, location);
        rule.filters.response_headers(response.headers_mut());
        return Ok(response);
    }
    match rule.action {
        Action::Forward(service) => {
            drop(path);
            forward(connection, view, rule, service, request, grpc).await
        }
        Action::NoBackend => Err(Error::NoBackend),
        // A filter that answers has answered above.
        Action::Answered | Action::Unusable => Err(Error::Unusable),
    }
}

/// Refuses what could be framed in two ways, and what names its host in none or in two.
fn check_framing(connection: &Connection, request: &Request<Incoming>) -> Result<(), Error> {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    let Some(heads) = &connection.heads else {
        // HTTP/2 names the host in `:authority`; a second name must not reach a backend beside it.
        return if hosts > 1 { Err(Error::BadRequest("more than one Host")) } else { Ok(()) };
    };
    let content_length = heads.head_ended();
    if content_length && request.headers().contains_key(header::TRANSFER_ENCODING) {
        connection.drain.cancel();
        return Err(Error::BadRequest("both Content-Length and Transfer-Encoding"));
    }
    if hosts > 1 || (hosts == 0 && request.version() == Version::HTTP_11) {
        return Err(Error::BadRequest("exactly one Host line is needed"));
    }
    Ok(())
}

fn host_of(request: &Request<Incoming>) -> Result<Host, Error> {
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let host = authority.or_else(|| request.headers().get(header::HOST).map(AsRef::as_ref));
    host.map_or(Some(Host::NONE), Host::parse).ok_or(Error::BadRequest("host is not valid"))
}

/// What a request selects.
enum Selected<'bind, 'request> {
    /// A rule, the bytes of the path that its prefix took, and the path in canonical form.
    Rule(&'bind Rule, usize, Cow<'request, str>),
    /// `OPTIONS *`: it asks about the server, and reaching it is the answer.
    Options,
}

/// select: the listener by host, the rule by everything else.
fn select<'bind, 'request>(
    connection: &Connection,
    bind: &'bind Bind,
    host: &Host,
    request: &'request Request<Incoming>,
    grpc: bool,
) -> Result<Selected<'bind, 'request>, Error> {
    if request.method() == Method::CONNECT {
        return Err(Error::Connect);
    }
    let listener = bind.listener(host.as_str());
    check_direction(connection, bind, host, listener.map(|(index, _)| index))?;
    let (_, listener) = listener.ok_or(Error::NoRoute)?;
    let path = request.uri().path();
    if path == "*" {
        return match *request.method() {
            Method::OPTIONS => Ok(Selected::Options),
            _ => Err(Error::BadRequest("only OPTIONS can be asked of *")),
        };
    }
    let path = canonical(path).map_err(|_dots| Error::BadRequest("path has a dot segment"))?;
    let facts = Facts {
        host: host.as_str(),
        path: &path,
        query: request.uri().query(),
        method: request.method(),
        headers: request.headers(),
        grpc: grpc && request.method() == Method::POST,
    };
    let found = listener.routes.find(&facts).ok_or(Error::NoRoute)?;
    let rule = listener.rules.get(found.rule).ok_or(Error::NoRoute)?;
    Ok(Selected::Rule(rule, found.prefix_len, path))
}

/// On TLS, a request for a host whose listener is not the one that the handshake was for must go to a connection of
/// its own (RFC 9110 §7.4): certificates and policies are the listener's.
fn check_direction(
    connection: &Connection,
    bind: &Bind,
    host: &Host,
    listener: Option<usize>,
) -> Result<(), Error> {
    if !connection.tls || host.as_str() == connection.server_name.as_str() {
        return Ok(());
    }
    let shown = bind.listener(connection.server_name.as_str()).map(|(index, _)| index);
    if shown == listener { Ok(()) } else { Err(Error::Misdirected) }
}

/// Forwards a request to a backend of a service.
async fn forward(
    connection: &Arc<Connection>,
    view: &View,
    rule: &Rule,
    service: usize,
    mut request: Request<Incoming>,
    grpc: bool,
) -> Result<Response<ResponseBody>, Error> {
    let worker = &connection.worker;
    let compiled = view.snapshot.services.get(service).ok_or(Error::Unusable)?;
    let index = compiled.weights.pick(&worker.random).ok_or(Error::NoWeight)?;
    let backend = compiled.backends.get(index).ok_or(Error::NoWeight)?;
    let active = backend.counters.request(worker.index);
    let protocol = match &backend.target {
        Target::Invalid(_) => return fail(&active, Error::InvalidBackend, grpc),
        Target::Endpoints { protocol: AppProtocol::H2c, .. } => Protocol::Http2,
        Target::Endpoints { protocol: AppProtocol::Http, .. } if grpc => Protocol::Http2,
        Target::Endpoints { protocol: AppProtocol::Http, .. } => Protocol::Http1,
    };
    let client_upgrade = hyper::upgrade::on(&mut request);
    let (mut parts, incoming) = request.into_parts();
    let body = RequestBody::new(incoming, connection.heads.as_ref());
    let upgrade = protocol == Protocol::Http1 && wants_upgrade(&parts, !body.is_empty());
    if !upgrade && body.is_empty() {
        connection.next_head();
    }
    prepare_request(&mut parts, Client { address: &connection.client, tls: connection.tls }, upgrade);
    rule.filters.request_headers(&mut parts.headers);
    address_request(&mut parts, protocol, !body.is_empty())?;
    let endpoints = view.endpoints(service, index);
    let exchanged = exchange(connection, endpoints, protocol, Request::from_parts(parts, body)).await;
    let (response, lease) = match exchanged {
        Ok(exchanged) => exchanged,
        Err(error) => {
            tracing::debug!(service = %compiled.name, backend = %backend.name, error = %error, "request failed");
            return fail(&active, error, grpc);
        }
    };
    let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if switched && !upgrade {
        return fail(&active, Error::Switched, grpc);
    }
    active.response(response.status());
    let mut response = if switched {
        upgrade::tunnel(connection, client_upgrade, response, lease, active)
    } else {
        if upgrade {
            connection.next_head();
        }
        response.map(|body| ResponseBody::streaming(body, lease, active))
    };
    let status = response.status();
    prepare_response(status, response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    rule.filters.response_headers(response.headers_mut());
    Ok(response)
}

/// Counts a response that is made here on behalf of a backend.
fn fail(active: &Active, error: Error, grpc: bool) -> Result<Response<ResponseBody>, Error> {
    active.response(if grpc { StatusCode::OK } else { error.status() });
    Err(error)
}

/// connect, send, classify; again where that is safe.
async fn exchange(
    connection: &Connection,
    endpoints: &[Arc<Endpoint>],
    protocol: Protocol,
    mut request: Request<RequestBody>,
) -> Result<(Response<Incoming>, Lease), Error> {
    let worker = &connection.worker;
    let mut failed = None;
    let mut attempt = 1;
    loop {
        let endpoint = pick_endpoint(endpoints, failed.as_ref(), &worker.random).ok_or(Error::NoEndpoint)?;
        let leased = endpoint.lease(protocol, attempt > 1, &worker.settings).await;
        let error = match leased {
            Ok(lease) => match send(lease, request).await {
                Ok(exchanged) => return Ok(exchanged),
                Err((error, None)) => return Err(error),
                Err((error, Some(again))) => {
                    request = again;
                    error
                }
            },
            // Another endpoint may be there; the same one would not be, a moment later.
            Err(error) if error.retry() != Retry::Safe || endpoints.len() < 2 => return Err(error),
            Err(error) => error,
        };
        if attempt == ATTEMPTS {
            return Err(error);
        }
        debug_assert_eq!(error.source(), Source::Upstream);
        attempt += 1;
        failed = Some(Arc::clone(endpoint));
    }
}

/// Sends a request over a lease. On failure, gives the request back where it may be sent again.
async fn send(
    mut lease: Lease,
    request: Request<RequestBody>,
) -> Result<(Response<Incoming>, Lease), (Error, Option<Request<RequestBody>>)> {
    let reused = lease.is_reused();
    let repeatable = request.body().is_empty() && !request.headers().contains_key(header::UPGRADE);
    let idempotent = is_idempotent(request.method());
    // Kept only where a race with a closing connection is possible.
    let copy = (reused && repeatable).then(|| copy_head(&request));
    match lease.send(request).await {
        Ok(response) => Ok((response, lease)),
        Err(failed) => {
            let again = match (failed.request, failed.error.retry()) {
                (Some(request), _) => Some(*request),
                (None, Retry::Safe) => copy,
                (None, Retry::IfReused) => copy.filter(|_| idempotent),
                (None, Retry::Never) => None,
            };
            Err((failed.error, again))
        }
    }
}

fn copy_head(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    copy.headers_mut().clone_from(request.headers());
    copy
}

/// respond: tells the client of a failure in its own protocol, and which part failed, but nothing of the inside.
fn respond_with(error: &Error, grpc: bool) -> Response<ResponseBody> {
    let text = error.to_string();
    // A client has to see the 421 to open another connection, whatever it speaks.
    if grpc && !matches!(error, Error::Misdirected) {
        return trailers_only(error.grpc_status(), &text);
    }
    let mut response = Response::new(ResponseBody::text(text + "\n"));
    *response.status_mut() = error.status();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=utf-8"));
    if matches!(error, Error::BadRequest(_)) {
        headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    }
    response
}
