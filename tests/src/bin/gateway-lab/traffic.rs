//! The traffic that shows the shares: enough of it that a wrong table would be seen.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use gateway_tests::backend::Said;
use gateway_tests::client::http::{Connection, Protocol};
use gateway_tests::client::{Seen, grpc, tcp, udp};
use gateway_tests::netns::Netns;
use gateway_tests::topology::Lab;

use crate::asked::{Asked, Kind};

/// The backends' gRPC service.
pub(crate) const GRPC_SERVICE: &str = "gatewayd.lab.Echo";

/// New connections, or datagrams of new flows.
const CONNECTIONS: u32 = 2_000;
/// Bytes that each of them sends and gets back.
const LENGTH: usize = 1_000;
/// Requests and calls, over [`L7_CONNECTIONS`].
const REQUESTS: u32 = 1_000;
const L7_CONNECTIONS: u32 = 10;

/// Sends traffic to one rule and counts which backend answered.
///
/// # Errors
/// When any of it fails.
pub(crate) fn send(lab: &Lab, asked: &Asked) -> Result<Seen> {
    let to = SocketAddr::new(asked.address, asked.port);
    let seen = match asked.kind {
        Kind::Tcp => tcp::connections(lab.client(), to, CONNECTIONS, LENGTH as u64),
        Kind::Udp => udp::flows(lab.client(), to, CONNECTIONS, LENGTH),
        Kind::Http => requests(lab.client(), to, asked),
        Kind::Grpc => calls(lab.client(), to, asked),
    };
    seen.with_context(|| format!("{:?} to {to}", asked.kind))
}

fn requests(client: &Netns, to: SocketAddr, asked: &Asked) -> Result<Seen> {
    let uri = format!("http://{}{}", asked.hostname, asked.path);
    client.block_on(|| async {
        let mut seen = Seen::new();
        for number in 0..L7_CONNECTIONS {
            let protocol = if number % 2 == 0 { Protocol::Http1 } else { Protocol::H2c };
            let mut connection = Connection::open(to, &protocol).await?;
            for _ in 0..REQUESTS / L7_CONNECTIONS {
                let answer = connection.get(&uri).await?;
                ensure!(answer.status.is_success(), "{uri}: {}", answer.status);
                *seen.entry(answer.report()?.backend).or_default() += 1;
            }
        }
        Ok(seen)
    })
}

fn calls(client: &Netns, to: SocketAddr, asked: &Asked) -> Result<Seen> {
    client.block_on(|| async {
        let mut seen = Seen::new();
        for _ in 0..L7_CONNECTIONS {
            let mut client = grpc::Client::connect(to, &asked.hostname, GRPC_SERVICE).await?;
            for _ in 0..REQUESTS / L7_CONNECTIONS {
                let answer = client.unary("Unary", Said::default()).await.context("gRPC call")?;
                *seen.entry(answer.backend).or_default() += 1;
            }
        }
        Ok(seen)
    })
}
