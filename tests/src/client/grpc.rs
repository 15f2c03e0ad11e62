//! A gRPC client of [`crate::backend`]'s service, under whatever service name a test routes by.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_stream::StreamExt as _;
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

use super::PATIENCE;
use crate::backend::Said;

/// One channel to one service. For a future that runs inside the client's namespace.
#[derive(Debug)]
pub struct Client {
    grpc: Grpc<Channel>,
    service: String,
    /// Sent with each call.
    pub metadata: MetadataMap,
}

impl Client {
    /// Connects to `to` by h2c; calls will name `authority` and `service`.
    ///
    /// # Errors
    /// When it cannot connect.
    pub async fn connect(to: SocketAddr, authority: &str, service: &str) -> Result<Self> {
        let connector = service_fn(move |_| async move { open(to).await.map(TokioIo::new) });
        let channel = endpoint("http", authority)?
            .connect_with_connector(connector)
            .await
            .with_context(|| format!("connect to {to}"))?;
        Ok(Self::over(channel, service))
    }

    /// Connects to `to` by h2 over TLS; the handshake asks for `name`, calls will name `authority` and `service`.
    ///
    /// # Errors
    /// When it cannot connect, or the certificate is not what `config` trusts.
    pub async fn connect_tls(
        to: SocketAddr,
        (config, name): (Arc<ClientConfig>, &str),
        authority: &str,
        service: &str,
    ) -> Result<Self> {
        let name = ServerName::try_from(name.to_owned()).context("a server name")?;
        let connector = service_fn(move |_| {
            let (connector, name) = (TlsConnector::from(Arc::clone(&config)), name.clone());
            async move { connector.connect(name, open(to).await?).await.map(TokioIo::new) }
        });
        let channel = endpoint("https", authority)?
            .connect_with_connector(connector)
            .await
            .with_context(|| format!("connect to {to}"))?;
        Ok(Self::over(channel, service))
    }

    fn over(channel: Channel, service: &str) -> Self {
        Self { grpc: Grpc::new(channel), service: service.to_owned(), metadata: MetadataMap::new() }
    }

    /// Calls a method with one message and one answer: `Unary`, `Fail`.
    ///
    /// # Errors
    /// The status, whoever sent it.
    pub async fn unary(&mut self, method: &str, said: Said) -> Result<Said, Status> {
        self.ready().await?;
        let request = self.request(said);
        let answer = self.grpc.unary(request, self.path(method)?, codec()).await?;
        Ok(answer.into_inner())
    }

    /// Sends all messages and gets one answer: `Collect`.
    ///
    /// # Errors
    /// The status, whoever sent it.
    pub async fn client_stream(&mut self, method: &str, said: Vec<Said>) -> Result<Said, Status> {
        self.ready().await?;
        let request = self.request(tokio_stream::iter(said));
        let answer = self.grpc.client_streaming(request, self.path(method)?, codec()).await?;
        Ok(answer.into_inner())
    }

    /// Sends one message and gets all answers: `Count`.
    ///
    /// # Errors
    /// The status, whoever sent it, also after some answers.
    pub async fn server_stream(&mut self, method: &str, said: Said) -> Result<Vec<Said>, Status> {
        self.ready().await?;
        let request = self.request(said);
        let answers = self.grpc.server_streaming(request, self.path(method)?, codec()).await?;
        answers.into_inner().collect().await
    }

    /// Sends each message when the answer to the one before has arrived: `Chat`.
    ///
    /// # Errors
    /// The status, whoever sent it.
    pub async fn chat(&mut self, method: &str, said: Vec<Said>) -> Result<Vec<Said>, Status> {
        self.ready().await?;
        let (say, hear) = tokio::sync::mpsc::channel(1);
        let mut said = said.into_iter();
        let mut heard = Vec::new();
        if let Some(first) = said.next() {
            say.try_send(first).map_err(|full| Status::internal(full.to_string()))?;
        }
        let request = self.request(tokio_stream::wrappers::ReceiverStream::new(hear));
        let path = self.path(method)?;
        let mut answers = self.grpc.streaming(request, path, codec()).await?.into_inner();
        let mut say = Some(say);
        while let Some(answer) = answers.next().await {
            heard.push(answer?);
            match (&say, said.next()) {
                (Some(open), Some(next)) => {
                    open.send(next).await.map_err(|closed| Status::internal(closed.to_string()))?;
                }
                // Closing our side ends the call.
                _ => say = None,
            }
        }
        Ok(heard)
    }

    async fn ready(&mut self) -> Result<(), Status> {
        self.grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.metadata.clone();
        request
    }

    fn path(&self, method: &str) -> Result<PathAndQuery, Status> {
        let path = format!("/{}/{method}", self.service);
        path.parse().map_err(|error| Status::internal(format!("{path:?} is no path: {error}")))
    }
}

/// The frames of a call are small and several: they must not wait for each other's acknowledgement.
async fn open(to: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn endpoint(scheme: &str, authority: &str) -> Result<Endpoint> {
    let endpoint = Endpoint::from_shared(format!("{scheme}://{authority}"))?;
    Ok(endpoint.timeout(PATIENCE).connect_timeout(PATIENCE))
}

fn codec() -> ProstCodec<Said, Said> {
    ProstCodec::default()
}
