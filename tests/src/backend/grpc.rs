//! gRPC: the service `gatewayd.lab.Echo`, and any other name a test routes by, with one message type.
//!
//! `Unary` answers once; `Collect` (client streaming) counts; `Count` (server streaming) sends `count` messages;
//! `Chat` (bidirectional) answers each message as it comes; `Fail` ends with the status `count`, its text and a
//! trailer, and `Break` (server streaming) does so after a message. The last segment of the path decides, whatever the service.

use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;
use tokio_stream::StreamExt as _;
use tonic::body::Body;
use tonic::metadata::MetadataValue;
use tonic::server::Grpc;
use tonic::{Code, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::service_fn;

/// The key of the trailer that `Fail` sends: the backend's name.
pub const METADATA: &str = "x-lab-backend";

/// The one message, both ways.
#[derive(Clone, Eq, PartialEq, prost::Message)]
pub struct Said {
    /// The backend that answers; empty in requests.
    #[prost(string, tag = "1")]
    pub backend: String,
    /// What was said, and is said back.
    #[prost(string, tag = "2")]
    pub text: String,
    /// How many messages (`Count`, `Collect`), or which status (`Fail`).
    #[prost(uint32, tag = "3")]
    pub count: u32,
}

/// Answers one call.
pub(super) async fn answer(name: &Arc<str>, request: Request<Incoming>) -> http::Response<Body> {
    let mut grpc = Grpc::new(ProstCodec::<Said, Said>::default());
    let name = Arc::clone(name);
    let say = move |said: Said| Said { backend: name.to_string(), ..said };
    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    match method.as_str() {
        "Unary" => {
            let unary = |request: tonic::Request<Said>| {
                let answer = say(request.into_inner());
                async { Ok(Response::new(answer)) }
            };
            grpc.unary(service_fn(unary), request).await
        }
        "Collect" => {
            let collect = |request: tonic::Request<Streaming<Said>>| {
                let say = say.clone();
                async move { Ok(Response::new(say(collected(request.into_inner()).await?))) }
            };
            grpc.client_streaming(service_fn(collect), request).await
        }
        "Count" => {
            let count = |request: tonic::Request<Said>| {
                let asked = say(request.into_inner());
                let last = asked.count;
                let each = move |count| Ok::<_, Status>(Said { count, ..asked.clone() });
                async move { Ok(Response::new(tokio_stream::iter((1..=last).map(each)))) }
            };
            grpc.server_streaming(service_fn(count), request).await
        }
        "Chat" => {
            let chat = |request: tonic::Request<Streaming<Said>>| {
                let say = say.clone();
                let answers = request.into_inner().map(move |said| said.map(&say));
                async move { Ok(Response::new(answers)) }
            };
            grpc.streaming(service_fn(chat), request).await
        }
        "Fail" => {
            let fail = |request: tonic::Request<Said>| {
                let failure = failure(&say(request.into_inner()));
                async { Err::<Response<Said>, _>(failure) }
            };
            grpc.unary(service_fn(fail), request).await
        }
        "Break" => {
            let fail = |request: tonic::Request<Said>| {
                let asked = say(request.into_inner());
                let answers = [Ok(asked.clone()), Err(failure(&asked))];
                async { Ok(Response::new(tokio_stream::iter(answers))) }
            };
            grpc.server_streaming(service_fn(fail), request).await
        }
        other => Status::unimplemented(format!("the lab's backend has no method {other:?}")).into_http(),
    }
}

/// All texts of a stream, joined, and how many there were.
async fn collected(mut stream: Streaming<Said>) -> Result<Said, Status> {
    let mut all = Said::default();
    while let Some(said) = stream.next().await {
        all.text.push_str(&said?.text);
        all.count += 1;
    }
    Ok(all)
}

/// The status that `Fail` was asked for.
fn failure(asked: &Said) -> Status {
    let code = Code::from_i32(i32::try_from(asked.count).unwrap_or(i32::MAX));
    let mut status = Status::new(code, asked.text.clone());
    if let Ok(name) = MetadataValue::try_from(&asked.backend) {
        status.metadata_mut().insert(METADATA, name);
    }
    status
}
