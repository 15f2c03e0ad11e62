//! HTTP/2 in and out, and gRPC.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream::poll_fn;
use gateway_daemon::{
    l7::Settings,
    model::l7::{Action, AppProtocol, BackendRef, PathMatch, Target},
};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::{body::Incoming, server::conn::http2::Builder, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::{Barrier, mpsc};

use crate::support::*;

/// A body that is fed.
pub(crate) fn fed() -> (mpsc::Sender<&'static str>, Body) {
    let (feed, mut messages) = mpsc::channel::<&'static str>(1);
    let frames = poll_fn(move |context| {
        messages
            .poll_recv(context)
            .map(|next| next.map(|text| Ok(Frame::data(Bytes::from_static(text.as_bytes())))))
    });
    (feed, StreamBody::new(frames).boxed())
}

/// Echoes messages as they come, then says that all went well.
async fn grpc_echo(request: Request<Incoming>) -> Response<Body> {
    let text = head_text(&request);
    let body = request.into_body().map_err(|error| panic!("{error}"));
    let trailers = HeaderMap::from_iter([
        (http::HeaderName::from_static("grpc-status"), HeaderValue::from_static("0")),
        (http::HeaderName::from_static("x-head"), HeaderValue::try_from(text.replace('\n', "|")).unwrap()),
    ]);
    let body = body.with_trailers(async move { Some(Ok(trailers)) }).boxed();
    Response::builder().header("content-type", "application/grpc").body(body).unwrap()
}

#[tokio::test]
async fn grpc_streams_both_ways_with_trailers() {
    let backend = Backend::http2(grpc_echo).await;
    let address = address();
    let matched = matching(PathMatch::Exact("/a.B/Chat".into()));
    let rules = vec![grpc(rule(vec![matched], to(&backend)))];
    let _proxy = serving(settings(), plain(address, rules)).await;
    let mut client = http2(address).await;
    let (feed, body) = fed();
    let response = soon(client.send_request(grpc_request(address, "/a.B/Chat", body))).await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/grpc");
    let mut body = response.into_body();
    // Each answer comes before the next message is sent.
    for message in ["one", "two", "three"] {
        feed.send(message).await.unwrap();
        let frame = soon(body.frame()).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), message);
    }
    drop(feed);
    let trailers = soon(body.frame()).await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    let head = trailers["x-head"].to_str().unwrap();
    assert!(
        head.contains("|te: trailers|") && head.contains(&format!("http://{address}/a.B/Chat")),
        "{head}"
    );
    // No request of gRPC: no rule.
    let plain = Request::post(format!("http://{address}/a.B/Chat")).body(empty()).unwrap();
    assert_eq!(soon(client.send_request(plain)).await.unwrap().status(), 404);
}

#[tokio::test]
async fn grpc_failures_are_trailers_only() {
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let http1 = Backend::named("not h2").await;
    let invalid = BackendRef { name: "x".into(), weight: 1, target: Target::Invalid("missing".into()) };
    let zero = backend_ref("x", 0, AppProtocol::H2c, &[gone]);
    let rows: Vec<(&str, Action, &str)> = vec![
        ("/none", Action::NoBackend, "12"),
        ("/unusable", Action::Unusable("x".into()), "14"),
        ("/invalid", Action::Forward(service("invalid", vec![invalid])), "14"),
        ("/zero", Action::Forward(service("zero", vec![zero])), "14"),
        ("/empty", to_endpoints(AppProtocol::H2c, &[]), "14"),
        ("/refused", to_endpoints(AppProtocol::H2c, &[gone]), "14"),
        ("/http1", to_endpoints(AppProtocol::Http, &[http1.address]), "14"),
    ];
    let address = address();
    let rules = rows.iter().map(|(path, action, _)| {
        let path = PathMatch::Exact(format!("{path}/M"));
        grpc(rule(vec![matching(path)], action.clone()))
    });
    let _proxy = serving(settings(), plain(address, rules.collect())).await;
    let mut client = http2(address).await;
    let expected = rows.iter().map(|(path, _, status)| (*path, *status)).chain([("/elsewhere", "12")]);
    for (path, status) in expected {
        let request = grpc_request(address, &format!("{path}/M"), full("x"));
        let response = soon(client.send_request(request)).await.unwrap();
        let (parts, body, trailers) = collect(response).await;
        assert_eq!(parts.status, 200, "{path}");
        assert_eq!(parts.headers["content-type"], "application/grpc", "{path}");
        assert_eq!(parts.headers["grpc-status"], status, "{path}");
        assert!(!parts.headers["grpc-message"].is_empty(), "{path}");
        assert_eq!((body.as_str(), trailers), ("", None), "{path}");
    }
}

