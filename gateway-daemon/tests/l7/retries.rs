//! Timeouts and retries of HTTPRoutes.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use gateway_daemon::model::l7::{Action, Policy, Retry, Rule};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{http2::fed, support::*};

/// Longer than anything but a backend that never answers.
const LIMIT: Duration = Duration::from_millis(300);

fn retry(codes: &[u16], attempts: u32) -> Policy {
    let codes = codes.iter().map(|code| StatusCode::from_u16(*code).unwrap()).collect();
    let retry = Some(Retry { codes, attempts, backoff: Duration::from_millis(1) });
    Policy { retry, ..Policy::default() }
}

async fn with_policy(policy: Policy, action: Action) -> (gateway_daemon::l7::Proxy, std::net::SocketAddr) {
    let address = address();
    let rule = Rule { policy, ..rule(vec![path_prefix("/")], action) };
    (serving(settings(), plain(address, vec![rule])).await, address)
}

/// What a failing backend does.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Answers(u16),
    /// Closes the connection when it has the request.
    Closes,
    /// Has the request, and never answers.
    Hangs,
}

/// Fails so many times, then answers with the body of the request; tells how often it was asked.
async fn failing(times: usize, fault: Fault) -> (Backend, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let backend = Backend::raw(move |mut stream| {
        let count = Arc::clone(&count);
        async move {
            while let Some(head) = read_head(&mut stream).await {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
                if stream.read_exact(&mut body).await.is_err() {
                    return;
                }
                let (status, body) = match fault {
                    _ if count.fetch_add(1, Relaxed) >= times => (200, String::from_utf8(body).unwrap()),
                    Fault::Answers(status) => (status, "no".to_owned()),
                    Fault::Closes => return,
                    Fault::Hangs => pending().await,
                };
                let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
                let _ = stream.write_all((head + &body).as_bytes()).await;
            }
        }
    })
    .await;
    (backend, asked)
}

