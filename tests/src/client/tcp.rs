//! New TCP connections to a backend of kind [`crate::backend::Serve::Tcp`].

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::{Seen, many, patiently};
use crate::netns::Netns;
use crate::pattern::{self, Check};

/// Opens `count` connections from `client` to `to`, sends `length` bytes over each and has them sent back.
///
/// # Errors
/// When one of them is refused, stalls, or returns another byte than was sent.
pub fn connections(client: &Netns, to: SocketAddr, count: u32, length: u64) -> Result<Seen> {
    client.block_on(|| many(count, move |_| connection(to, length)))
}

/// One connection, and the name of the backend it reached. For a future that already runs inside the client.
///
/// # Errors
/// As [`connections`].
pub async fn connection(to: SocketAddr, length: u64) -> Result<String> {
    let stream = patiently("connect", async { Ok(TcpStream::connect(to).await?) }).await?;
    let (from, mut into) = stream.into_split();
    let mut from = BufReader::with_capacity(65_536, from);
    let mut name = String::new();
    patiently("read the backend's name", async { Ok(from.read_line(&mut name).await?) }).await?;
    ensure!(name.ends_with('\n'), "closed before the backend said its name");
    let send = async {
        let mut sent = 0;
        while sent < length {
            let most = usize::try_from(length - sent).unwrap_or(usize::MAX);
            let chunk = pattern::at(sent, most);
            patiently("send", async { Ok(into.write_all(&chunk).await?) }).await?;
            sent += chunk.len() as u64;
        }
        into.shutdown().await.context("close our side")
    };
    let receive = async {
        let mut check = Check::default();
        let mut buffer = vec![0; 65_536];
        loop {
            match patiently("receive", async { Ok(from.read(&mut buffer).await?) }).await? {
                0 => return Ok(check.position),
                length => check.take(&buffer[..length])?,
            }
        }
    };
    let ((), received) = tokio::try_join!(send, receive)?;
    ensure!(received == length, "{received} of {length} bytes came back");
    Ok(name.trim_end().to_owned())
}
