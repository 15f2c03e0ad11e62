//! One connection of a client, from accept to close.

use std::{
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use hyper::{
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite},
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    framing::HeadWatch,
    io::ClientIo,
    request::handle,
    route::Host,
    secure,
    settings::{
        H1_BUFFER, H2_CONNECTION_WINDOW, H2_PING_INTERVAL, H2_PING_TIMEOUT, H2_SEND_BUFFER, H2_STREAM_WINDOW,
    },
    worker::Worker,
};

/// What a client speaking HTTP/2 by prior knowledge begins with (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// See [`overdue`].
const DRAIN_PATIENCE: Duration = Duration::from_secs(1);

/// What the requests of a connection share.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) worker: Arc<Worker>,
    /// The socket that accepted it.
    pub(crate) bind: SocketAddr,
    /// The client's address, as `X-Forwarded-For` has it.
    pub(crate) client: HeaderValue,
    pub(crate) tls: bool,
    /// What TLS was opened for; none without SNI and without TLS.
    pub(crate) server_name: Host,
    /// Set for HTTP/1.
    pub(crate) heads: Option<Arc<HeadWatch>>,
    /// Cancelled when no further request shall come.
    pub(crate) drain: CancellationToken,
}

/// Serves an accepted connection until it ends.
pub(crate) async fn serve(
    worker: Arc<Worker>,
    stream: TcpStream,
    peer: SocketAddr,
    bind: SocketAddr,
    drain: CancellationToken,
) {
    let Some(tls) = worker.view().snapshot.binds.get(&bind).map(|bind| bind.tls) else { return };
    let server_name = Host::NONE;
    let connection =
        Connection { worker, bind, client: client_address(peer), tls, server_name, heads: None, drain };
    if tls {
        return secure::serve(connection, stream).await;
    }
    let mut stream = stream;
    let patience = connection.worker.settings.handshake_timeout;
    let detected = tokio::select! {
        detected = timeout(patience, detect(&mut stream)) => detected,
        () = overdue(&connection.drain) => return,
    };
    if let Ok(Ok((prefix, http2))) = detected {
        connection.speak(stream, prefix, http2).await;
    }
}

fn client_address(peer: SocketAddr) -> HeaderValue {
    // An address is nothing but digits, letters, dots and colons.
    HeaderValue::try_from(peer.ip().to_canonical().to_string()).unwrap_or(HeaderValue::from_static("unknown"))
}

/// Returns when a draining connection has been given its chance to send something: it may have been accepted only
/// because its listener closed, with a request on the way.
pub(crate) async fn overdue(drain: &CancellationToken) {
    drain.cancelled().await;
    sleep(DRAIN_PATIENCE).await;
}

/// Reads until it is clear whether the client speaks HTTP/2; returns what was read.
async fn detect(stream: &mut TcpStream) -> io::Result<(Bytes, bool)> {
    let mut read = BytesMut::with_capacity(4 << 10);
    loop {
        if stream.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let common = read.len().min(PREFACE.len());
        if read[..common] != PREFACE[..common] {
            return Ok((read.freeze(), false));
        }
        if common == PREFACE.len() {
            return Ok((read.freeze(), true));
        }
    }
}

impl Connection {
    /// What the client sends from now on is the head of its next request.
    pub(crate) fn next_head(&self) {
        if let Some(heads) = &self.heads {
            heads.body_ended();
        }
    }

    /// Speaks HTTP; `prefix` was read already.
    pub(crate) async fn speak<S>(mut self, stream: S, prefix: Bytes, http2: bool)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let ended = if http2 {
            self.speak_http2(TokioIo::new(ClientIo::new(stream, prefix, None))).await
        } else {
            let heads = Arc::new(HeadWatch::default());
            self.heads = Some(Arc::clone(&heads));
            self.speak_http1(TokioIo::new(ClientIo::new(stream, prefix, Some(heads)))).await
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "client connection failed");
        }
    }

    async fn speak_http1<S>(self, io: TokioIo<ClientIo<S>>) -> hyper::Result<()>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let this = Arc::new(self);
        let service = service_fn({
            let this = Arc::clone(&this);
            move |request| handle(Arc::clone(&this), request)
        });
        let mut http = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(this.worker.settings.client_idle_timeout)
                .max_buf_size(H1_BUFFER)
                .serve_connection(io, service)
                .with_upgrades()
        );
        tokio::select! {
            ended = http.as_mut() => return ended,
            () = this.drain.cancelled() => http.as_mut().graceful_shutdown(),
        }
        http.await
    }

    async fn speak_http2<S>(self, io: TokioIo<ClientIo<S>>) -> hyper::Result<()>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let this = Arc::new(self);
        let busy = Arc::new(Busy::default());
        let service = service_fn({
            let (this, busy) = (Arc::clone(&this), Arc::clone(&busy));
            move |request| {
                let busy = busy.request();
                let answered = handle(Arc::clone(&this), request);
                async move {
                    let answered = answered.await;
                    drop(busy);
                    answered
                }
            }
        });
        let settings = &this.worker.settings;
        let mut http = pin!(
            http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .initial_stream_window_size(H2_STREAM_WINDOW)
                .initial_connection_window_size(H2_CONNECTION_WINDOW)
                .max_send_buf_size(H2_SEND_BUFFER)
                .max_concurrent_streams(settings.max_streams)
                .keep_alive_interval(H2_PING_INTERVAL)
                .keep_alive_timeout(H2_PING_TIMEOUT)
                .serve_connection(io, service)
        );
        tokio::select! {
            ended = http.as_mut() => return ended,
            () = this.drain.cancelled() => http.as_mut().graceful_shutdown(),
            () = busy.idle(settings.client_idle_timeout) => http.as_mut().graceful_shutdown(),
        }
        http.await
    }
}

/// Whether an HTTP/2 connection has requests, for the timeout of idle ones.
#[derive(Debug, Default)]
struct Busy {
    /// Counts requests begun, so that a look can tell whether there were any since the last one.
    begun: AtomicU64,
    /// Those whose head of response has not been made. Streams that go on are seen by h2's pings.
    open: AtomicU64,
}

impl Busy {
    fn request(self: &Arc<Self>) -> BusyGuard {
        self.begun.fetch_add(1, Relaxed);
        self.open.fetch_add(1, Relaxed);
        BusyGuard(Arc::clone(self))
    }

    /// Returns when there was no request for `after`, and at most for twice that.
    async fn idle(&self, after: Duration) {
        let mut seen = self.begun.load(Relaxed);
        loop {
            sleep(after).await;
            let begun = self.begun.load(Relaxed);
            if begun == seen && self.open.load(Relaxed) == 0 {
                return;
            }
            seen = begun;
        }
    }
}

struct BusyGuard(Arc<Busy>);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}
