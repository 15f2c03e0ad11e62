//! Endpoints: connections to them, and leases on those.
//!
//! Every worker has its own endpoints. One lives as long as a snapshot or a request refers to it; then its idle
//! connections close.

mod connect;
mod h1;
mod h2;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use http::{Request, Response};
use hyper::body::Incoming;

use super::{body::RequestBody, error::Error, settings::Settings};

/// The protocol spoken to an endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Protocol {
    Http1,
    /// By prior knowledge.
    Http2,
}

/// One address that takes requests, with its pools.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    /// Leases out. Atomic for the sake of `Sync` only: one thread uses it.
    active: AtomicUsize,
    h1: h1::Pool,
    h2: h2::Pool,
}

impl Endpoint {
    pub(crate) fn new(address: SocketAddr, settings: &Settings) -> Arc<Self> {
        Arc::new(Self {
            address,
            active: AtomicUsize::new(0),
            h1: h1::Pool::new(settings),
            h2: h2::Pool::default(),
        })
    }

    /// Requests that have not ended.
    pub(crate) fn active(&self) -> usize {
        self.active.load(Relaxed)
    }

    /// A connection for one request; a new one when it must be `fresh`.
    ///
    /// # Errors
    /// `Busy`, `ConnectFailed`, `ConnectTimeout` or `Handshake`, at the latest after the time for connecting.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        protocol: Protocol,
        fresh: bool,
        settings: &Settings,
    ) -> Result<Lease, Error> {
        // Counted while connecting too, so that a slow endpoint does not attract the next request.
        let count = Count::new(self);
        let connection = match protocol {
            Protocol::Http1 => Connection::Http1(self.h1.acquire(self.address, fresh, settings).await?),
            Protocol::Http2 => Connection::Http2(self.h2.acquire(self.address, settings).await?),
        };
        Ok(Lease { connection, count })
    }

    /// Closes connections that have been idle for too long.
    pub(crate) fn close_idle(&self, settings: &Settings) {
        self.h1.close_idle(settings.pool_idle_timeout);
        self.h2.close_idle(settings.h2_idle_timeout);
    }
}

#[derive(Debug)]
struct Count(Arc<Endpoint>);

impl Count {
    fn new(endpoint: &Arc<Endpoint>) -> Self {
        endpoint.active.fetch_add(1, Relaxed);
        Self(Arc::clone(endpoint))
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Relaxed);
    }
}

#[derive(Debug)]
enum Connection {
    Http1(h1::Taken),
    Http2(h2::Taken),
}

/// The right to one exchange on a connection.
#[derive(Debug)]
pub(crate) struct Lease {
    connection: Connection,
    count: Count,
}

/// Why an exchange failed, and the request where it did not leave.
pub(crate) struct SendError {
    pub(crate) error: Error,
    pub(crate) request: Option<Box<Request<RequestBody>>>,
}

impl Lease {
    /// Whether the connection has served before.
    pub(crate) fn is_reused(&self) -> bool {
        match &self.connection {
            Connection::Http1(taken) => taken.reused,
            Connection::Http2(taken) => taken.reused,
        }
    }

    /// Sends a request and waits for the head of its response.
    pub(crate) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, SendError> {
        let result = match &mut self.connection {
            Connection::Http1(taken) => taken.sender.try_send_request(request).await,
            Connection::Http2(taken) => taken.sender.try_send_request(request).await,
        };
        result.map_err(|mut failed| {
            let request = failed.take_message().map(Box::new);
            let error = Error::of_exchange(self.count.0.address, failed.into_error(), request.is_some());
            SendError { error, request }
        })
    }

    /// The exchange has ended in order: the connection can serve again.
    pub(crate) fn give_back(self) {
        let Self { connection, count } = self;
        match connection {
            Connection::Http1(taken) => count.0.h1.give_back(taken),
            Connection::Http2(taken) => drop(taken),
        }
    }
}
