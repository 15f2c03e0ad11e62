//! Between a client and the API server: passes everything on, until it is told to be ill.
//!
//! Plain HTTP, for one client each: what that client writes is kept, with the time and the API server's answer.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc as std_mpsc};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;

use super::access;
use crate::netns::{self, Netns};

/// What is wrong with the API server, as its client sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// Nothing.
    None,
    /// A watch that begins is answered 410; those that run end.
    Gone,
    /// Every watch, those that run too, hears that its version is too old.
    Expired,
    /// Everything is answered with this status; watches that run end.
    Answers(u16),
    /// Everything is answered with bytes that mean nothing, watches that run hear them.
    Garbage,
    /// Every watch ends as soon as it begins.
    EndsWatches,
    /// Nothing is answered, and watches that run hear nothing, until the fault is over: then all that was held back
    /// comes at once.
    Hangs,
}

/// A request that was not a read.
#[derive(Clone, Debug)]
pub struct Write {
    /// Method and path.
    pub request: String,
    /// What the API server said.
    pub status: StatusCode,
    /// When it came.
    pub at: Instant,
}

/// A proxy that serves until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    /// A kubeconfig by which it is reached from the node and from pods.
    pub kubeconfig: PathBuf,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    fault: watch::Sender<Fault>,
    /// How often the client met a fault.
    met: watch::Sender<u64>,
    writes: Mutex<Vec<Write>>,
}

type Body = UnsyncBoxBody<Bytes, anyhow::Error>;

impl Proxy {
    /// Starts to serve on all addresses of `node`, and writes `kubeconfig`, which names `address`.
    ///
    /// # Errors
    /// When `upstream` is no kubeconfig, or the new one cannot be written.
    pub fn start(node: &Netns, address: Ipv4Addr, upstream: &Path, kubeconfig: PathBuf) -> Result<Self> {
        let shared = Arc::new(Shared {
            fault: watch::channel(Fault::None).0,
            met: watch::channel(0).0,
            writes: Mutex::default(),
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, wait_ready) = std_mpsc::channel();
        let (upstream, serving) = (upstream.to_owned(), Arc::clone(&shared));
        let thread = node.spawn(move || {
            netns::runtime().block_on(async move {
                match listen(&upstream).await {
                    Ok((listener, client)) => {
                        // The starter is waiting for exactly this one message.
                        ready.send(listener.local_addr().context("a port")).expect("the starter waits");
                        tokio::select! {
                            () = serve(listener, client, serving) => {}
                            _ = stopped => {}
                        }
                    }
                    Err(error) => ready.send(Err(error)).expect("the starter waits"),
                }
            });
        })?;
        let port = wait_ready.recv().context("a proxy died at its start")??.port();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": format!("http://{address}:{port}")}}],
            "users": [{"name": "anybody", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "anybody"}}],
        });
        std::fs::write(&kubeconfig, config.to_string()).context("write a kubeconfig")?;
        Ok(Self { kubeconfig, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Makes the API server ill in this way from now on, or well again.
    pub fn set(&self, fault: Fault) {
        self.shared.fault.send_replace(fault);
    }

    /// How often its client has met a fault.
    pub fn faults_met(&self) -> u64 {
        *self.shared.met.borrow()
    }

    /// Everything that was asked for and was not a read, but for the Leases by which nodes tell that they live.
    pub fn writes(&self) -> Vec<Write> {
        let writes = self.shared.writes.lock().unwrap_or_else(PoisonError::into_inner);
        writes.iter().filter(|write| !write.request.contains("/leases")).cloned().collect()
    }

    /// Those of [`writes`](Self::writes) that only the one writer of statuses may do: not what a node says of itself.
    pub fn status_writes(&self) -> Vec<Write> {
        self.writes().into_iter().filter(|write| !write.request.contains("/gatewaynodes")).collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            eprintln!("a proxy panicked");
        }
    }
}

async fn listen(upstream: &Path) -> Result<(TcpListener, Client)> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    Ok((TcpListener::bind(address).await.context("listen")?, access::client(upstream).await?))
}

async fn serve(listener: TcpListener, client: Client, shared: Arc<Shared>) {
    while let Ok((connection, _)) = listener.accept().await {
        let (client, shared) = (client.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, &client, &shared));
            // An API server that cannot be asked is one that closes connections.
            let _closed = http1::Builder::new().serve_connection(TokioIo::new(connection), service).await;
        });
    }
}

