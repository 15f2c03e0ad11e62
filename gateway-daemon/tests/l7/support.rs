//! Backends, clients and models for the tests of the proxy.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt::Write as _,
    future::Future,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU16, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use gateway_daemon::{
    l7::{Proxy, Settings},
    model::{
        ListenerName,
        l7::{
            Action, AppProtocol, BackendRef, Bind, Filter, Hostname, Listener, Match, PathMatch, Policy,
            Proxy as Model, Rule, RuleKind, Service, Target,
        },
    },
};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, combinators::BoxBody};
use hyper::{
    body::Incoming,
    client::conn::http2,
    server::conn::{http1 as server1, http2 as server2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// Whatever a test waits for comes within this, or never.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) type Body = BoxBody<Bytes, Infallible>;

/// An address of this process alone, so that no two tests meet.
pub(crate) fn address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let [high, low] = NEXT.fetch_add(1, Relaxed).to_be_bytes();
    let process = std::process::id();
    let second = u8::try_from(64 + process % 128).unwrap();
    let port = u16::try_from(20_000 + process % 10_007).unwrap();
    SocketAddr::from((Ipv4Addr::new(127, second, high, low.max(1)), port))
}

pub(crate) fn full(text: impl Into<Bytes>) -> Body {
    http_body_util::Full::new(text.into()).boxed()
}

pub(crate) fn empty() -> Body {
    http_body_util::Empty::new().boxed()
}

/// Waits for something that must come.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("in time")
}

/// Polls until a condition holds.
pub(crate) async fn eventually(mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    soon(wait).await;
}

/// A backend that counts its connections.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Backend {
    /// Hands every connection to `serve`.
    pub(crate) async fn raw<F, S>(serve: S) -> Self
    where
        S: Fn(TcpStream) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                count.fetch_add(1, Relaxed);
                tokio::spawn(serve(stream));
            }
        });
        Self { address, connections, task }
    }

    pub(crate) async fn http1<F, S>(answer: S) -> Self
    where
        S: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        Self::raw(move |stream| {
            let answer = answer.clone();
            async move {
                let service = service_fn(move |request| {
                    let answered = answer(request);
                    async move { Ok::<_, Infallible>(answered.await) }
                });
                let served = server1::Builder::new().serve_connection(TokioIo::new(stream), service);
                let _ = served.with_upgrades().await;
            }
        })
        .await
    }

    pub(crate) async fn http2<F, S>(answer: S) -> Self
    where
        S: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        Self::raw(move |stream| {
            let answer = answer.clone();
            async move {
                let service = service_fn(move |request| {
                    let answered = answer(request);
                    async move { Ok::<_, Infallible>(answered.await) }
                });
                let _ = server2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            }
        })
        .await
    }

    /// Answers every request with its name.
    pub(crate) async fn named(name: &'static str) -> Self {
        Self::http1(move |_request| async move { Response::new(full(name)) }).await
    }

    /// Answers with the request's head as text: the line, then the headers.
    pub(crate) async fn echo_head() -> Self {
        Self::http1(|request| async move { Response::new(full(head_text(&request))) }).await
    }

    /// Reads one head after the other and answers each with the same bytes.
    pub(crate) async fn canned(answer: &'static str) -> Self {
        Self::raw(move |mut stream| async move {
            while read_head(&mut stream).await.is_some() {
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        })
        .await
    }
}

pub(crate) fn head_text<B>(request: &Request<B>) -> String {
    let mut text = format!("{} {} {:?}\n", request.method(), request.uri(), request.version());
    for (name, value) in request.headers() {
        writeln!(text, "{name}: {}", value.to_str().unwrap()).unwrap();
    }
    text
}

/// The bytes up to the empty line, or none when the stream ends before.
pub(crate) async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

/// A response as bytes.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Raw {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        { lines }.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

/// Reads one response; its body by Content-Length, by chunks (which stay as they are), or not at all.
pub(crate) async fn read_response<S: AsyncRead + Unpin>(stream: &mut S) -> Raw {
    let head = soon(read_head(stream)).await.expect("a response");
    let mut raw = Raw { status: head[9..12].parse().unwrap(), head, body: String::new() };
    if let Some(length) = raw.header("content-length") {
        let mut body = vec![0; length.parse().unwrap()];
        soon(stream.read_exact(&mut body)).await.unwrap();
        raw.body = String::from_utf8(body).unwrap();
    } else if raw.header("transfer-encoding").is_some() {
        let mut body = Vec::new();
        while !body.ends_with(b"\r\n\r\n") {
            body.push(soon(stream.read_u8()).await.unwrap());
        }
        raw.body = String::from_utf8(body).unwrap();
    }
    raw
}

