//! Publishing while requests are under way, and draining.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use gateway_daemon::{
    l7::{Proxy, Settings},
    model::l7::{
        Action, AppProtocol, Bind, Filter, HeaderModifier, PathModifier, Proxy as Model, Redirect, Rule,
    },
};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::Notify,
};

use crate::support::*;

fn two_workers() -> Settings {
    Settings { workers: 2, ..Settings::default() }
}

/// The generation's model: services, weights, rules and a second bind change; `/` is always answered by somebody.
fn generation(index: usize, address: SocketAddr, extra: SocketAddr, backends: [&Backend; 2]) -> Arc<Model> {
    let weights = [u32::try_from(index % 3).unwrap(), 1];
    let refs = backends.iter().zip(weights).map(|(backend, weight)| {
        backend_ref(&format!("default/{}:80", backend.address), weight, AppProtocol::Http, &[backend.address])
    });
    let action = Action::Forward(service(&format!("httproute.default.test.{}", index % 2), refs.collect()));
    let mut rules = vec![rule(vec![path_prefix("/")], action)];
    for other in 0..index % 5 {
        rules.insert(0, rule(vec![path_prefix(&format!("/other/{other}"))], Action::NoBackend));
    }
    let mut binds = vec![(address, Bind { tls: false, listeners: vec![listener(None, rules.clone())] })];
    if index.is_multiple_of(2) {
        binds.push((extra, Bind { tls: false, listeners: vec![listener(None, rules)] }));
    }
    model(binds)
}

#[tokio::test]
async fn hundred_publishes_under_load_fail_not_one_request() {
    let backends = [Backend::named("a").await, Backend::named("b").await];
    let (address, extra) = (address(), address());
    let of = |index| generation(index, address, extra, [&backends[0], &backends[1]]);
    let proxy = serving(two_workers(), of(0)).await;
    let over = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicUsize::new(0));
    let mut clients = Vec::new();
    for index in 0..8 {
        let (over, done) = (Arc::clone(&over), Arc::clone(&done));
        clients.push(tokio::spawn(async move {
            let mut kept = connect(address).await;
            let mut http2 = http2(address).await;
            while !over.load(Relaxed) {
                if index % 4 == 0 {
                    let request = Request::get(format!("http://{address}/x")).body(empty()).unwrap();
                    let response = soon(http2.send_request(request)).await.unwrap();
                    assert_eq!(response.status(), 200);
                    collect(response).await;
                } else if index % 4 == 1 {
                    assert_eq!(get(address, "a", "/x").await.status, 200);
                } else {
                    kept.write_all(b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
                    let response = read_response(&mut kept).await;
                    assert_eq!((response.status, response.header("connection")), (200, None));
                }
                done.fetch_add(1, Relaxed);
            }
        }));
    }
    for index in 1..=100 {
        let before = done.load(Relaxed);
        assert!(soon(proxy.publish(of(index))).await.is_empty());
        // Requests go on between any two publishes.
        eventually(|| done.load(Relaxed) > before).await;
    }
    over.store(true, Relaxed);
    for client in clients {
        soon(client).await.unwrap();
    }
    assert!(done.load(Relaxed) > 100);
}

#[tokio::test]
async fn requests_of_an_open_connection_see_the_newest_model() {
    let backend = Backend::named("a").await;
    let address = address();
    let proxy =
        serving(two_workers(), plain(address, vec![rule(vec![path_prefix("/")], to(&backend))])).await;
    let mut stream = connect(address).await;
    let ask = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    stream.write_all(ask).await.unwrap();
    assert_eq!(read_response(&mut stream).await.status, 200);
    soon(proxy.publish(plain(address, Vec::new()))).await;
    stream.write_all(ask).await.unwrap();
    assert_eq!(read_response(&mut stream).await.status, 404);
    soon(proxy.publish(plain(address, vec![rule(vec![path_prefix("/")], to(&backend))]))).await;
    stream.write_all(ask).await.unwrap();
    assert_eq!(read_response(&mut stream).await.status, 200);
}

