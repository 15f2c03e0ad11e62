//! To a backend: choose one, make the request what it is to be there, `exchange`, make the response what the client
//! gets.

use std::sync::Arc;

use http::{Request, Response, StatusCode, Version, uri::PathAndQuery};
use hyper::body::Incoming;

use super::{
    body::{RequestBody, ResponseBody},
    connection::Connection,
    error::Error,
    exchange::{Exchange, Exchanged},
    filter::{Filters, Origin, redirect},
    forward::{Client, address_request, prepare_request, prepare_response, wants_upgrade},
    snapshot::{Backend, Rule},
    stats::Active,
    upgrade,
    upstream::{Endpoint, Protocol},
    worker::View,
};
use crate::model::l7::{AppProtocol, Target};

/// A backend for one request.
pub(crate) struct Chosen<'a> {
    connection: &'a Arc<Connection>,
    rule: &'a Rule,
    backend: &'a Backend,
    /// Filters of the backend alone.
    filters: Option<&'a Filters>,
    endpoints: &'a [Arc<Endpoint>],
    /// Name of the service, for the log.
    service: &'a str,
    active: Active,
}

/// What is to be done with a request, its backend known.
pub(crate) enum Planned {
    /// A filter of the backend answers.
    Answer(Response<ResponseBody>),
    /// It goes there, with this path if it is another one.
    Forward(Option<PathAndQuery>),
}

/// choose: a backend of the service, by weight.
pub(crate) fn choose<'a>(
    connection: &'a Arc<Connection>,
    view: &'a View,
    rule: &'a Rule,
    service: usize,
) -> Result<Chosen<'a>, Error> {
    let worker = &connection.worker;
    let compiled = view.snapshot.services.get(service).ok_or(Error::Unusable)?;
    let index = compiled.weights.pick(&worker.random).ok_or(Error::NoWeight)?;
    let backend = compiled.backends.get(index).ok_or(Error::NoWeight)?;
    Ok(Chosen {
        connection,
        rule,
        backend,
        filters: rule.backend_filters.get(index),
        endpoints: view.endpoints(service, index),
        service: &compiled.name,
        active: backend.counters.request(worker.index),
    })
}

impl Chosen<'_> {
    /// Filters that look at what the request asked for: a redirect answers, a rewrite makes a path. Of two rewrites
    /// of the path, the backend's stands; both start from the path that the rule matched.
    pub(crate) fn plan(&self, origin: Origin<'_>, grpc: bool) -> Result<Planned, Error> {
        if let Some(filter) = self.filters.and_then(|filters| filters.redirect.as_ref()) {
            let mut response = redirect(filter, origin).ok_or(Error::Unusable)?;
            self.active.response(response.status());
            self.response_filters(&mut response);
            return Ok(Planned::Answer(response));
        }
        let of_backend = self.filters.map(|filters| filters.rewritten(origin.target)).transpose();
        let path = match of_backend {
            Ok(None | Some(None)) => self.rule.filters.rewritten(origin.target),
            Ok(Some(path)) => Ok(path),
            Err(error) => Err(error),
        };
        path.map(Planned::Forward).or_else(|error| self.fail(error, grpc))
    }

    /// Forwards a request to the backend.
    pub(crate) async fn forward(
        self,
        mut request: Request<Incoming>,
        path: Option<PathAndQuery>,
        grpc: bool,
    ) -> Result<Response<ResponseBody>, Error> {
        let connection = self.connection;
        let protocol = match &self.backend.target {
            Target::Invalid(_) => return self.fail(Error::InvalidBackend, grpc),
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
        self.rule.filters.request_headers(&mut parts.headers);
        if let Some(filters) = self.filters {
            filters.request_headers(&mut parts.headers);
        }
        if let Some(path) = path {
            parts.uri = path.into();
        }
        address_request(&mut parts, protocol, !body.is_empty())?;
        let exchange = Exchange {
            worker: &connection.worker,
            endpoints: self.endpoints,
            protocol,
            policy: &self.rule.policy,
            active: &self.active,
        };
        let Exchanged { response, lease, until } = match exchange.run(Request::from_parts(parts, body)).await
        {
            Ok(exchanged) => exchanged,
            Err(error) => {
                let (service, backend) = (self.service, &self.backend.name);
                tracing::debug!(service, backend, error = %error, "request failed");
                return self.fail(error, grpc);
            }
        };
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if switched && !upgrade {
            return self.fail(Error::Switched, grpc);
        }
        self.active.response(response.status());
        let (rule, filters) = (self.rule, self.filters);
        let mut response = if switched {
            upgrade::tunnel(connection, client_upgrade, response, lease, self.active)
        } else {
            if upgrade {
                connection.next_head();
            }
            response.map(|body| ResponseBody::streaming(body, lease, self.active).limited(until, grpc))
        };
        let status = response.status();
        prepare_response(status, response.headers_mut());
        *response.version_mut() = Version::HTTP_11;
        response_filters(rule, filters, &mut response);
        Ok(response)
    }

    fn response_filters(&self, response: &mut Response<ResponseBody>) {
        response_filters(self.rule, self.filters, response);
    }

    /// Counts a response that is made here on behalf of the backend.
    fn fail<T>(&self, error: Error, grpc: bool) -> Result<T, Error> {
        self.active.response(if grpc { StatusCode::OK } else { error.status() });
        Err(error)
    }
}

/// Those of the backend first: it is nearer to the response.
fn response_filters(rule: &Rule, backend: Option<&Filters>, response: &mut Response<ResponseBody>) {
    if let Some(filters) = backend {
        filters.response_headers(response.headers_mut());
    }
    rule.filters.response_headers(response.headers_mut());
}