async fn answer(request: Request<Incoming>, client: &Client, shared: &Arc<Shared>) -> Result<Response<Body>> {
    let query = request.uri().query().unwrap_or_default();
    let is_watch = query.split('&').any(|part| part == "watch=true" || part == "watch=1");
    let mut fault = shared.fault.subscribe();
    let now = *fault.borrow_and_update();
    if let Some(instead) = instead(now, is_watch) {
        shared.met.send_modify(|met| *met += 1);
        match instead {
            Instead::Answer(status, body) => return Ok(whole(status, body)),
            Instead::Wait => drop(fault.wait_for(|fault| *fault != Fault::Hangs).await),
        }
    }
    let what = (request.method().clone(), request.uri().path().to_owned());
    let (mut head, body) = request.into_parts();
    for name in [header::HOST, header::CONNECTION, header::ACCEPT_ENCODING] {
        head.headers.remove(name);
    }
    let body = body.collect().await?.to_bytes();
    let response = client.send(Request::from_parts(head, body.into())).await?;
    if what.0 != Method::GET {
        let request = format!("{} {}", what.0, what.1);
        let write = Write { request, status: response.status(), at: Instant::now() };
        shared.writes.lock().unwrap_or_else(PoisonError::into_inner).push(write);
    }
    let (mut head, body) = response.into_parts();
    for name in [header::CONNECTION, header::TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    if !is_watch || !head.status.is_success() {
        let body = Full::new(body.collect().await?.to_bytes());
        return Ok(Response::from_parts(head, boxed(body)));
    }
    let (say, said) = mpsc::channel(1);
    tokio::spawn(pass_on(body, fault, say));
    let body = StreamBody::new(ReceiverStream::new(said));
    Ok(Response::from_parts(head, body.boxed_unsync()))
}

enum Instead {
    Answer(u16, String),
    Wait,
}

/// What a request gets that begins while there is a fault.
fn instead(fault: Fault, is_watch: bool) -> Option<Instead> {
    match fault {
        Fault::Gone if is_watch => Some(Instead::Answer(410, status(410))),
        Fault::Expired if is_watch => Some(Instead::Answer(200, expired())),
        Fault::EndsWatches if is_watch => Some(Instead::Answer(200, String::new())),
        Fault::None | Fault::Gone | Fault::Expired | Fault::EndsWatches => None,
        Fault::Answers(code) => Some(Instead::Answer(code, status(code))),
        Fault::Garbage => Some(Instead::Answer(200, GARBAGE.to_owned())),
        Fault::Hangs => Some(Instead::Wait),
    }
}

const GARBAGE: &str = "\u{1}{\"type\": \"ADDED\", \"object\": [\n";

fn status(code: u16) -> String {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "message": "a test makes it so", "reason": "Test"})
    .to_string()
}

fn expired() -> String {
    format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status(410))
}

fn whole(status: u16, body: String) -> Response<Body> {
    let mut response = Response::new(boxed(Full::new(body.into())));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status of this file");
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn boxed(body: Full<Bytes>) -> Body {
    body.map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// Passes a watch on, as long as there is no fault.
async fn pass_on(
    mut body: kube::client::Body,
    mut fault: watch::Receiver<Fault>,
    say: mpsc::Sender<Result<Frame<Bytes>>>,
) {
    loop {
        let last_words = match *fault.borrow_and_update() {
            Fault::None | Fault::Hangs => None,
            Fault::Expired => Some(expired()),
            Fault::Garbage => Some(GARBAGE.to_owned()),
            Fault::Gone | Fault::EndsWatches | Fault::Answers(_) => Some(String::new()),
        };
        if let Some(last) = last_words {
            // Whoever listens may be gone.
            let _ = say.send(Ok(Frame::data(last.into()))).await;
            return;
        }
        let hangs = *fault.borrow() == Fault::Hangs;
        tokio::select! {
            Ok(()) = fault.changed() => {}
            () = say.closed() => return,
            frame = body.frame(), if !hangs => {
                let Some(frame) = frame else { return };
                if say.send(frame.map_err(anyhow::Error::new)).await.is_err() {
                    return;
                }
            }
        }
    }
}