#[tokio::test]
async fn http_is_translated_between_versions() {
    let http1 = Backend::echo_head().await;
    let http2c = Backend::http2(|request| async move { Response::new(full(head_text(&request))) }).await;
    let address = address();
    let rules = vec![
        rule(vec![path_prefix("/1")], to(&http1)),
        rule(vec![path_prefix("/2")], to_endpoints(AppProtocol::H2c, &[http2c.address])),
    ];
    let _proxy = serving(settings(), plain(address, rules)).await;
    let mut client = http2(address).await;
    let request = |path: &str| {
        let request = Request::get(format!("http://a.example{path}"));
        let crumbs = request.header("cookie", "a=1").header("cookie", "b=2").header("cookie", "c=3");
        crumbs.body(empty()).unwrap()
    };
    let (_, head, _) = collect(soon(client.send_request(request("/1?q=1"))).await.unwrap()).await;
    assert!(head.starts_with("GET /1?q=1 HTTP/1.1\n"), "{head}");
    assert!(head.contains("\nhost: a.example\n") && head.contains("\ncookie: a=1; b=2; c=3\n"), "{head}");
    let (_, head, _) = collect(soon(client.send_request(request("/2?q=1"))).await.unwrap()).await;
    assert!(head.starts_with("GET http://a.example/2?q=1 HTTP/2.0\n"), "{head}");
    assert!(head.contains("\ncookie: a=1\ncookie: b=2\n") && !head.contains("\nhost:"), "{head}");
    let from1 = get(address, "b.example", "/2").await;
    assert!(from1.body.starts_with("GET http://b.example/2 HTTP/2.0\n"), "{}", from1.body);
    assert!(!from1.body.contains("connection"), "{}", from1.body);
    // No path at all: HTTP/2 CONNECT is refused too.
    let connect = Request::connect("a.example:443").body(empty()).unwrap();
    assert_eq!(soon(client.send_request(connect)).await.unwrap().status(), 405);
}

#[tokio::test]
async fn a_second_host_is_refused() {
    let backend = Backend::echo_head().await;
    let address = address();
    let rules = vec![rule(vec![matching(PathMatch::Prefix(String::new()))], to(&backend))];
    let _proxy = serving(settings(), plain(address, rules)).await;
    let mut client = http2(address).await;
    let mut get = |hosts: &[&str]| {
        let request = Request::get(format!("http://{address}/"));
        let request = hosts.iter().fold(request, |request, host| request.header("host", *host));
        client.send_request(request.body(empty()).unwrap())
    };
    let (none, two) = (get(&[]), get(&["a.example", "b.example"]));
    assert_eq!(soon(none).await.unwrap().status(), 200);
    assert_eq!(soon(two).await.unwrap().status(), 400);
}

#[tokio::test]
async fn another_connection_is_opened_when_streams_run_out() {
    // All requests must be there at once before any is answered.
    let together = Arc::new(Barrier::new(6));
    let backend = Backend::raw(move |stream| {
        let together = Arc::clone(&together);
        async move {
            let service = service_fn(move |_request| {
                let together = Arc::clone(&together);
                async move {
                    together.wait().await;
                    Ok::<_, std::convert::Infallible>(Response::new(full("ok")))
                }
            });
            let mut builder = Builder::new(TokioExecutor::new());
            builder.max_concurrent_streams(2);
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        }
    })
    .await;
    let (_proxy, address) = forwarding(to_endpoints(AppProtocol::H2c, &[backend.address])).await;
    // The limit is known once a connection is there.
    let requests = (0..6).map(|_| get(address, "a", "/"));
    for response in soon(futures_util::future::join_all(requests)).await {
        assert_eq!(response.status, 200);
    }
    assert!(backend.connections.load(Relaxed) >= 3);
}

