//! HTTP/1.1 and h2c. By path:
//!
//! | path | answer |
//! |---|---|
//! | `/bytes/N` | N bytes of the pattern |
//! | `/echo` | the request's body |
//! | `/status/N` | that status, an empty body |
//! | `/after/MS` | the report, so many milliseconds later |
//! | `/hang` | never |
//! | anything else | the report: [`crate::http::Report`] as JSON |

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HOST};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};

use super::grpc;
use crate::http::{Body, Report, full};
use crate::pattern::PatternBody;

/// Serves one connection to its end.
pub(super) async fn serve(
    connection: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    remote: SocketAddr,
    name: Arc<str>,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let name = Arc::clone(&name);
        async move {
            let is_grpc = request
                .headers()
                .get(CONTENT_TYPE)
                .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
            let response = if is_grpc {
                grpc::answer(&name, request).await.map(|body| body.map_err(Into::into).boxed_unsync())
            } else {
                answer(&name, remote, request).await
            };
            Ok::<_, Infallible>(response)
        }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    // A client that goes away in the middle is its own affair: it knows what it has not got.
    let _gone = builder.serve_connection(TokioIo::new(connection), service).await;
}

async fn answer(name: &str, remote: SocketAddr, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let mut segments = path.split('/').skip(1);
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
    match (segments.next().unwrap_or_default(), number(segments.next())) {
        ("bytes", Some(length)) => Response::new(PatternBody::new(length).boxed_unsync()),
        ("echo", None) => Response::new(request.into_body().map_err(Into::into).boxed_unsync()),
        ("status", Some(code)) => {
            let code = u16::try_from(code).ok().and_then(|code| StatusCode::from_u16(code).ok());
            let mut response = Response::new(full(""));
            *response.status_mut() = code.unwrap_or(StatusCode::BAD_REQUEST);
            response
        }
        ("after", Some(milliseconds)) => {
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
            report(name, remote, request).await
        }
        ("hang", None) => std::future::pending().await,
        _ => report(name, remote, request).await,
    }
}

async fn report(name: &str, remote: SocketAddr, request: Request<Incoming>) -> Response<Body> {
    let (head, mut body) = request.into_parts();
    let mut report = Report {
        backend: name.to_owned(),
        method: head.method.to_string(),
        path: head.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        version: format!("{:?}", head.version),
        authority: head.uri.authority().map(ToString::to_string).unwrap_or_default(),
        remote: remote.to_string(),
        ..Report::default()
    };
    for (name, value) in &head.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        if name == HOST && report.authority.is_empty() {
            report.authority = value.to_string();
        }
        let joined = report.headers.entry(name.to_string()).or_default();
        *joined = if joined.is_empty() { value.to_string() } else { format!("{joined},{value}") };
    }
    while let Some(Ok(frame)) = body.frame().await {
        report.body += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
    let mut response = Response::new(full(report.to_json()));
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}
