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
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

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
    /// Cancelled once no snapshot has it any more.
    retired: CancellationToken,
}

impl Endpoint {
    pub(crate) fn new(address: SocketAddr, settings: &Settings) -> Arc<Self> {
        Arc::new(Self {
            address,
            active: AtomicUsize::new(0),
            h1: h1::Pool::new(settings),
            h2: h2::Pool::default(),
            retired: CancellationToken::new(),
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

    /// A connection that is no part of the pools.
    ///
    /// # Errors
    /// `ConnectFailed` or `ConnectTimeout`, at the latest after the time for connecting.
    pub(crate) async fn dial(self: &Arc<Self>, settings: &Settings) -> Result<Dialled, Error> {
        let lease = Count::new(self);
        let stream = connect::connect(self.address, settings).await?;
        Ok(Dialled { stream, lease })
    }

    /// No snapshot has it any more.
    pub(crate) fn retire(&self) {
        self.retired.cancel();
    }

    /// Closes connections that have been idle for too long.
    pub(crate) fn close_idle(&self, settings: &Settings) {
        self.h1.close_idle(settings.pool_idle_timeout);
        self.h2.close_idle(settings.h2_idle_timeout);
    }
}

/// A connection outside of the pools.
#[derive(Debug)]
pub(crate) struct Dialled {
    pub(crate) stream: TcpStream,
    /// To be kept for as long as the connection is used.
    pub(crate) lease: Count,
}

/// Counts as one of the endpoint's leases.
#[derive(Debug)]
pub(crate) struct Count(Arc<Endpoint>);

impl Count {
    /// Returns when no snapshot has the endpoint any more.
    pub(crate) async fn retired(&self) {
        self.0.retired.cancelled().await;
    }

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
