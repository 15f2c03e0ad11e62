//! An HTTP client: one connection, its protocol chosen beforehand.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::patiently;
use crate::http::{Body, Report, full};

/// How to speak.
#[derive(Clone, Debug)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 by prior knowledge.
    H2c,
    /// Over TLS with this server name; ALPN decides between h2 and HTTP/1.1.
    Tls(Arc<ClientConfig>, String),
}

/// A connection that is open. For a future that runs inside the client's namespace.
#[derive(Debug)]
pub enum Connection {
    /// Speaks HTTP/1.1: one request after the other.
    Http1(http1::SendRequest<Body>),
    /// Speaks HTTP/2; clones share the connection.
    Http2(http2::SendRequest<Body>),
}

/// A response whose body has arrived whole.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// Its trailers.
    pub trailers: Option<HeaderMap>,
}

impl Answer {
    /// The body, read as a backend's report.
    ///
    /// # Errors
    /// When it is none; the message holds status and body.
    pub fn report(&self) -> Result<Report> {
        Report::from_json(&self.body)
            .with_context(|| format!("{} {}", self.status, String::from_utf8_lossy(&self.body)))
    }
}

impl Connection {
    /// Connects to `to`.
    ///
    /// # Errors
    /// When TCP, TLS or the protocol's handshake fails, or any takes too long.
    pub async fn open(to: SocketAddr, protocol: &Protocol) -> Result<Self> {
        let stream = patiently("connect", async { Ok(TcpStream::connect(to).await?) }).await?;
        stream.set_nodelay(true)?;
        match protocol {
            Protocol::Http1 => Self::http1(stream).await,
            Protocol::H2c => Self::http2(stream).await,
            Protocol::Tls(config, name) => {
                let name = ServerName::try_from(name.clone()).context("a server name")?;
                let connector = tokio_rustls::TlsConnector::from(Arc::clone(config));
                let stream =
                    patiently("TLS handshake", async { Ok(connector.connect(name, stream).await?) }).await?;
                match stream.get_ref().1.alpn_protocol() {
                    Some(b"h2") => Self::http2(stream).await,
                    Some(b"http/1.1") | None => Self::http1(stream).await,
                    Some(other) => bail!("ALPN chose {}", String::from_utf8_lossy(other)),
                }
            }
        }
    }

    async fn http1(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Self> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // What ends the connection is seen by the request that it hits.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self::Http1(sender))
    }

    async fn http2(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Self> {
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self::Http2(sender))
    }

    /// Sends a request, with a full URI; returns when the response's head has arrived.
    ///
    /// # Errors
    /// When the connection breaks, or the head takes too long.
    pub async fn send(&mut self, request: Request<Body>) -> Result<Response<Incoming>> {
        patiently("response", async {
            match self {
                Self::Http1(sender) => {
                    sender.ready().await?;
                    Ok(sender.send_request(origin_form(request)?).await?)
                }
                Self::Http2(sender) => {
                    sender.ready().await?;
                    Ok(sender.send_request(request).await?)
                }
            }
        })
        .await
    }

    /// Sends a request and reads the response to its end.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn ask(&mut self, request: Request<Body>) -> Result<Answer> {
        let (head, body) = self.send(request).await?.into_parts();
        let collected = patiently("response body", async { Ok(body.collect().await?) }).await?;
        let trailers = collected.trailers().cloned();
        Ok(Answer { status: head.status, headers: head.headers, body: collected.to_bytes(), trailers })
    }

    /// Gets `uri`, which holds scheme and authority.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn get(&mut self, uri: &str) -> Result<Answer> {
        self.ask(Request::get(uri).body(full(""))?).await
    }
}

/// HTTP/1.1 to a server that is no forward proxy: the path in the request line, the authority in Host.
fn origin_form(mut request: Request<Body>) -> Result<Request<Body>> {
    if let Some(authority) = request.uri().authority() {
        let host = http::HeaderValue::from_str(authority.as_str())?;
        request.headers_mut().entry(http::header::HOST).or_insert(host);
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().context("a path")?;
    Ok(request)
}