async fn post(address: std::net::SocketAddr, body: &str) -> Raw {
    let length = body.len();
    exchange(address, &format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{body}")).await
}

#[tokio::test]
async fn a_request_is_sent_again_as_often_as_the_route_says() {
    let rows = [
        // failures, fault, codes, attempts, status, times asked
        (2, Fault::Answers(500), &[500][..], 3, 200, 3),
        (4, Fault::Answers(500), &[500], 3, 500, 4),
        (2, Fault::Answers(503), &[500], 3, 503, 1),
        (1, Fault::Answers(502), &[500, 502, 503, 504], 2, 200, 2),
        (9, Fault::Answers(404), &[404], 1, 404, 2),
        // Connections that fail are tried again without any code.
        (2, Fault::Closes, &[], 3, 200, 3),
        (4, Fault::Closes, &[], 3, 503, 4),
    ];
    for (failures, fault, codes, attempts, status, expected) in rows {
        let (backend, asked) = failing(failures, fault).await;
        let (_proxy, address) = with_policy(retry(codes, attempts), to(&backend)).await;
        // What was asked with a body is not idempotent, and repeated all the same: the route says so.
        let response = post(address, "hello").await;
        assert_eq!(response.status, status, "{failures} {fault:?}");
        assert_eq!(asked.load(Relaxed), expected, "{failures} {fault:?}");
        if status == 200 {
            assert_eq!(response.body, "hello", "the body was sent again whole");
        }
    }
}

#[tokio::test]
async fn without_a_retry_stanza_nothing_that_left_is_sent_again() {
    for (fault, status) in [(Fault::Answers(503), 503), (Fault::Closes, 502)] {
        let (backend, asked) = failing(1, fault).await;
        let (_proxy, address) = with_policy(Policy::default(), to(&backend)).await;
        assert_eq!(post(address, "hello").await.status, status);
        assert_eq!(asked.load(Relaxed), 1);
    }
}

#[tokio::test]
async fn a_body_too_long_to_be_kept_is_sent_once_and_whole() {
    let (backend, asked) = failing(1, Fault::Answers(503)).await;
    let (_proxy, address) = with_policy(retry(&[503], 3), to(&backend)).await;
    let long = "x".repeat(1 << 20);
    assert_eq!(post(address, &long).await.status, 503);
    assert_eq!(asked.load(Relaxed), 1);
    let response = post(address, &long).await;
    assert_eq!((response.status, response.body.len()), (200, long.len()));
}

#[tokio::test]
async fn a_failing_endpoint_is_left_for_another_one() {
    let (bad, _) = failing(usize::MAX, Fault::Closes).await;
    let good = Backend::named("good").await;
    let action = to_endpoints(gateway_daemon::model::l7::AppProtocol::Http, &[bad.address, good.address]);
    let (_proxy, address) = with_policy(retry(&[], 1), action).await;
    for _ in 0..32 {
        assert_eq!(post(address, "").await.body, "good");
    }
    assert!(bad.connections.load(Relaxed) > 0, "the bad one was never tried");
}

#[tokio::test]
async fn limits_hold_for_one_try_and_for_the_whole() {
    let rows = [
        // tries that hang, limit of one, limit of all, attempts, status, times asked
        (2, Some(LIMIT), None, Some(2), 200, 3),
        (3, Some(LIMIT), None, Some(2), 504, 3),
        (1, Some(LIMIT), None, None, 504, 1),
        (1, None, Some(LIMIT), None, 504, 1),
        // The limit of all is over during the first try, whatever is left of the attempts.
        (1, None, Some(LIMIT), Some(3), 504, 1),
        (9, Some(LIMIT * 2 / 3), Some(LIMIT), Some(9), 504, 2),
    ];
    for (hanging, one, all, attempts, status, expected) in rows {
        let (backend, asked) = failing(hanging, Fault::Hangs).await;
        let retry = attempts.and_then(|attempts| retry(&[], attempts).retry);
        let policy = Policy { request_timeout: all, backend_timeout: one, retry };
        let (proxy, address) = with_policy(policy, to(&backend)).await;
        assert_eq!(post(address, "hello").await.status, status, "{hanging} {one:?} {all:?}");
        assert_eq!(asked.load(Relaxed), expected, "{hanging} {one:?} {all:?}");
        let stats = proxy.stats();
        assert_eq!(stats.values().next().unwrap().backends[0].requests, 1, "one request, however many tries");
    }
}

/// A backend that begins a response and never ends it.
async fn endless(http2: bool) -> Backend {
    let answer = |_request: Request<Incoming>| async move {
        let (feed, body) = fed();
        feed.send("begun").await.unwrap();
        tokio::spawn(async move { feed.closed().await });
        Response::new(body)
    };
    if http2 { Backend::http2(answer).await } else { Backend::http1(answer).await }
}

#[tokio::test]
async fn a_limit_holds_to_the_end_of_the_response() {
    let policy = Policy { request_timeout: Some(LIMIT), ..Policy::default() };
    let backend = endless(false).await;
    let (proxy, address) = with_policy(policy.clone(), to(&backend)).await;
    let mut stream = connect(address).await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut read = Vec::new();
    soon(stream.read_to_end(&mut read)).await.unwrap();
    let read = String::from_utf8(read).unwrap();
    assert!(read.starts_with("HTTP/1.1 200"), "{read}");
    // The last chunk is missing: the client knows that this is not all.
    assert!(read.ends_with("\r\n5\r\nbegun\r\n"), "{read}");
    eventually(|| proxy.stats().values().next().unwrap().backends[0].active == 0).await;

    let backend = endless(true).await;
    let (_proxy, address) = with_policy(policy, to(&backend)).await;
    let mut client = http2(address).await;
    let response = soon(client.send_request(grpc_request(address, "/a.B/C", empty()))).await.unwrap();
    let (_, body, trailers) = collect(response).await;
    assert_eq!(body, "begun");
    assert_eq!(trailers.expect("trailers")["grpc-status"], "4", "DEADLINE_EXCEEDED");
}

#[tokio::test]
async fn grpc_is_told_of_a_limit_as_its_own_status() {
    let backend = Backend::http2(|_request| pending()).await;
    let policy = Policy { backend_timeout: Some(LIMIT), ..Policy::default() };
    let (_proxy, address) = with_policy(policy, to(&backend)).await;
    let mut client = http2(address).await;
    let response = soon(client.send_request(grpc_request(address, "/a.B/C", empty()))).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["grpc-status"], "4", "DEADLINE_EXCEEDED");
}