#[tokio::test]
async fn bind_that_fails_is_told_and_tried_again_and_a_second_daemon_is_refused() {
    let backend = Backend::named("a").await;
    let (good, taken) = (address(), address());
    let other = std::net::TcpListener::bind(taken).unwrap();
    let rules = || vec![rule(vec![path_prefix("/")], to(&backend))];
    let bind = || Bind { tls: false, listeners: vec![listener(None, rules())] };
    let both = model(vec![(good, bind()), (taken, bind())]);
    let proxy = Proxy::start(settings()).unwrap();
    let faults = soon(proxy.publish(Arc::clone(&both))).await;
    assert_eq!(faults.len(), 1);
    assert_eq!((faults[0].address, faults[0].error.kind()), (taken, std::io::ErrorKind::AddrInUse));
    assert_eq!(get(good, "a", "/").await.status, 200);
    drop(other);
    assert!(soon(proxy.publish(Arc::clone(&both))).await.is_empty());
    assert_eq!(get(taken, "a", "/").await.status, 200);
    let second = Proxy::start(settings()).unwrap();
    assert_eq!(soon(second.publish(both)).await.len(), 2);
}

#[tokio::test]
async fn address_that_is_not_here_yet_can_be_listened_on() {
    let address: SocketAddr = "198.18.77.77:8080".parse().unwrap();
    let address6: SocketAddr = "[2001:db8::7777]:8080".parse().unwrap();
    let bind = || Bind { tls: false, listeners: vec![listener(None, Vec::new())] };
    let _proxy = serving(settings(), model(vec![(address, bind()), (address6, bind())])).await;
}

#[tokio::test]
async fn connections_of_a_removed_listener_end_after_their_request() {
    let (asked, answer) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, wait) = (Arc::clone(&asked), Arc::clone(&answer));
    let backend = Backend::http1(move |_request| {
        let (told, wait) = (Arc::clone(&told), Arc::clone(&wait));
        async move {
            told.notify_one();
            wait.notified().await;
            Response::new(full("late"))
        }
    })
    .await;
    let (stays, goes) = (address(), address());
    let bind = || Bind {
        tls: false,
        listeners: vec![listener(None, vec![rule(vec![path_prefix("/")], to(&backend))])],
    };
    let proxy = serving(two_workers(), model(vec![(stays, bind()), (goes, bind())])).await;
    let mut busy = connect(goes).await;
    let mut idle = connect(goes).await;
    idle.write_all(b"GET").await.unwrap();
    busy.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    soon(asked.notified()).await;
    assert!(soon(proxy.publish(model(vec![(stays, bind())]))).await.is_empty());
    assert!(tokio::net::TcpStream::connect(goes).await.is_err(), "the socket is closed");
    answer.notify_one();
    let response = read_response(&mut busy).await;
    assert_eq!((response.status, response.body.as_str()), (200, "late"));
    assert_eq!(soon(busy.read(&mut [0])).await.unwrap(), 0, "closed after its request");
    // And comes back.
    assert!(soon(proxy.publish(model(vec![(stays, bind()), (goes, bind())]))).await.is_empty());
    let mut again = connect(goes).await;
    again.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    soon(asked.notified()).await;
    answer.notify_one();
    assert_eq!(read_response(&mut again).await.status, 200);
}

