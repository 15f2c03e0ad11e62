//! Tunnels: connections of TLSRoutes, by server name.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use gateway_daemon::{
    l7::{Proxy, Settings},
    model::l7::{
        AppProtocol, BackendRef, Bind, Hostname, Listener, Proxy as Model, Target, TunnelRoute, Tunnels,
    },
};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    support::*,
    tls::{certificate, handshake, secured, shown},
};

fn exact(name: &str) -> Hostname {
    Hostname::Exact(name.into())
}

fn wildcard(suffix: &str) -> Hostname {
    Hostname::Wildcard(suffix.into())
}

fn to_backend(weight: u32, endpoints: &[SocketAddr]) -> BackendRef {
    backend_ref(&format!("default/{endpoints:?}:1"), weight, AppProtocol::Http, endpoints)
}

fn invalid(weight: u32) -> BackendRef {
    BackendRef { name: "default/nowhere:1".into(), weight, target: Target::Invalid("nowhere".into()) }
}

fn tunnel(hostnames: &[Hostname], backends: Vec<BackendRef>) -> TunnelRoute {
    let name = format!("tlsroute.default.{hostnames:?}.0");
    TunnelRoute { hostnames: hostnames.to_vec(), service: service(&name, backends) }
}

fn listener_of(hostname: Option<Hostname>, terminate: bool, routes: Vec<TunnelRoute>) -> Listener {
    Listener { tunnels: Some(Tunnels { terminate, routes }), ..listener(hostname, Vec::new()) }
}

/// A model with the services of its tunnels.
fn tunnels(address: SocketAddr, listeners: Vec<Listener>) -> Arc<Model> {
    let routes = listeners.iter().filter_map(|listener| listener.tunnels.as_ref()).flat_map(|it| &it.routes);
    let services = routes.map(|route| (route.service.name.clone(), Arc::clone(&route.service))).collect();
    let rules = model(vec![(address, Bind { tls: true, listeners })]);
    let mut all = Model::clone(&rules);
    all.services.extend::<std::collections::BTreeMap<_, _>>(services);
    Arc::new(all)
}

/// A proxy with one route that passes connections for `a.example` through.
async fn passing(settings: Settings, backends: Vec<BackendRef>) -> (Proxy, SocketAddr) {
    let address = address();
    let routes = vec![tunnel(&[exact("a.example")], backends)];
    let proxy = serving(settings, tunnels(address, vec![listener_of(None, false, routes)])).await;
    (proxy, address)
}

/// Says a name, then sends back what comes until the client is done, and then a farewell.
async fn echo<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, name: &str) {
    if stream.write_all(name.as_bytes()).await.is_err() {
        return;
    }
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count) = stream.read(&mut buffer).await {
        let farewell = count == 0;
        let sent = stream.write_all(if farewell { b"bye" } else { &buffer[..count] }).await;
        if farewell || sent.is_err() {
            break;
        }
    }
    let _ = stream.shutdown().await;
}

async fn plain(name: &'static str) -> Backend {
    Backend::raw(move |stream| echo(stream, name)).await
}

/// The same over TLS, with a certificate.
async fn secure(name: &'static str, certificate: &gateway_daemon::model::l7::Certificate) -> Backend {
    let chain = rustls::pki_types::CertificateDer::pem_slice_iter(&certificate.chain);
    let chain = chain.collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(&certificate.key).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Backend::raw(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                echo(stream, name).await;
            }
        }
    })
    .await
}

