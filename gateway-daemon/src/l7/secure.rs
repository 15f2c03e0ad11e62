//! TLS connections, from the ClientHello to whom it is for: a listener of HTTPS, or a tunnel.

use std::{io, sync::Arc};

use bytes::Bytes;
use rustls::ServerConfig;
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    time::{Instant, timeout_at},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{
    connection::{Connection, overdue},
    error::Error,
    hello::{self, Hello},
    replay::Replay,
    tunnel::{self, Choice},
};

/// A fatal alert in a record: `unrecognized_name` (RFC 6066 §3).
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// A client's stream, with TLS ended here.
pub(crate) type Secured = TlsStream<Replay<TcpStream>>;

/// Whom a connection is for.
enum Destination {
    /// A listener of HTTPS.
    Http(Arc<ServerConfig>),
    /// A service behind a tunnel; TLS ends here if there is a configuration.
    Tunnel(Choice, Option<Arc<ServerConfig>>),
    /// A tunnel that leads nowhere.
    Refused(Error),
    /// No listener.
    Nobody,
}

/// Serves a connection that must begin with a ClientHello, until it ends.
pub(crate) async fn serve(mut connection: Connection, mut stream: TcpStream) {
    let deadline = Instant::now() + connection.worker.settings.handshake_timeout;
    let read = tokio::select! {
        read = timeout_at(deadline, hello::read(&mut stream)) => read.unwrap_or_else(|_elapsed| Err(late())),
        () = overdue(&connection.drain) => return,
    };
    let hello = match read {
        Ok(hello) => hello,
        Err(error) => return tracing::debug!(client = ?connection.client, %error, "no ClientHello"),
    };
    connection.server_name = hello.server_name;
    let failed = match destination(&connection) {
        Destination::Http(config) => match accept(config, deadline, stream, hello).await {
            Ok(stream) => {
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                return connection.speak(stream, Bytes::new(), http2).await;
            }
            Err(error) => error,
        },
        Destination::Tunnel(choice, None) => {
            return tunnel::carry(&connection, Replay::new(stream, hello.raw), choice).await;
        }
        Destination::Tunnel(choice, Some(config)) => match accept(config, deadline, stream, hello).await {
            Ok(stream) => return tunnel::carry(&connection, stream, choice).await,
            Err(error) => error,
        },
        Destination::Refused(error) => return tunnel::refuse(&connection, &stream, &error),
        // The client may be gone, and would not have learned more.
        Destination::Nobody => return drop(say_unrecognized(stream).await),
    };
    tracing::debug!(client = ?connection.client, error = %failed, "TLS handshake failed");
}

/// Looks a connection's server name up, in the newest view.
fn destination(connection: &Connection) -> Destination {
    let view = connection.worker.view();
    let name = connection.server_name.as_str();
    let Some(bind) = view.snapshot.binds.get(&connection.bind) else { return Destination::Nobody };
    let Some((_, listener)) = bind.listener(name) else {
        // Where connections are handed on, a client is to see no answer but its server's.
        return if bind.has_tunnels() { Destination::Refused(Error::NoRoute) } else { Destination::Nobody };
    };
    let config = listener.tls.clone();
    let Some(tunnels) = &listener.tunnels else {
        return config.map_or(Destination::Refused(Error::Unusable), Destination::Http);
    };
    let Some(service) = tunnels.fitting(name).next().copied().flatten() else {
        return Destination::Refused(Error::NoRoute);
    };
    match Choice::new(connection, &view, service) {
        Ok(choice) => Destination::Tunnel(choice, config),
        Err(error) => Destination::Refused(error),
    }
}

/// Finishes the handshake that a ClientHello began.
async fn accept(
    config: Arc<ServerConfig>,
    deadline: Instant,
    stream: TcpStream,
    hello: Hello,
) -> io::Result<Secured> {
    let stream = Replay::new(stream, hello.raw);
    timeout_at(deadline, TlsAcceptor::from(config).accept(stream))
        .await
        .unwrap_or_else(|_elapsed| Err(late()))
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client took too long")
}

async fn say_unrecognized(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(&UNRECOGNIZED_NAME).await?;
    stream.shutdown().await
}
