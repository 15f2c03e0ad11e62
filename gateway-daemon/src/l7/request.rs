//! The way of a request: select, then `dispatch`, then respond.

use std::{borrow::Cow, convert::Infallible, sync::Arc};

use http::{Method, Request, Response, Version, header};
use hyper::body::Incoming;

use super::{
    body::ResponseBody,
    connection::Connection,
    dispatch::{Planned, choose},
    error::Error,
    filter::{Origin, Target, redirect},
    grpc::{is_grpc, trailers_only},
    route::{Facts, Host, canonical},
    snapshot::{Action, Bind, Rule},
    worker::View,
};

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
    let target = Target { path: &path, query: request.uri().query(), prefix_len };
    let origin = Origin { tls: connection.tls, host: host.as_str(), port: connection.bind.port(), target };
    if let Some(filter) = &rule.filters.redirect {
        let mut response = redirect(filter, origin).ok_or(Error::Unusable)?;
        rule.filters.response_headers(response.headers_mut());
        return Ok(response);
    }
    match rule.action {
        Action::Forward(service) => {
            let chosen = choose(connection, view, rule, service)?;
            let planned = chosen.plan(origin, grpc)?;
            drop(path);
            match planned {
                Planned::Answer(response) => Ok(response),
                Planned::Forward(path_and_query) => chosen.forward(request, path_and_query, grpc).await,
            }
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
