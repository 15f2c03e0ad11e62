//! Listening sockets: opened before they are needed, one for each worker, and accept loops.

use std::{
    io,
    net::{SocketAddr, TcpListener as StdListener},
    sync::Arc,
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::{net::TcpListener, time::sleep};
use tokio_util::sync::CancellationToken;

use super::worker::Worker;

/// Connections that wait for a worker.
const BACKLOG: i32 = 4_096;
/// After so long without a byte the kernel asks whether the peer lives.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Between two such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Pause after the process ran out of something, so that an accept that cannot succeed does not spin.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);

/// Opens one socket for each worker, all on `address`.
///
/// With `probe`, first tries to have the address alone: sharing it with another process by mistake would split the
/// traffic between the two.
///
/// # Errors
/// The address is in use or may not be used.
pub(crate) fn open(address: SocketAddr, workers: usize, probe: bool) -> io::Result<Vec<StdListener>> {
    if probe {
        let socket = bound(address, false)?;
        // Two that bind may both succeed; only one of them may listen.
        socket.listen(1)?;
    }
    (0..workers)
        .map(|_| {
            let socket = bound(address, true)?;
            socket.listen(BACKLOG)?;
            Ok(StdListener::from(socket))
        })
        .collect()
}

fn bound(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Connections of a listener that was there before may still be closing.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    // Accepted connections inherit these: small responses must not wait for the acknowledgement of earlier ones, and
    // a peer that is gone without a word is noticed.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_INTERVAL))?;
    // Addresses of Gateways come and go on their own time.
    match address {
        SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
        SocketAddr::V6(_) => {
            socket.set_only_v6(true)?;
            socket.set_freebind_v6(true)?;
        }
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Accepts until told to stop, and then what is already waiting.
///
/// Awaits nothing but the socket. `drain` ends the connections it made, `stop` only the accepting.
pub(crate) async fn accept(
    worker: Arc<Worker>,
    listener: TcpListener,
    bind: SocketAddr,
    stop: CancellationToken,
    drain: CancellationToken,
) {
    let stopped = stop.cancelled_owned();
    let mut stopped = std::pin::pin!(stopped);
    loop {
        tokio::select! {
            biased;
            () = stopped.as_mut() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => worker.admit(stream, peer, bind, &drain),
                Err(error) if is_exhaustion(&error) => {
                    tracing::warn!(%bind, %error, "cannot accept");
                    sleep(EXHAUSTED_PAUSE).await;
                }
                // The client was gone before we came.
                Err(_) => {}
            }
        }
    }
    // Closing the socket would reset these.
    let waiting = std::future::poll_fn(|context| {
        while let std::task::Poll::Ready(Ok((stream, peer))) = listener.poll_accept(context) {
            worker.admit(stream, peer, bind, &drain);
        }
        std::task::Poll::Ready(())
    });
    waiting.await;
}

fn is_exhaustion(error: &io::Error) -> bool {
    let exhausted = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| exhausted.contains(&code))
}
