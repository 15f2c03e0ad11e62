//! Tunnels: connections of TLSRoutes, handed on whole.
//!
//! A tunnel counts as a connection of the client and as a request of its backend. Whatever is published, it stays with
//! the endpoint that it has; when that one is removed, or the listener is, it has the drain timeout left. What cannot
//! be handed on is reset, and so is the other side of one that breaks: nobody must take what they got for everything.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes},
    net::TcpStream,
    time::sleep,
};

use super::{
    balance::pick_endpoint,
    connection::Connection,
    error::{Error, Retry},
    replay::Replay,
    secure::Secured,
    stats::Active,
    upstream::Dialled,
    worker::View,
};
use crate::model::l7::Target;

/// How many endpoints are tried, where each fails to take the connection.
const ATTEMPTS: usize = 3;

/// Bytes that are read at once, each way.
const BUFFER: usize = 16 << 10;

/// The BackendRef that a connection was given to.
#[derive(Debug)]
pub(crate) struct Choice {
    view: Arc<View>,
    service: usize,
    backend: usize,
    active: Active,
}

impl Choice {
    /// Gives a connection to a BackendRef of a service, by weight.
    ///
    /// # Errors
    /// There is none with a weight, or it is invalid.
    pub(crate) fn new(connection: &Connection, view: &Arc<View>, service: usize) -> Result<Self, Error> {
        let worker = &connection.worker;
        let compiled = view.snapshot.services.get(service).ok_or(Error::Unusable)?;
        let index = compiled.weights.pick(&worker.random).ok_or(Error::NoWeight)?;
        let backend = compiled.backends.get(index).ok_or(Error::NoWeight)?;
        let active = backend.counters.request(worker.index);
        match backend.target {
            Target::Invalid(_) => Err(Error::InvalidBackend),
            Target::Endpoints { .. } => Ok(Self { view: Arc::clone(view), service, backend: index, active }),
        }
    }
}

/// A client's side of a tunnel.
pub(crate) trait Client: AsyncRead + AsyncWrite + Unpin {
    /// The socket below it.
    fn socket(&self) -> &TcpStream;
}

impl Client for Replay<TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref()
    }
}

impl Client for Secured {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0.get_ref()
    }
}

/// Hands a connection on to what was chosen for it, until both sides are done.
pub(crate) async fn carry<C: Client>(connection: &Connection, mut client: C, choice: Choice) {
    let dialled = match dial(connection, &choice).await {
        Ok(dialled) => dialled,
        Err(error) => return refuse(connection, client.socket(), &error),
    };
    let Choice { view, active, .. } = choice;
    // A tunnel may live for days: it must not keep a whole generation.
    drop(view);
    let _counted = active;
    let settings = &connection.worker.settings;
    let moved = Arc::new(AtomicU64::new(0));
    let Dialled { stream, lease } = dialled;
    let mut backend = Watched { stream, moved: Arc::clone(&moved) };
    let over = async {
        tokio::select! {
            () = lease.retired() => {}
            () = connection.drain.cancelled() => {}
        }
        sleep(settings.drain_timeout).await;
    };
    let ended = tokio::select! {
        ended = copy_bidirectional_with_sizes(&mut client, &mut backend, BUFFER, BUFFER) => ended.map(drop),
        () = idle(&moved, settings.tunnel_idle_timeout) => Err(io::Error::other("nothing was sent for too long")),
        () = over => Err(io::Error::other("the endpoint or the listener is gone")),
    };
    if let Err(error) = ended {
        tracing::debug!(server_name = ?connection.server_name, %error, "tunnel cut");
        reset(client.socket());
        reset(&backend.stream);
    }
}

/// Resets a connection that cannot be handed on.
pub(crate) fn refuse(connection: &Connection, stream: &TcpStream, error: &Error) {
    tracing::debug!(server_name = ?connection.server_name, %error, "connection refused");
    reset(stream);
}

/// Makes the close of a socket, which is to follow, a reset.
fn reset(stream: &TcpStream) {
    // Fails on nothing but a socket that is gone.
    let _ = stream.set_zero_linger();
}

/// Connects to an endpoint of the BackendRef, the less busy one of two; to another if it does not answer.
async fn dial(connection: &Connection, choice: &Choice) -> Result<Dialled, Error> {
    let worker = &connection.worker;
    let endpoints = choice.view.endpoints(choice.service, choice.backend);
    let mut failed = None;
    let mut attempt = 1;
    loop {
        let endpoint = pick_endpoint(endpoints, failed.as_ref(), &worker.random).ok_or(Error::NoEndpoint)?;
        match endpoint.dial(&worker.settings).await {
            Err(error) if error.retry() == Retry::Safe && endpoints.len() > 1 && attempt < ATTEMPTS => {
                failed = Some(Arc::clone(endpoint));
                attempt += 1;
            }
            dialled => return dialled,
        }
    }
}

/// Returns when nothing moved for `after`, and at most for twice that.
async fn idle(moved: &AtomicU64, after: Duration) {
    let mut seen = None;
    loop {
        let now = moved.load(Relaxed);
        if seen == Some(now) {
            return;
        }
        seen = Some(now);
        sleep(after).await;
    }
}

/// The backend's side of a tunnel; tells by `moved` that something was read or written.
#[derive(Debug)]
struct Watched {
    stream: TcpStream,
    /// Atomic for the sake of `Send` only: one thread uses it.
    moved: Arc<AtomicU64>,
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        this.moved.fetch_add(1, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(context, data))?;
        this.moved.fetch_add(1, Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
