//! HTTP/2 connections to one endpoint: as many as the streams in use need.

use std::{
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::{Notify, watch},
    time::{Instant, timeout_at},
};

use super::connect::connect;
use crate::l7::{
    body::RequestBody,
    error::Error,
    settings::{
        H2_CONNECTION_WINDOW, H2_PING_INTERVAL, H2_PING_TIMEOUT, H2_SEND_BUFFER, H2_STREAM_WINDOW, Settings,
    },
};

type Sender = http2::SendRequest<RequestBody>;

/// Connections with room for streams, and at most one that is being made.
#[derive(Debug, Default)]
pub(super) struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Locked for moments, by one thread.
    state: Mutex<State>,
    /// Told when a stream ends, for those who wait at the limit of connections.
    stream_ended: Notify,
}

#[derive(Debug, Default)]
struct State {
    connections: Vec<Arc<Connection>>,
    /// Ends, and so wakes who waits for it, whatever becomes of the attempt.
    connecting: Option<watch::Receiver<Option<Arc<Failure>>>>,
}

/// Why the connection that requests waited for was not made.
#[derive(Debug)]
struct Failure {
    error: Mutex<Option<Error>>,
    timed_out: bool,
}

#[derive(Debug)]
struct Connection {
    sender: Sender,
    /// Streams in use.
    streams: AtomicUsize,
    /// Streams that the endpoint allows.
    max_streams: Arc<AtomicUsize>,
    idle_since: Mutex<Instant>,
    served: AtomicBool,
}

/// A stream in use.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) sender: Sender,
    pub(super) reused: bool,
    connection: Arc<Connection>,
    shared: Arc<Shared>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.connection.streams.fetch_sub(1, Relaxed) == 1 {
            *self.connection.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
        self.shared.stream_ended.notify_one();
    }
}

/// What a request has to do next.
enum Step {
    Take(Taken),
    AwaitConnection(watch::Receiver<Option<Arc<Failure>>>),
    AwaitStream,
}

impl Pool {
    pub(super) async fn acquire(&self, address: SocketAddr, settings: &Settings) -> Result<Taken, Error> {
        let deadline = Instant::now() + settings.connect_timeout;
        loop {
            // Registered before looking, so that no end of a stream is missed.
            let mut stream_ended = pin!(self.shared.stream_ended.notified());
            stream_ended.as_mut().enable();
            match self.step(address, settings) {
                Step::Take(taken) => return Ok(taken),
                Step::AwaitConnection(mut connecting) => {
                    match timeout_at(deadline, connecting.changed()).await {
                        Err(_elapsed) => return Err(Error::ConnectTimeout(address)),
                        Ok(_done) => {}
                    }
                    let failure = connecting.borrow().clone();
                    if let Some(failure) = failure {
                        return Err(failure.error(address));
                    }
                }
                Step::AwaitStream => {
                    if timeout_at(deadline, stream_ended).await.is_err() {
                        return Err(Error::Busy(address));
                    }
                }
            }
        }
    }

    pub(super) fn close_idle(&self, after: Duration) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.connections.retain(|connection| {
            let since = *connection.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
            let idle = connection.streams.load(Relaxed) == 0 && since.elapsed() >= after;
            !idle && !connection.sender.is_closed()
        });
    }

    fn step(&self, address: SocketAddr, settings: &Settings) -> Step {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.connections.retain(|connection| !connection.sender.is_closed());
        for connection in &state.connections {
            if connection.streams.load(Relaxed) < connection.max_streams.load(Relaxed) {
                connection.streams.fetch_add(1, Relaxed);
                return Step::Take(Taken {
                    sender: connection.sender.clone(),
                    reused: connection.served.swap(true, Relaxed),
                    connection: Arc::clone(connection),
                    shared: Arc::clone(&self.shared),
                });
            }
        }
        if let Some(connecting) = &state.connecting
            && connecting.has_changed().is_ok()
        {
            return Step::AwaitConnection(connecting.clone());
        }
        if state.connections.len() >= settings.max_h2_connections {
            return Step::AwaitStream;
        }
        let connecting = spawn_connect(Arc::clone(&self.shared), address, settings.clone());
        state.connecting = Some(connecting.clone());
        Step::AwaitConnection(connecting)
    }
}

