//! TLS: certificates by server name, protocols by ALPN.

use std::{net::SocketAddr, sync::Arc};

use gateway_daemon::model::l7::{Bind, Certificate, ClientValidation, Hostname, Listener};
use http::Request;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName},
};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::support::*;

/// A self-signed certificate, and its DER form for the client to trust and to compare.
pub(crate) fn certificate(names: &[&str]) -> (Certificate, CertificateDer<'static>) {
    let names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let pem = |text: String| Arc::from(text.into_bytes());
    let certificate = Certificate { chain: pem(made.cert.pem()), key: pem(made.signing_key.serialize_pem()) };
    (certificate, made.cert.der().clone())
}

pub(crate) fn secured(listener: Listener, certificate: &Certificate) -> Listener {
    Listener { certificates: vec![certificate.clone()], ..listener }
}

pub(crate) async fn handshake(
    address: SocketAddr,
    name: &str,
    trusted: &[&CertificateDer<'static>],
    alpn: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for one in trusted {
        roots.add((*one).clone()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    soon(TlsConnector::from(Arc::new(config)).connect(name, connect(address).await)).await
}

pub(crate) fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

#[tokio::test]
async fn names_choose_certificates_and_alpn_the_protocol() {
    let backend = Backend::echo_head().await;
    let (exact, exact_der) = certificate(&["a.w.example"]);
    let (wild, wild_der) = certificate(&["*.w.example", "b.c.w.example"]);
    let rules = || vec![rule(vec![path_prefix("/")], to(&backend))];
    let address = address();
    let listeners = vec![
        secured(listener(Some(Hostname::Wildcard("w.example".into())), rules()), &wild),
        secured(listener(Some(Hostname::Exact("a.w.example".into())), rules()), &exact),
    ];
    let _proxy = serving(settings(), model(vec![(address, Bind { tls: true, listeners })])).await;
    let trusted = [&exact_der, &wild_der];
    for (name, expected) in
        [("a.w.example", &exact_der), ("b.w.example", &wild_der), ("b.c.w.example", &wild_der)]
    {
        let stream = handshake(address, name, &trusted, &["h2", "http/1.1"]).await.unwrap();
        assert_eq!(shown(&stream), *expected, "{name}");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
        let request = Request::get(format!("https://{name}/x")).body(empty()).unwrap();
        let response = soon(http2_over(stream).await.send_request(request)).await.unwrap();
        let (_, body, _) = collect(response).await;
        assert!(body.contains("\nx-forwarded-proto: https\n"), "{body}");
    }
    for alpn in [&["http/1.1"][..], &[]] {
        let mut stream = handshake(address, "a.w.example", &trusted, alpn).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a.w.example\r\n\r\n").await.unwrap();
        assert_eq!(read_response(&mut stream).await.status, 200);
        // Another listener's host must not be asked for here, another host of the same listener may.
        stream.write_all(b"GET / HTTP/1.1\r\nhost: b.w.example\r\n\r\n").await.unwrap();
        assert_eq!(read_response(&mut stream).await.status, 421);
    }
    let mut stream = handshake(address, "b.w.example", &trusted, &[]).await.unwrap();
    for (host, status) in [("c.w.example", 200), ("a.w.example", 421), ("elsewhere.org", 421)] {
        let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(read_response(&mut stream).await.status, status, "{host}");
    }
    assert!(handshake(address, "elsewhere.org", &trusted, &[]).await.is_err());
    // Plain HTTP on a TLS port gets no answer in HTTP.
    let mut plain = connect(address).await;
    plain.write_all(b"GET / HTTP/1.1\r\nhost: a.w.example\r\n\r\n").await.unwrap();
    assert!(!soon(read_head(&mut plain)).await.is_some_and(|head| head.starts_with("HTTP")));
}

#[tokio::test]
async fn new_certificate_is_shown_and_open_connections_stay() {
    let backend = Backend::named("a").await;
    let address = address();
    let serve = |certificate: &Certificate| {
        let rules = vec![rule(vec![path_prefix("/")], to(&backend))];
        let listeners = vec![secured(listener(None, rules), certificate)];
        model(vec![(address, Bind { tls: true, listeners })])
    };
    let (old, old_der) = certificate(&["a.example"]);
    let (new, new_der) = certificate(&["a.example"]);
    let trusted = [&old_der, &new_der];
    let proxy = serving(settings(), serve(&old)).await;
    let mut kept = handshake(address, "a.example", &trusted, &[]).await.unwrap();
    assert_eq!(shown(&kept), old_der);
    soon(proxy.publish(serve(&new))).await;
    let stream = handshake(address, "a.example", &trusted, &[]).await.unwrap();
    assert_eq!(shown(&stream), new_der);
    kept.write_all(b"GET / HTTP/1.1\r\nhost: a.example\r\n\r\n").await.unwrap();
    assert_eq!(read_response(&mut kept).await.status, 200);
    // A broken certificate costs its own listener only.
    let (mut broken, _) = certificate(&["a.example"]);
    broken.key = Arc::from(b"not a key".as_slice());
    let address2 = crate::support::address();
    let mut binds: Vec<_> = serve(&new).binds.clone().into_iter().collect();
    let listeners = vec![secured(listener(None, Vec::new()), &broken)];
    binds.push((address2, Bind { tls: true, listeners }));
    assert!(soon(proxy.publish(model(binds))).await.is_empty());
    assert!(handshake(address, "a.example", &trusted, &[]).await.is_ok());
    assert!(handshake(address2, "a.example", &trusted, &[]).await.is_err());
}

#[tokio::test]
async fn of_several_certificates_the_one_for_the_name_is_shown() {
    let ((first, first_der), (second, second_der)) =
        (certificate(&["a.example"]), certificate(&["b.example", "*.c.example"]));
    let address = address();
    let certificates = vec![first, second];
    let listener = Listener { certificates, ..listener(None, Vec::new()) };
    let _proxy =
        serving(settings(), model(vec![(address, Bind { tls: true, listeners: vec![listener] })])).await;
    let trusted = [&first_der, &second_der];
    for (name, expected) in
        [("a.example", &first_der), ("b.example", &second_der), ("x.c.example", &second_der)]
    {
        let stream = handshake(address, name, &trusted, &[]).await.unwrap();
        assert_eq!(shown(&stream), *expected, "{name}");
    }
    // For any other name it is the first, which this client does not take.
    let error = handshake(address, "d.example", &trusted, &[]).await.unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
}

/// Someone who issues certificates, and one of them with its key.
struct Issued {
    authority: Arc<[u8]>,
    chain: Vec<CertificateDer<'static>>,
    key: Vec<u8>,
}

fn issued() -> Issued {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(params, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["client.example".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    Issued {
        authority: Arc::from(authority.pem().into_bytes()),
        chain: vec![certificate.der().clone()],
        key: key.serialize_der(),
    }
}

/// What a client that shows a certificate gets to read: `Err` when it is not let in.
async fn ask_as(address: SocketAddr, config: &Arc<ClientConfig>) -> std::io::Result<u16> {
    let name = ServerName::try_from("a.example").unwrap();
    let mut stream =
        soon(TlsConnector::from(Arc::clone(config)).connect(name, connect(address).await)).await?;
    // In TLS 1.3 a client learns only by reading that it was turned away.
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a.example\r\n\r\n").await?;
    let mut head = vec![0; 12];
    soon(tokio::io::AsyncReadExt::read_exact(&mut stream, &mut head)).await?;
    Ok(String::from_utf8_lossy(&head[9..]).parse().unwrap())
}

fn client(trusted: &CertificateDer<'static>, shown: Option<&Issued>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match shown {
        None => builder.with_no_client_auth(),
        Some(issued) => {
            let key = rustls::pki_types::PrivatePkcs8KeyDer::from(issued.key.clone());
            builder.with_client_auth_cert(issued.chain.clone(), key.into()).unwrap()
        }
    })
}

#[tokio::test]
async fn clients_are_validated_where_it_is_asked_for() {
    let backend = Backend::named("a").await;
    let (own, own_der) = certificate(&["a.example"]);
    let (ours, theirs) = (issued(), issued());
    let address = address();
    let serve = |clients: Option<(&Issued, bool)>| {
        let rules = vec![rule(vec![path_prefix("/")], to(&backend))];
        let clients = clients.map(|(issued, insecure)| ClientValidation {
            authorities: vec![Arc::clone(&issued.authority)],
            insecure,
        });
        let listener = Listener { clients, ..secured(listener(None, rules), &own) };
        model(vec![(address, Bind { tls: true, listeners: vec![listener] })])
    };
    let proxy = serving(settings(), serve(None)).await;
    let clients = [None, Some(&ours), Some(&theirs)].map(|shown| client(&own_der, shown));
    // Each asks twice, so that it has a session to resume when somebody else is to be let in.
    let who = async || {
        let mut let_in = Vec::new();
        for config in &clients {
            let asked = [ask_as(address, config).await, ask_as(address, config).await];
            let asked = asked.map(Result::ok);
            assert_eq!(asked[0], asked[1]);
            let_in.push(asked[0].is_some());
        }
        let_in
    };
    assert_eq!(who().await, [true, true, true]);
    soon(proxy.publish(serve(Some((&ours, false))))).await;
    assert_eq!(who().await, [false, true, false]);
    soon(proxy.publish(serve(Some((&theirs, false))))).await;
    assert_eq!(who().await, [false, false, true]);
    soon(proxy.publish(serve(Some((&theirs, true))))).await;
    assert_eq!(who().await, [true, true, true]);
}