#[tokio::test]
async fn goaway_and_refused_streams_are_not_seen_by_clients() {
    // Every connection says GOAWAY with its first answer.
    let backend = Backend::raw(|stream| async move {
        let asked = Arc::new(tokio::sync::Notify::new());
        let told = Arc::clone(&asked);
        let service = service_fn(move |_request| {
            told.notify_one();
            async { Ok::<_, std::convert::Infallible>(Response::new(full("ok"))) }
        });
        let mut served = std::pin::pin!(
            Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service)
        );
        tokio::select! {
            _ = served.as_mut() => return,
            () = asked.notified() => served.as_mut().graceful_shutdown(),
        }
        let _ = served.await;
    })
    .await;
    let (_proxy, address) = forwarding(to_endpoints(AppProtocol::H2c, &[backend.address])).await;
    for _ in 0..50 {
        assert_eq!(get(address, "a", "/").await.status, 200);
    }
    assert!(backend.connections.load(Relaxed) > 1);
}

#[tokio::test]
async fn stream_refused_by_the_backend_is_sent_again() {
    // Refuses the second stream of its first connection without looking at it.
    let first = Arc::new(AtomicUsize::new(0));
    let backend = Backend::raw(move |stream| {
        let refuse = first.fetch_add(1, Relaxed) == 0;
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let mut count = 0;
            while let Some(Ok((_request, mut respond))) = connection.accept().await {
                count += 1;
                if refuse && count == 2 {
                    respond.send_reset(h2::Reason::REFUSED_STREAM);
                } else {
                    respond.send_response(Response::new(()), true).unwrap();
                }
            }
        }
    })
    .await;
    let (_proxy, address) = forwarding(to_endpoints(AppProtocol::H2c, &[backend.address])).await;
    for _ in 0..4 {
        let request = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(exchange(address, request).await.status, 200);
    }
}

#[tokio::test]
async fn endpoint_that_never_answers_does_not_wedge_its_pool() {
    let silent = Arc::new(AtomicUsize::new(0));
    let turn = Arc::clone(&silent);
    let backend = Backend::raw(move |stream| {
        let index = turn.fetch_add(1, Relaxed);
        async move {
            if index == 0 {
                // Closes in the middle of the handshake, after some silence.
                tokio::time::sleep(Duration::from_millis(50)).await;
                return;
            }
            let service =
                service_fn(|_request| async { Ok::<_, std::convert::Infallible>(Response::new(full("ok"))) });
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        }
    })
    .await;
    let address = address();
    let rules = vec![rule(vec![path_prefix("/")], to_endpoints(AppProtocol::H2c, &[backend.address]))];
    let quick = Settings { connect_timeout: Duration::from_millis(500), ..settings() };
    let _proxy = serving(quick, plain(address, rules)).await;
    let first = soon(futures_util::future::join_all((0..4).map(|_| get(address, "a", "/")))).await;
    assert!(first.iter().all(|response| matches!(response.status, 200 | 502 | 504)), "{first:?}");
    assert_eq!(get(address, "a", "/").await.status, 200);
}

#[tokio::test]
async fn slow_reader_does_not_starve_other_streams() {
    let backend = Backend::http1(|request| async move {
        Response::new(full(if request.uri().path() == "/large" { vec![0; 4 << 20] } else { b"ok".to_vec() }))
    })
    .await;
    let (_proxy, address) = forwarding(to(&backend)).await;
    let mut client = http2(address).await;
    let ask = |path: &str| Request::get(format!("http://{address}{path}")).body(empty()).unwrap();
    let unread = soon(client.send_request(ask("/large"))).await.unwrap();
    for _ in 0..10 {
        let (_, body, _) = collect(soon(client.send_request(ask("/small"))).await.unwrap()).await;
        assert_eq!(body, "ok");
    }
    let read = soon(unread.into_body().collect()).await.unwrap().to_bytes();
    assert_eq!(read.len(), 4 << 20);
}