impl Failure {
    /// The first who asks gets the cause, the others its kind.
    fn error(&self, address: SocketAddr) -> Error {
        let first = self.error.lock().unwrap_or_else(PoisonError::into_inner).take();
        first.unwrap_or_else(|| {
            if self.timed_out {
                Error::ConnectTimeout(address)
            } else {
                let source = io::Error::other("the attempt of another request failed");
                Error::ConnectFailed { address, source }
            }
        })
    }
}

/// Connects in a task of its own: a request that goes away does not take the connection of the others with it.
fn spawn_connect(
    shared: Arc<Shared>,
    address: SocketAddr,
    settings: Settings,
) -> watch::Receiver<Option<Arc<Failure>>> {
    let (done, connecting) = watch::channel(None);
    tokio::spawn(async move {
        let made = make(address, &settings).await;
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.connecting = None;
        match made {
            Ok(connection) => {
                state.connections.push(Arc::new(connection));
                done.send_replace(None);
            }
            Err(error) => {
                let timed_out = matches!(error, Error::ConnectTimeout(_));
                done.send_replace(Some(Arc::new(Failure { error: Mutex::new(Some(error)), timed_out })));
            }
        }
    });
    connecting
}

/// Connects, and waits until the endpoint has said how many streams it takes: sooner, requests would queue up behind
/// a limit that nobody knows yet, and an endpoint that does not speak HTTP/2 would be met by a request.
async fn make(address: SocketAddr, settings: &Settings) -> Result<Connection, Error> {
    let deadline = Instant::now() + settings.connect_timeout;
    let stream = connect(address, settings).await?;
    let read = Arc::new(Notify::new());
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(H2_STREAM_WINDOW)
        .initial_connection_window_size(H2_CONNECTION_WINDOW)
        .initial_max_send_streams(UNKNOWN_STREAMS)
        .max_send_buf_size(H2_SEND_BUFFER)
        .keep_alive_interval(H2_PING_INTERVAL)
        .keep_alive_timeout(H2_PING_TIMEOUT)
        .handshake(TokioIo::new(Watched { stream, read: Some(Arc::clone(&read)) }))
        .await
        .map_err(|source| Error::Handshake { address, source })?;
    let mut connection = Box::pin(connection);
    while connection.current_max_send_streams() == UNKNOWN_STREAMS {
        tokio::select! {
            ended = connection.as_mut() => {
                return Err(ended.err().map_or(Error::Closed(address), |source| Error::Handshake { address, source }));
            }
            read = timeout_at(deadline, read.notified()) => {
                read.map_err(|_elapsed| Error::ConnectTimeout(address))?;
            }
        }
    }
    let max_streams = Arc::new(AtomicUsize::new(connection.current_max_send_streams()));
    let limit = Arc::clone(&max_streams);
    tokio::spawn(async move {
        let ended = std::future::poll_fn(|context| {
            let polled = connection.as_mut().poll(context);
            if polled.is_pending() {
                limit.store(connection.current_max_send_streams(), Relaxed);
            }
            polled
        });
        if let Err(error) = ended.await {
            tracing::debug!(%address, %error, "backend connection failed");
        }
    });
    Ok(Connection {
        sender,
        streams: AtomicUsize::new(0),
        max_streams,
        idle_since: Mutex::new(Instant::now()),
        served: AtomicBool::new(false),
    })
}

/// The limit of streams before the endpoint has said its own; none says this one.
const UNKNOWN_STREAMS: usize = 0x7fff_fff1;

/// A stream that tells of its first reads: hyper has no event for the settings that come with them.
#[derive(Debug)]
struct Watched {
    stream: TcpStream,
    /// Told until the stream's buffers belong to nobody but hyper.
    read: Option<Arc<Notify>>,
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_read(context, buffer);
        if polled.is_ready()
            && let Some(read) = &this.read
        {
            if Arc::strong_count(read) == 1 {
                this.read = None;
            } else {
                // Whoever waits runs after the frames of this read have been taken in.
                read.notify_one();
            }
        }
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, data)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