/// The first bytes of a client that asks for a name.
fn hello(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// Whether a connection that sends these bytes is closed without an answer.
async fn is_refused(address: SocketAddr, bytes: &[u8]) -> bool {
    let mut stream = connect(address).await;
    stream.write_all(bytes).await.unwrap();
    match soon(stream.read(&mut [0; 16])).await {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

async fn read<S: AsyncRead + Unpin>(stream: &mut S, expected: &[u8]) {
    let mut got = vec![0; expected.len()];
    soon(stream.read_exact(&mut got)).await.unwrap();
    assert!(got == expected, "{}", String::from_utf8_lossy(&got[..got.len().min(99)]));
}

fn active(proxy: &Proxy) -> u64 {
    proxy.stats().values().flat_map(|service| &service.backends).map(|backend| backend.active).sum()
}

/// Opens a tunnel that passes through, and sees it open at the backend named `a`.
async fn opened(address: SocketAddr) -> TcpStream {
    let (mut stream, hello) = (connect(address).await, hello("a.example"));
    stream.write_all(&hello).await.unwrap();
    read(&mut stream, &[b"a", hello.as_slice()].concat()).await;
    stream
}

#[tokio::test]
async fn one_port_passes_through_and_terminates_by_name() {
    let (own, own_der) = certificate(&["t.example", "x.t.example", "h.example"]);
    let (theirs, theirs_der) = certificate(&["p.example", "x.y.p.example", "z.p.example"]);
    let (passed, below, ended) = (secure("p", &theirs).await, secure("b", &theirs).await, plain("t").await);
    let web = Backend::named("web").await;
    let address = address();
    let listeners = vec![
        listener_of(
            None,
            false,
            vec![
                tunnel(&[wildcard("p.example")], vec![to_backend(1, &[passed.address])]),
                tunnel(&[exact("p.example"), wildcard("y.p.example")], vec![to_backend(1, &[below.address])]),
                // Of two with the same name, the first one wins.
                tunnel(&[exact("p.example")], vec![invalid(1)]),
            ],
        ),
        secured(
            listener_of(
                Some(exact("t.example")),
                true,
                vec![tunnel(&[exact("t.example")], vec![to_backend(1, &[ended.address])])],
            ),
            &own,
        ),
        secured(listener(Some(exact("h.example")), vec![rule(vec![path_prefix("/")], to(&web))]), &own),
    ];
    let mut model = Model::clone(&tunnels(address, listeners));
    let http = crate::support::model(model.binds.clone().into_iter().collect());
    model.services.extend(http.services.clone());
    let proxy = serving(settings(), Arc::new(model)).await;
    let trusted = [&own_der, &theirs_der];
    for (name, backend, certificate) in [
        ("z.p.example", "p", &theirs_der),
        ("p.example", "b", &theirs_der),
        ("x.y.p.example", "b", &theirs_der),
        ("t.example", "t", &own_der),
    ] {
        let mut stream = handshake(address, name, &trusted, &["h2", "http/1.1"]).await.unwrap();
        assert_eq!(shown(&stream), *certificate, "{name}");
        stream.write_all(b"hello").await.unwrap();
        read(&mut stream, format!("{backend}hello").as_bytes()).await;
        // Each side is done when it says so, not when the other does.
        stream.shutdown().await.unwrap();
        read(&mut stream, b"bye").await;
        assert_eq!(soon(stream.read(&mut [0; 1])).await.unwrap(), 0, "{name}");
    }
    let mut stream = handshake(address, "h.example", &trusted, &["http/1.1"]).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: h.example\r\n\r\n").await.unwrap();
    assert_eq!(read_response(&mut stream).await.body, "web");
    stream.write_all(b"GET / HTTP/1.1\r\nhost: t.example\r\n\r\n").await.unwrap();
    assert_eq!(read_response(&mut stream).await.status, 421);
    drop(stream);
    eventually(|| active(&proxy) == 0).await;
    for name in ["elsewhere.example", "x.t.example", "h.p.example.org"] {
        assert!(is_refused(address, &hello(name)).await, "{name}");
    }
}

#[tokio::test]
async fn what_cannot_be_handed_on_is_closed_without_a_word() {
    let gone = Backend::named("gone").await;
    let nobody = gone.address;
    drop(gone);
    for backends in [
        vec![invalid(1)],
        vec![to_backend(0, &[nobody])],
        vec![to_backend(1, &[])],
        vec![to_backend(1, &[nobody])],
    ] {
        let (_proxy, address) = passing(settings(), backends.clone()).await;
        assert!(is_refused(address, &hello("a.example")).await, "{backends:?}");
    }
    let backend = plain("a").await;
    let (_proxy, address) = passing(settings(), vec![to_backend(1, &[backend.address])]).await;
    // An address is no server name, so none is sent.
    let mut late = hello("a.example");
    late[5] = 2;
    for bytes in [
        &hello("198.18.0.1"),
        &hello("b.example"),
        &late,
        b"GET / HTTP/1.1\r\nhost: a.example\r\n\r\n".as_slice(),
    ] {
        assert!(is_refused(address, bytes).await);
    }
    assert_eq!(backend.connections.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_hello_may_come_in_pieces_but_not_for_ever() {
    let backend = plain("a").await;
    let (_proxy, address) = passing(settings(), vec![to_backend(1, &[backend.address])]).await;
    let hello = hello("a.example");
    // The same message, in records of one byte each, each byte in a packet of its own.
    let pieces: Vec<u8> = hello[5..].iter().flat_map(|byte| [22, 3, 1, 0, 1, *byte]).collect();
    let mut stream = connect(address).await;
    for byte in &pieces {
        stream.write_all(&[*byte]).await.unwrap();
    }
    read(&mut stream, &[b"a", pieces.as_slice()].concat()).await;

    let short = Settings { handshake_timeout: Duration::from_millis(50), ..settings() };
    let (_proxy, address) = passing(short, vec![to_backend(1, &[backend.address])]).await;
    assert!(is_refused(address, &hello[..hello.len() - 1]).await);
}

#[tokio::test]
async fn large_transfers_and_half_closes_pass_both_ways() {
    let backend = plain("a").await;
    let (proxy, address) = passing(settings(), vec![to_backend(1, &[backend.address])]).await;
    let stream = opened(address).await;
    let large: Vec<u8> = (0..4_000_000_u32).flat_map(u32::to_be_bytes).collect();
    let (mut reader, mut writer) = stream.into_split();
    let sending = async {
        writer.write_all(&large).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut got = Vec::new();
    let ((), received) = tokio::join!(sending, soon(reader.read_to_end(&mut got)));
    received.unwrap();
    assert!(got == [large.as_slice(), b"bye"].concat());
    eventually(|| active(&proxy) == 0).await;
}

#[tokio::test]
async fn a_reset_of_one_side_reaches_the_other() {
    let backend = Backend::raw(|mut stream| async move {
        let _ = stream.read(&mut [0; 1]).await;
        stream.set_zero_linger().unwrap();
    })
    .await;
    let (_proxy, address) = passing(settings(), vec![to_backend(1, &[backend.address])]).await;
    let mut stream = connect(address).await;
    stream.write_all(&hello("a.example")).await.unwrap();
    let error = soon(stream.read(&mut [0; 1])).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn another_endpoint_is_tried_when_one_does_not_answer() {
    let gone = Backend::named("gone").await;
    let nobody = gone.address;
    drop(gone);
    let backend = plain("a").await;
    let (_proxy, address) = passing(settings(), vec![to_backend(1, &[nobody, backend.address])]).await;
    for _ in 0..8 {
        opened(address).await;
    }
}

#[tokio::test]
async fn an_invalid_share_is_refused_by_weight() {
    let backend = plain("a").await;
    let (_proxy, address) = passing(settings(), vec![to_backend(3, &[backend.address]), invalid(1)]).await;
    let mut refused = 0;
    for _ in 0..400 {
        refused += u32::from(is_refused(address, &hello("a.example")).await);
    }
    // Six standard deviations.
    assert!((48..=152).contains(&refused), "{refused} of 400");
}

#[tokio::test]
async fn tunnels_stay_over_publishes_until_what_they_need_is_gone() {
    let (backend, other) = (plain("a").await, plain("other").await);
    let short = Settings { drain_timeout: Duration::from_millis(50), ..settings() };
    let address = address();
    let serve = |to: &[SocketAddr]| {
        let routes = vec![tunnel(&[exact("a.example")], vec![to_backend(1, to)])];
        tunnels(address, vec![listener_of(None, false, routes)])
    };
    let proxy = serving(short, serve(&[backend.address])).await;
    let (mut first, mut second) = (opened(address).await, opened(address).await);
    // Another share of the same endpoint, and a hostname that nobody asked for.
    soon(proxy.publish(serve(&[backend.address, other.address]))).await;
    for stream in [&mut first, &mut second] {
        stream.write_all(b"still").await.unwrap();
        read(stream, b"still").await;
    }
    soon(proxy.publish(serve(&[other.address]))).await;
    let error = soon(first.read(&mut [0; 1])).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);

    soon(proxy.publish(serve(&[backend.address]))).await;
    let mut third = opened(address).await;
    soon(proxy.publish(Arc::new(Model::default()))).await;
    let error = soon(third.read(&mut [0; 1])).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn idle_tunnels_are_cut_and_busy_ones_are_not() {
    let backend = plain("a").await;
    let short = Settings { tunnel_idle_timeout: Duration::from_secs(1), ..settings() };
    let (proxy, address) = passing(short, vec![to_backend(1, &[backend.address])]).await;
    let (mut idle, mut busy) = (opened(address).await, opened(address).await);
    let cut = async {
        let error = soon(idle.read(&mut [0; 1])).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    };
    let mut cut = std::pin::pin!(cut);
    loop {
        tokio::select! {
            () = &mut cut => break,
            () = tokio::time::sleep(Duration::from_millis(50)) => {
                busy.write_all(b"x").await.unwrap();
                read(&mut busy, b"x").await;
            }
        }
    }
    assert_eq!(active(&proxy), 1);
}

#[tokio::test]
async fn tunnels_count_as_connections() {
    let backend = plain("a").await;
    let one = Settings { max_connections: 1, ..settings() };
    let (proxy, address) = passing(one, vec![to_backend(1, &[backend.address])]).await;
    let stream = opened(address).await;
    assert!(is_refused(address, b"").await);
    drop(stream);
    eventually(|| active(&proxy) == 0).await;
}
