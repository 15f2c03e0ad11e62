//! A body much larger than memory should be streams through, in a process of its own so that its size tells.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use gateway_daemon::{
    l7::{Proxy, Settings},
    model::{
        ListenerName,
        l7::{
            Action, AppProtocol, BackendRef, Bind, Listener, Match, PathMatch, Policy, Proxy as Model, Rule,
            RuleKind, Service, Target,
        },
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

const BODY: u64 = 256 << 20;
/// What the process may grow by while the body passes.
const BOUND: u64 = 64 << 20;

/// A value of `/proc/self/status`, in bytes.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap() << 10
}

fn model(address: SocketAddr, endpoint: SocketAddr) -> Arc<Model> {
    let target = Target::Endpoints { protocol: AppProtocol::Http, endpoints: vec![endpoint] };
    let backends = vec![BackendRef { name: "default/a:80".into(), weight: 1, target }];
    let service = Arc::new(Service { name: "a".into(), backends });
    let rule = Rule {
        name: "httproute.default.a.0".into(),
        kind: RuleKind::Http,
        hostnames: Vec::new(),
        matches: vec![Match {
            path: PathMatch::Prefix(String::new()),
            method: None,
            headers: Vec::new(),
            query: Vec::new(),
        }],
        filters: Vec::new(),
        backend_filters: Vec::new(),
        policy: Policy::default(),
        action: Action::Forward(Arc::clone(&service)),
    };
    let name = ListenerName { namespace: "a".into(), gateway: "b".into(), listener: "c".into() };
    let listener = Listener {
        name,
        hostname: None,
        certificates: Vec::new(),
        clients: None,
        rules: vec![rule],
        tunnels: None,
    };
    Arc::new(Model {
        binds: [(address, Bind { tls: false, listeners: vec![listener] })].into(),
        services: [("a".into(), service)].into(),
    })
}

/// Reads a head, then a body of [`BODY`] bytes; after that sends one as large.
async fn backend(listener: TcpListener) -> Result<Infallible, std::io::Error> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            skip_head(&mut stream).await;
            let mut sent = (&mut stream).take(BODY);
            tokio::io::copy(&mut sent, &mut tokio::io::sink()).await.unwrap();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {BODY}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            tokio::io::copy(&mut tokio::io::repeat(b'x').take(BODY), &mut stream).await.unwrap();
        });
    }
}

async fn skip_head(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
}

#[tokio::test]
async fn large_bodies_pass_in_little_memory() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap();
    tokio::spawn(backend(listener));
    let process = std::process::id() % 10_007;
    let address = SocketAddr::from(([127, 9, 9, 9], u16::try_from(20_000 + process).unwrap()));
    let proxy = Proxy::start(Settings { workers: 1, ..Settings::default() }).unwrap();
    assert!(proxy.publish(model(address, endpoint)).await.is_empty());
    let idle = memory("VmRSS:");

    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {BODY}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::io::copy(&mut tokio::io::repeat(b'x').take(BODY), &mut stream).await.unwrap();
    skip_head(&mut stream).await;
    let copied = tokio::io::copy(&mut (&mut stream).take(BODY), &mut tokio::io::sink()).await.unwrap();
    assert_eq!(copied, BODY);
    let grown = memory("VmHWM:").saturating_sub(idle);
    assert!(grown < BOUND, "grew by {} KiB", grown >> 10);
}
