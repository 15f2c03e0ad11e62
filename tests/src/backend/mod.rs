//! Backends that say who they are: TCP, UDP, HTTP and gRPC, each a task of one thread inside a namespace.

mod grpc;
mod http;
mod stream;

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::thread;

use anyhow::{Context as _, Result};
use rustls::ServerConfig;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::oneshot;

pub use grpc::{METADATA, Said};

use crate::netns::{self, Netns};

/// Connections that may wait to be accepted: tests open thousands at once.
const BACKLOG: i32 = 4096;

/// What a backend serves, each on a port of all its addresses.
#[derive(Clone)]
pub enum Serve {
    /// Says its name in a line, then sends back what it gets until the client is done.
    Tcp(u16),
    /// Answers each datagram with its name, a colon and what it got.
    Udp(u16),
    /// HTTP/1.1, h2c by prior knowledge, and gRPC.
    Http(u16),
    /// The same over TLS.
    Https(u16, Arc<ServerConfig>),
}

impl fmt::Debug for Serve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(port) => write!(f, "Tcp({port})"),
            Self::Udp(port) => write!(f, "Udp({port})"),
            Self::Http(port) => write!(f, "Http({port})"),
            Self::Https(port, _) => write!(f, "Https({port})"),
        }
    }
}

/// A backend that serves until it is dropped.
#[derive(Debug)]
pub struct Backend {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Backend {
    /// Starts serving inside `netns`, under `name`. All sockets are open when this returns.
    ///
    /// # Errors
    /// When a port is taken.
    pub fn start(netns: &Netns, name: &str, serve: &[Serve]) -> Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (ready, wait_ready) = mpsc::channel();
        let (name, serve) = (Arc::<str>::from(name), serve.to_vec());
        let thread = netns.spawn(move || {
            netns::runtime().block_on(async move {
                let opened = serve.into_iter().try_for_each(|one| start(Arc::clone(&name), one));
                let failed = opened.is_err();
                // The starter is waiting for exactly this one message.
                ready.send(opened).expect("the starter waits");
                if !failed {
                    // An error is the sender's drop, which means the same.
                    let (Ok(()) | Err(_)) = stopped.await;
                }
            });
        })?;
        let backend = Self { stop: Some(stop), thread: Some(thread) };
        wait_ready.recv().context("a backend died at its start")??;
        Ok(backend)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("a backend panicked");
        }
    }
}

/// Opens what `serve` names and serves it by a task of the current runtime.
fn start(name: Arc<str>, serve: Serve) -> Result<()> {
    match serve {
        Serve::Tcp(port) => {
            let listener = listen(port)?;
            tokio::spawn(async move {
                while let Ok((connection, _)) = listener.accept().await {
                    tokio::spawn(stream::echo(connection, Arc::clone(&name)));
                }
            });
        }
        Serve::Udp(port) => {
            let socket = socket(port, Type::DGRAM, Protocol::UDP)?;
            let socket = UdpSocket::from_std(socket.into()).context("use a UDP socket")?;
            tokio::spawn(stream::datagrams(socket, name));
        }
        Serve::Http(port) => {
            let listener = listen(port)?;
            tokio::spawn(async move {
                while let Ok((connection, remote)) = accept(&listener).await {
                    tokio::spawn(http::serve(connection, remote, Arc::clone(&name)));
                }
            });
        }
        Serve::Https(port, config) => {
            let listener = listen(port)?;
            let acceptor = tokio_rustls::TlsAcceptor::from(config);
            tokio::spawn(async move {
                while let Ok((connection, remote)) = accept(&listener).await {
                    let (acceptor, name) = (acceptor.clone(), Arc::clone(&name));
                    tokio::spawn(async move {
                        if let Ok(connection) = acceptor.accept(connection).await {
                            http::serve(connection, remote, name).await;
                        }
                    });
                }
            });
        }
    }
    Ok(())
}

/// Accepts a connection that sends small frames at once: the two that answer a call must not wait for each other's
/// acknowledgement.
async fn accept(listener: &TcpListener) -> std::io::Result<(TcpStream, SocketAddr)> {
    let (connection, remote) = listener.accept().await?;
    connection.set_nodelay(true)?;
    Ok((connection, remote))
}

fn listen(port: u16) -> Result<TcpListener> {
    let socket = socket(port, Type::STREAM, Protocol::TCP)?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into()).context("use a TCP socket")
}

/// A socket for both families at `port`.
fn socket(port: u16, kind: Type, protocol: Protocol) -> Result<Socket> {
    let socket = Socket::new(Domain::IPV6, kind, Some(protocol))?;
    socket.set_only_v6(false)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    socket.bind(&address.into()).with_context(|| format!("bind port {port}"))?;
    Ok(socket)
}
