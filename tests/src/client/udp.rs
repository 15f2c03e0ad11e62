//! New UDP flows to a backend of kind [`crate::backend::Serve::Udp`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::net::UdpSocket;

use super::{Seen, many, patiently};
use crate::netns::Netns;
use crate::pattern;

/// Below the ports that the kernel gives out: flows are new only if no earlier one used the port.
const PORTS: Range<u16> = 2_000..32_000;

/// Sends one datagram of `length` bytes in each of `count` new flows, and has it sent back.
///
/// # Errors
/// When an answer does not come or is not what was sent.
pub fn flows(client: &Netns, to: SocketAddr, count: u32, length: usize) -> Result<Seen> {
    client.block_on(|| many(count, move |_| flow(to, length)))
}

/// One flow, and the name of the backend it reached. For a future that already runs inside the client.
///
/// # Errors
/// As [`flows`].
pub async fn flow(to: SocketAddr, length: usize) -> Result<String> {
    let socket = bind(to.ip()).await?;
    socket.connect(to).await.context("connect")?;
    let sent = pattern::at(0, length);
    socket.send(&sent).await.context("send")?;
    let mut buffer = vec![0; 65_536];
    let received = patiently("receive", async { Ok(socket.recv(&mut buffer).await?) }).await?;
    let answer = &buffer[..received];
    let colon = answer.iter().position(|byte| *byte == b':').context("the answer names no backend")?;
    ensure!(answer[colon + 1..] == sent, "the answer is not what was sent");
    String::from_utf8(answer[..colon].to_vec()).context("read the backend's name")
}

/// A socket at a port that no earlier flow of this process has used, until all have been.
async fn bind(like: IpAddr) -> Result<UdpSocket> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let any = if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { IpAddr::from(Ipv6Addr::UNSPECIFIED) };
    for _ in PORTS {
        let port = PORTS.start + NEXT.fetch_add(1, Ordering::Relaxed) % (PORTS.end - PORTS.start);
        if let Ok(socket) = UdpSocket::bind((any, port)).await {
            return Ok(socket);
        }
    }
    bail!("no UDP port is free")
}
