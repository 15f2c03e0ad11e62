//! Timeouts and limits of the proxy.

use std::time::Duration;

/// Timeouts and limits, each for one worker where it counts things.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Threads, each with listeners, pools and connections of its own. By default the CPUs that affinity and the
    /// cgroup's quota leave.
    pub workers: usize,
    /// Connections of clients. One more is closed at once. Default 16,384.
    pub max_connections: usize,
    /// Time for the TLS handshake, its ClientHello included, and for the first bytes that tell the protocol. Default 10 s.
    pub handshake_timeout: Duration,
    /// Time for a client to send the head of a request, and to begin its next one. Default 60 s.
    pub client_idle_timeout: Duration,
    /// A tunnel through which nothing is sent is cut after so long. Default 1 h.
    pub tunnel_idle_timeout: Duration,
    /// How long a tunnel may live on after its endpoint or its listener was removed. Default 60 s.
    pub drain_timeout: Duration,
    /// Requests that a client may have open on one HTTP/2 connection. Default 250.
    pub max_streams: u32,
    /// Time to connect to an endpoint, and to wait for a place in its pool. Default 5 s.
    pub connect_timeout: Duration,
    /// An idle HTTP/1.1 connection to an endpoint is closed after so long. Default 4 s: less than the 5 s after which
    /// widespread servers close theirs, so that few requests meet a connection that is just being closed.
    pub pool_idle_timeout: Duration,
    /// Idle HTTP/1.1 connections kept for an endpoint. Default 256.
    pub max_idle: usize,
    /// HTTP/1.1 requests that an endpoint may have at once; the next one waits up to `connect_timeout`. Default 4,096.
    pub max_requests: usize,
    /// HTTP/2 connections to an endpoint. Another is opened when the streams of all are in use. Default 16.
    pub max_h2_connections: usize,
    /// An HTTP/2 connection to an endpoint without requests is closed after so long. Default 60 s.
    pub h2_idle_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            max_connections: 16_384,
            handshake_timeout: Duration::from_secs(10),
            client_idle_timeout: Duration::from_secs(60),
            tunnel_idle_timeout: Duration::from_secs(3600),
            drain_timeout: Duration::from_secs(60),
            max_streams: 250,
            connect_timeout: Duration::from_secs(5),
            pool_idle_timeout: Duration::from_secs(4),
            max_idle: 256,
            max_requests: 4_096,
            max_h2_connections: 16,
            h2_idle_timeout: Duration::from_secs(60),
        }
    }
}

/// HTTP/2 flow control: what may be sent before the receiver has taken it.
///
/// The connection's window is a multiple of a stream's, so that one slow reader does not starve the others, and both
/// are large, since h2's budget for small DATA frames follows from them. Never hyper's adaptive window: it overrides
/// both.
pub(crate) const H2_STREAM_WINDOW: u32 = 1 << 20;
/// See [`H2_STREAM_WINDOW`].
pub(crate) const H2_CONNECTION_WINDOW: u32 = 8 << 20;
/// Bytes that one stream may have waiting to be written.
pub(crate) const H2_SEND_BUFFER: usize = 256 << 10;
/// After so long without a frame a peer with open requests is asked whether it lives.
pub(crate) const H2_PING_INTERVAL: Duration = Duration::from_secs(20);
/// Time to answer that.
pub(crate) const H2_PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a request's head, and of one write.
pub(crate) const H1_BUFFER: usize = 128 << 10;
/// Bytes of a request's body that are kept, so that it can be sent again where its route has retries.
pub(crate) const REPEAT_BUFFER: usize = 64 << 10;
