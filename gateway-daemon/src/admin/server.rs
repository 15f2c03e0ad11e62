//! The daemon's end of the control socket.

use std::{
    convert::Infallible,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{mpsc, oneshot},
};

use super::{Report, is_running, socket_path};

/// Where a request for a report goes: to the writer task, which sends it through the channel that comes along.
pub type ReportRequests = mpsc::Sender<oneshot::Sender<Report>>;

/// Why the control socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Another daemon answers there.
    #[error("another gatewayd is running with state directory {}; stop it, or give this one its own --state-dir", .0.display())]
    InUse(PathBuf),
    /// The socket cannot be made.
    #[error("open the control socket {}", path.display())]
    Open {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The open control socket.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
}

impl Server {
    /// Opens the socket, replacing the one that a dead daemon left.
    ///
    /// # Errors
    /// When another daemon answers on it, or the file system refuses.
    pub async fn open(state_dir: &Path) -> Result<Self, ServerError> {
        let path = socket_path(state_dir);
        if is_running(state_dir).await {
            return Err(ServerError::InUse(state_dir.to_owned()));
        }
        let open = |path: &Path| {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => (),
            }
            let listener = UnixListener::bind(path)?;
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
            Ok(listener)
        };
        let listener = open(&path).map_err(|source| ServerError::Open { path, source })?;
        Ok(Self { listener })
    }

    /// Answers requests until dropped; `reports` asks the writer task.
    pub async fn serve(self, reports: ReportRequests) {
        loop {
            match self.listener.accept().await {
                // One request a connection, from root: the next one can wait for it.
                Ok((stream, _)) => serve_connection(stream, &reports).await,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept on the control socket");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn serve_connection(stream: UnixStream, reports: &ReportRequests) {
    let service =
        service_fn(async |request: Request<Incoming>| Ok::<_, Infallible>(answer(&request, reports).await));
    let mut http = hyper::server::conn::http1::Builder::new();
    let connection = http.keep_alive(false).serve_connection(TokioIo::new(stream), service);
    // A client that connects and says nothing must not keep the next one waiting.
    match tokio::time::timeout(Duration::from_secs(10), connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "control connection ended early"),
        Err(_) => tracing::debug!("control connection timed out"),
    }
}

async fn answer(request: &Request<Incoming>, reports: &ReportRequests) -> Response<Full<Bytes>> {
    if (request.method(), request.uri().path()) != (&Method::GET, "/status") {
        return respond(StatusCode::NOT_FOUND, "text/plain", b"only GET /status is here\n".to_vec());
    }
    let (sender, receiver) = oneshot::channel();
    let report = match reports.send(sender).await {
        Ok(()) => receiver.await.ok(),
        Err(_) => None,
    };
    match report.map(|report| serde_json::to_vec(&report)) {
        Some(Ok(json)) => respond(StatusCode::OK, "application/json", json),
        Some(Err(error)) => {
            respond(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", format!("{error}\n").into())
        }
        None => respond(StatusCode::SERVICE_UNAVAILABLE, "text/plain", b"the daemon is stopping\n".to_vec()),
    }
}

fn respond(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}