pub(crate) async fn connect(address: SocketAddr) -> TcpStream {
    let stream = soon(TcpStream::connect(address)).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends bytes on a new connection and reads one response.
pub(crate) async fn exchange(address: SocketAddr, request: &str) -> Raw {
    let mut stream = connect(address).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    read_response(&mut stream).await
}

pub(crate) async fn get(address: SocketAddr, host: &str, path: &str) -> Raw {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n")).await
}

/// A client of HTTP/2 by prior knowledge, or over a stream that has agreed on it.
pub(crate) async fn http2_over<S>(stream: S) -> http2::SendRequest<Body>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (client, connection) =
        http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) async fn http2(address: SocketAddr) -> http2::SendRequest<Body> {
    http2_over(connect(address).await).await
}

/// Reads a response to its end.
pub(crate) async fn collect(
    response: Response<Incoming>,
) -> (http::response::Parts, String, Option<HeaderMap>) {
    let (parts, body) = response.into_parts();
    let collected = soon(body.collect()).await.unwrap();
    let trailers = collected.trailers().cloned();
    (parts, String::from_utf8(collected.to_bytes().to_vec()).unwrap(), trailers)
}

pub(crate) fn grpc_request(address: SocketAddr, path: &str, body: Body) -> Request<Body> {
    Request::post(format!("http://{address}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .unwrap()
}

// === models ===

pub(crate) fn path_prefix(prefix: &str) -> Match {
    matching(PathMatch::Prefix(prefix.trim_end_matches('/').into()))
}

pub(crate) fn matching(path: PathMatch) -> Match {
    Match { path, method: None, headers: Vec::new(), query: Vec::new() }
}

pub(crate) fn service(name: &str, backends: Vec<BackendRef>) -> Arc<Service> {
    Arc::new(Service { name: name.into(), backends })
}

pub(crate) fn backend_ref(
    name: &str,
    weight: u32,
    protocol: AppProtocol,
    endpoints: &[SocketAddr],
) -> BackendRef {
    let target = Target::Endpoints { protocol, endpoints: endpoints.to_vec() };
    BackendRef { name: name.into(), weight, target }
}

/// A service with one backend of protocol HTTP.
pub(crate) fn to(backend: &Backend) -> Action {
    to_endpoints(AppProtocol::Http, &[backend.address])
}

pub(crate) fn to_endpoints(protocol: AppProtocol, endpoints: &[SocketAddr]) -> Action {
    let name = format!("httproute.default.{endpoints:?}.{protocol:?}");
    Action::Forward(service(&name, vec![backend_ref("default/a:80", 1, protocol, endpoints)]))
}

pub(crate) fn rule(matches: Vec<Match>, action: Action) -> Rule {
    let name = "httproute.default.test.0".into();
    Rule {
        name,
        kind: RuleKind::Http,
        hostnames: Vec::new(),
        matches,
        filters: Vec::new(),
        backend_filters: Vec::new(),
        policy: Policy::default(),
        action,
    }
}

pub(crate) fn with_filters(filters: Vec<Filter>, rule: Rule) -> Rule {
    Rule { filters, ..rule }
}

pub(crate) fn grpc(rule: Rule) -> Rule {
    Rule { kind: RuleKind::Grpc, ..rule }
}

pub(crate) fn listener(hostname: Option<Hostname>, rules: Vec<Rule>) -> Listener {
    let name = ListenerName {
        namespace: "default".into(),
        gateway: "gateway".into(),
        listener: hostname.as_ref().map_or_else(|| "any".into(), ToString::to_string),
    };
    Listener { name, hostname, certificates: Vec::new(), clients: None, rules, tunnels: None }
}

/// A model with the services of its rules.
pub(crate) fn model(binds: Vec<(SocketAddr, Bind)>) -> Arc<Model> {
    let binds: BTreeMap<_, _> = binds.into_iter().collect();
    let mut services = BTreeMap::new();
    for rule in binds.values().flat_map(|bind| &bind.listeners).flat_map(|listener| &listener.rules) {
        if let Action::Forward(service) = &rule.action {
            services.insert(service.name.clone(), Arc::clone(service));
        }
    }
    Arc::new(Model { binds, services })
}

/// A plain bind with one listener for every host.
pub(crate) fn plain(address: SocketAddr, rules: Vec<Rule>) -> Arc<Model> {
    model(vec![(address, Bind { tls: false, listeners: vec![listener(None, rules)] })])
}

pub(crate) fn settings() -> Settings {
    Settings { workers: 1, ..Settings::default() }
}

/// A proxy that serves a model.
pub(crate) async fn serving(settings: Settings, model: Arc<Model>) -> Proxy {
    let proxy = Proxy::start(settings).unwrap();
    let faults = soon(proxy.publish(model)).await;
    assert!(faults.is_empty(), "{faults:?}");
    proxy
}

/// A proxy with one rule for everything, and its address.
pub(crate) async fn forwarding(action: Action) -> (Proxy, SocketAddr) {
    let address = address();
    let rules = vec![rule(vec![path_prefix("/")], action)];
    (serving(settings(), plain(address, rules)).await, address)
}
