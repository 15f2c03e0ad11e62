//! `--metrics-address`: what a scraper and a kubelet ask for, over HTTP/1.1.
//!
//! Runs on the control runtime: however often it is asked, no request that is proxied waits for it.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc, oneshot, watch},
    time::timeout,
};

use super::{
    counts::Counts,
    metrics::{Exposition, Metrics},
};

/// Connections at a time.
const CONNECTIONS: usize = 16;
/// How long a connection may be open: a scraper comes again.
const CONNECTION_MAX: Duration = Duration::from_secs(60);
/// How long the writer task may take to tell its counts; it may be in the middle of a large change.
const PATIENCE: Duration = Duration::from_secs(8);

/// Where a request for counts goes: to the writer task, which sends them through the channel that comes along.
pub type CountRequests = mpsc::Sender<oneshot::Sender<Counts>>;

/// The open socket.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
}

/// What requests are answered from.
#[derive(Clone, Debug)]
pub struct Sources {
    /// What is measured.
    pub metrics: Arc<Metrics>,
    /// Asks the writer task.
    pub counts: CountRequests,
    /// Whether this node writes statuses, if any node does.
    pub leads: Option<watch::Receiver<bool>>,
}

impl Server {
    /// Opens the socket.
    ///
    /// # Errors
    /// When the address is not this node's, or its port is taken.
    pub async fn open(address: SocketAddr) -> std::io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address).await? })
    }

    /// Answers requests until dropped.
    pub async fn serve(self, sources: Sources) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            // The semaphore is never closed.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let sources = sources.clone();
                    tokio::spawn(async move {
                        serve_connection(stream, &sources).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept on the metrics address");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, sources: &Sources) {
    let service =
        service_fn(async |request: Request<Incoming>| Ok::<_, Infallible>(answer(&request, sources).await));
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(10));
    let connection = http.serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = timeout(CONNECTION_MAX, connection).await {
        tracing::debug!(%error, "a connection to the metrics address ended early");
    }
}

async fn answer(request: &Request<Incoming>, sources: &Sources) -> Response<Full<Bytes>> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD are answered\n");
    }
    match request.uri().path() {
        "/healthz" => respond(StatusCode::OK, TEXT, "ok\n"),
        "/readyz" if sources.metrics.is_ready() => respond(StatusCode::OK, TEXT, "ready\n"),
        "/readyz" => respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, "not serving\n"),
        "/metrics" => metrics(request, sources).await,
        _ => respond(StatusCode::NOT_FOUND, TEXT, "/metrics, /healthz and /readyz are here\n"),
    }
}

async fn metrics(request: &Request<Incoming>, sources: &Sources) -> Response<Full<Bytes>> {
    let accepted = request.headers().get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let open_metrics = accepted.into_iter().any(|value| value.contains("application/openmetrics-text"));
    let (exposition, content_type) =
        if open_metrics { (Exposition::OpenMetrics, OPEN_METRICS) } else { (Exposition::Text, PROMETHEUS) };
    let (sender, counts) = oneshot::channel();
    let told = timeout(PATIENCE, async {
        sources.counts.send(sender).await.ok()?;
        counts.await.ok()
    });
    let Ok(Some(counts)) = told.await else {
        return respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, "the daemon is busy or stopping\n");
    };
    if let Some(leads) = &sources.leads {
        sources.metrics.kubernetes.set_leader(*leads.borrow());
    }
    match sources.metrics.expose(counts, exposition) {
        Ok(text) => respond(StatusCode::OK, content_type, text),
        Err(error) => respond(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
    }
}

const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn respond(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}
