//! The kubelet's HTTPS endpoint, which the API server asks for logs.

use std::convert::Infallible;
use std::net::TcpListener as StdListener;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::jiff::Timestamp;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio_rustls::TlsAcceptor;

use super::logs::{Key, Logs};
use crate::cluster::network::NODE_ADDRESS;

/// The usual port of a kubelet.
pub(super) const PORT: u16 = 10250;

/// Listens on the node's address, which the calling thread must have.
///
/// # Errors
/// When the address is not here or the port is taken.
pub(super) fn listen() -> Result<StdListener> {
    let listener = StdListener::bind((NODE_ADDRESS, PORT)).context("listen for the API server's requests")?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers `GET /containerLogs/NAMESPACE/POD/CONTAINER` until dropped.
///
/// # Errors
/// When no certificate can be made; a connection that fails costs only itself.
pub(super) async fn serve(listener: StdListener, logs: Logs) -> Result<()> {
    let acceptor = TlsAcceptor::from(Arc::new(certificate()?));
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await.context("accept a connection")?;
        let (acceptor, logs) = (acceptor.clone(), logs.clone());
        spawn_local(async move {
            if let Err(error) = connection(stream, &acceptor, &logs).await {
                eprintln!("kubelet: a connection of the API server: {error:#}");
            }
        });
    }
}

/// Any will do: the API server is told of no authority for kubelets.
fn certificate() -> Result<ServerConfig> {
    let made =
        rcgen::generate_simple_self_signed([NODE_ADDRESS.to_string()]).context("make a certificate")?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .context("use the certificate")
}

async fn connection(stream: TcpStream, acceptor: &TlsAcceptor, logs: &Logs) -> Result<()> {
    let stream = acceptor.accept(stream).await.context("TLS")?;
    let service = service_fn(|request| async move { Ok::<_, Infallible>(answer(&request, logs)) });
    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.context("HTTP")
}

fn answer(request: &Request<Incoming>, logs: &Logs) -> Response<String> {
    let (status, text) =
        match asked(request.method(), request.uri().path(), request.uri().query().unwrap_or("")) {
            Ok(Asked { key, since, tail }) => match logs.of(&key) {
                Some(log) => (StatusCode::OK, log.text(since, tail)),
                None => (StatusCode::NOT_FOUND, format!("no container {} has started\n", key.container)),
            },
            Err(refusal) => refusal,
        };
    let mut response = Response::new(text);
    *response.status_mut() = status;
    response
}

/// A request for a log.
#[derive(Debug, Eq, PartialEq)]
struct Asked {
    key: Key,
    since: Option<Timestamp>,
    tail: Option<usize>,
}

fn asked(method: &Method, path: &str, query: &str) -> Result<Asked, (StatusCode, String)> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (&Method::GET, &["containerLogs", namespace, pod, container]) = (method, parts.as_slice()) else {
        return Err((StatusCode::NOT_FOUND, "this kubelet serves logs and nothing else\n".to_owned()));
    };
    let key = Key { namespace: namespace.to_owned(), pod: pod.to_owned(), container: container.to_owned() };
    let (mut since, mut tail) = (None, None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let bad = || (StatusCode::BAD_REQUEST, format!("this kubelet does not know {name}={value}\n"));
        match &*name {
            "sinceTime" => since = Some(value.parse().map_err(|_not_a_time| bad())?),
            "tailLines" => tail = Some(value.parse().map_err(|_not_a_number| bad())?),
            _ => return Err(bad()),
        }
    }
    Ok(Asked { key, since, tail })
}

#[cfg(test)]
mod tests {
    use http::{Method, StatusCode};

    use super::asked;

    #[test]
    fn requests_for_logs_are_understood_or_refused() {
        let path = "/containerLogs/space/pod/container";
        let all = asked(&Method::GET, path, "").unwrap();
        assert_eq!((all.since, all.tail), (None, None));
        assert_eq!((&*all.key.namespace, &*all.key.pod, &*all.key.container), ("space", "pod", "container"));
        let some = asked(&Method::GET, path, "sinceTime=2026-11-30T20%3A00%3A00Z&tailLines=3").unwrap();
        assert_eq!(some.since, Some("2026-11-30T20:00:00Z".parse().unwrap()));
        assert_eq!(some.tail, Some(3));
        assert_eq!(asked(&Method::GET, path, "follow=true").unwrap_err().0, StatusCode::BAD_REQUEST);
        assert_eq!(
            asked(&Method::GET, "/exec/space/pod/container", "").unwrap_err().0,
            StatusCode::NOT_FOUND
        );
    }
}