#[tokio::test]
async fn drain_lets_requests_finish_and_cuts_what_is_left_at_the_deadline() {
    let (asked, answer) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, wait) = (Arc::clone(&asked), Arc::clone(&answer));
    let backend = Backend::http1(move |_request| {
        let (told, wait) = (Arc::clone(&told), Arc::clone(&wait));
        async move {
            told.notify_one();
            wait.notified().await;
            Response::new(full("late"))
        }
    })
    .await;
    let (proxy, address) = forwarding(to(&backend)).await;
    let mut busy = connect(address).await;
    busy.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    soon(asked.notified()).await;
    let mut http2 = http2(address).await;
    let ask = move || Request::get(format!("http://{address}/")).body(empty()).unwrap();
    let open = http2.send_request(ask());
    soon(asked.notified()).await;
    // One that has said nothing holds nothing up.
    let silent = connect(address).await;
    let drained = tokio::spawn(async move {
        let begun = std::time::Instant::now();
        proxy.drain(PATIENCE).await;
        begun.elapsed()
    });
    let gone = async {
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    soon(gone).await;
    assert!(!drained.is_finished());
    answer.notify_one();
    answer.notify_waiters();
    let (first, second) = tokio::join!(read_response(&mut busy), async {
        let response = soon(open).await.unwrap();
        collect(response).await.1
    });
    assert_eq!((first.body.as_str(), second.as_str()), ("late", "late"));
    drop((busy, http2));
    assert!(soon(drained).await.unwrap() < PATIENCE / 2);
    drop(silent);

    let (proxy, address) = forwarding(to(&backend)).await;
    let mut stuck = connect(address).await;
    stuck.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    soon(asked.notified()).await;
    soon(proxy.drain(Duration::from_millis(20))).await;
    assert_eq!(soon(stuck.read(&mut [0])).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn weights_are_kept_per_request_and_counted() {
    let backends = [Backend::named("a").await, Backend::named("b").await, Backend::named("c").await];
    let weights = [80, 20, 0];
    let refs = backends.iter().zip(weights).map(|(backend, weight)| {
        backend_ref(&format!("default/{weight}:80"), weight, AppProtocol::Http, &[backend.address])
    });
    let (proxy, address) = forwarding(Action::Forward(service("weighted", refs.collect()))).await;
    let mut stream = connect(address).await;
    let total = 2_000_u32;
    let mut seen = [0_u32; 3];
    for _ in 0..total {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let body = read_response(&mut stream).await.body;
        seen[["a", "b", "c"].iter().position(|name| *name == body).unwrap()] += 1;
    }
    // Five standard deviations of a share of 0.8: one run in a million fails by chance.
    let bound = 5.0 * (0.8 * 0.2 / f64::from(total)).sqrt();
    assert!((f64::from(seen[0]) / f64::from(total) - 0.8).abs() < bound, "{seen:?}");
    assert_eq!(seen[2], 0);
    eventually(|| proxy.stats()["weighted"].backends.iter().all(|backend| backend.active == 0)).await;
    let stats = proxy.stats();
    for ((backend, seen), weight) in stats["weighted"].backends.iter().zip(seen).zip(weights) {
        assert_eq!((backend.requests, backend.weight), (u64::from(seen), weight));
        assert_eq!(backend.responses, [0, u64::from(seen), 0, 0, 0]);
    }
}

#[tokio::test]
async fn filters_change_headers_and_answer_with_redirects() {
    let backend = Backend::echo_head().await;
    let pair = |name: &'static str, value| (HeaderName::from_static(name), HeaderValue::from_static(value));
    let modifier = HeaderModifier {
        set: vec![pair("x-set", "new")],
        add: vec![pair("x-add", "two")],
        remove: vec![HeaderName::from_static("x-gone")],
    };
    let changed = rule(vec![path_prefix("/modified")], to(&backend));
    let filters = vec![Filter::RequestHeaders(modifier.clone()), Filter::ResponseHeaders(modifier)];
    let redirect = Redirect {
        scheme: None,
        hostname: Some("new.example".into()),
        path: Some(PathModifier::Prefix("/there".into())),
        port: None,
        status: StatusCode::PERMANENT_REDIRECT,
    };
    let address = address();
    let rules: Vec<Rule> = vec![
        with_filters(filters, changed),
        with_filters(vec![Filter::Redirect(redirect)], rule(vec![path_prefix("/here")], Action::Answered)),
    ];
    let _proxy = serving(settings(), plain(address, rules)).await;
    let request =
        "GET /modified HTTP/1.1\r\nhost: a\r\nx-set: old\r\nx-set: older\r\nx-add: one\r\nx-gone: 1\r\n\r\n";
    let response = exchange(address, request).await;
    assert!(response.body.contains("x-set: new\n") && !response.body.contains("old"), "{}", response.body);
    assert!(response.body.contains("x-add: one\nx-add: two\n"), "{}", response.body);
    assert!(!response.body.contains("x-gone"), "{}", response.body);
    assert_eq!((response.header("x-set"), response.header("x-add")), (Some("new"), Some("two")));
    let moved = get(address, "old.example", "/here/a%20b?q=1").await;
    assert_eq!(moved.status, 308);
    let expected = format!("http://new.example:{}/there/a%20b?q=1", address.port());
    assert_eq!(moved.header("location"), Some(expected.as_str()));
}

#[tokio::test]
async fn too_many_connections_are_closed_at_once() {
    let backend = Backend::named("a").await;
    let address = address();
    let few = Settings { max_connections: 2, ..settings() };
    let _proxy = serving(few, plain(address, vec![rule(vec![path_prefix("/")], to(&backend))])).await;
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut stream = connect(address).await;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        assert_eq!(read_response(&mut stream).await.status, 200);
        kept.push(stream);
    }
    let mut third = connect(address).await;
    assert_eq!(soon(third.read(&mut [0])).await.unwrap_or(0), 0);
    drop(kept.pop());
    let served = async {
        loop {
            let mut stream = connect(address).await;
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
            if read_head(&mut stream).await.is_some() {
                return;
            }
        }
    };
    soon(served).await;
}
