//! The command's end of the control socket.

use std::path::Path;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use super::socket_path;

/// Asks the daemon of this state directory for its report, as JSON.
///
/// # Errors
/// When no daemon answers there.
pub async fn fetch(state_dir: &Path) -> anyhow::Result<Bytes> {
    let path = socket_path(state_dir);
    let stream = UnixStream::connect(&path).await.with_context(|| {
        format!("no daemon answers on {}; is gatewayd running with this --state-dir?", path.display())
    })?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async {
        let request = Request::get("/status").header(header::HOST, "gatewayd").body(Empty::<Bytes>::new())?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "the daemon answered {status}");
        anyhow::Ok(body)
    };
    let (body, _closed) = tokio::join!(exchange, connection);
    body.context("ask the daemon for its status")
}
