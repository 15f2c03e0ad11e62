//! TCP and UDP: a name, then an echo.

use std::sync::Arc;

use tokio::io::{self, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

/// Says `name` in a line, sends back what comes, and closes when the client has.
pub(super) async fn echo(mut connection: TcpStream, name: Arc<str>) {
    let (mut from, mut to) = connection.split();
    // A client that goes away in the middle is its own affair: it knows what it has not got.
    if to.write_all(format!("{name}\n").as_bytes()).await.is_ok()
        && io::copy(&mut from, &mut to).await.is_ok()
    {
        let _gone = to.shutdown().await;
    }
}

/// Answers every datagram with `name:` and its content.
pub(super) async fn datagrams(socket: UdpSocket, name: Arc<str>) {
    let mut buffer = vec![0; 65_536];
    loop {
        // An error here is an ICMP message about an earlier answer; the next datagram is none the worse.
        if let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let answer = [name.as_bytes(), b":", &buffer[..length]].concat();
            let _unreachable = socket.send_to(&answer, from).await;
        }
    }
}
