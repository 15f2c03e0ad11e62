//! HTTP/1.1: framing, what belongs to one connection only, and connections that are just being closed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use gateway_daemon::{
    l7::Settings,
    model::l7::{AppProtocol, Hostname},
};
use http::Response;
use http_body_util::BodyExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::support::*;

/// Whether the other side closes, with whatever it still says.
async fn closes(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    soon(stream.read_to_end(&mut rest)).await.is_ok()
}

#[tokio::test]
async fn malformed_and_ambiguous_requests_are_refused() {
    let backend = Backend::echo_head().await;
    let (_proxy, address) = forwarding(to(&backend)).await;
    let rows = [
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        "POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a@b\r\n\r\n",
        "GET /a/../b HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET /a/%2e%2e/b HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET /a/./b HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET * HTTP/1.1\r\nhost: a\r\n\r\n",
        "nonsense\r\n\r\n",
    ];
    for row in rows {
        let mut stream = connect(address).await;
        stream.write_all(row.as_bytes()).await.unwrap();
        assert_eq!(read_response(&mut stream).await.status, 400, "{row}");
        assert!(closes(&mut stream).await, "{row}");
    }
    assert_eq!(backend.connections.load(Relaxed), 0);
    // The same on a connection that has served before, and a body that only looks like a head.
    let mut stream = connect(address).await;
    let chunked = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    let body = "16\r\n\r\ncontent-length: 12\r\n\r\n0\r\n\r\n";
    for _ in 0..2 {
        stream.write_all(format!("{chunked}{body}").as_bytes()).await.unwrap();
        assert_eq!(read_response(&mut stream).await.status, 200);
    }
    stream.write_all(rows[0].as_bytes()).await.unwrap();
    assert_eq!(read_response(&mut stream).await.status, 400);
}

#[tokio::test]
async fn targets_and_hosts_are_understood_in_every_form() {
    let backend = Backend::echo_head().await;
    let address = address();
    let named = |name: &str| Some(Hostname::Exact(name.into()));
    let rules = |path: &str| vec![rule(vec![path_prefix(path)], to(&backend))];
    let listeners = vec![listener(named("a.example"), rules("/")), listener(None, rules("/any"))];
    let bind = gateway_daemon::model::l7::Bind { tls: false, listeners };
    let _proxy = serving(settings(), model(vec![(address, bind)])).await;
    let rows = [
        ("GET / HTTP/1.1\r\nhost: A.example:99\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nhost: a.example.\r\n\r\n", 200),
        ("GET http://a.example/x HTTP/1.1\r\nhost: b.example\r\n\r\n", 200),
        ("GET http://b.example/x HTTP/1.1\r\nhost: a.example\r\n\r\n", 404),
        ("GET / HTTP/1.1\r\nhost: b.example\r\n\r\n", 404),
        ("GET /any HTTP/1.1\r\nhost: b.example\r\n\r\n", 200),
        // The listener of a.example has no such rule, and the other one is not asked.
        ("GET /any HTTP/1.0\r\n\r\n", 200),
        ("OPTIONS * HTTP/1.1\r\nhost: a.example\r\n\r\n", 200),
        ("CONNECT a.example:443 HTTP/1.1\r\nhost: a.example:443\r\n\r\n", 405),
    ];
    for (request, status) in rows {
        let response = exchange(address, request).await;
        assert_eq!(response.status, status, "{request}: {response:?}");
    }
    let absolute = exchange(address, rows[2].0).await.body;
    assert!(
        absolute.starts_with("GET /x HTTP/1.1\n") && absolute.contains("\nhost: a.example\n"),
        "{absolute}"
    );
}

#[tokio::test]
async fn headers_of_one_connection_stay_on_it() {
    let backend = Backend::raw(|mut stream| async move {
        let head = read_head(&mut stream).await.unwrap();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nconnection: x-hop, keep-alive\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\n\
             upgrade: h2c\r\nx-end: 1\r\ncontent-length: {}\r\n\r\n{head}",
            head.len()
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
    })
    .await;
    let (_proxy, address) = forwarding(to(&backend)).await;
    let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: x-hop, close, upgrade, http2-settings\r\nx-hop: 1\r\n\
                   keep-alive: timeout=9\r\nproxy-connection: keep-alive\r\nupgrade: h2c\r\nhttp2-settings: AA\r\n\
                   te: trailers, gzip\r\nx-end: 1\r\nx-forwarded-for: 198.18.0.9\r\n\
                   x-forwarded-proto: https\r\nx-forwarded-host: evil\r\n\r\n";
    let response = exchange(address, request).await;
    for name in ["x-hop", "keep-alive", "upgrade"] {
        assert_eq!(response.header(name), None, "{}", response.head);
    }
    assert_eq!(response.header("x-end"), Some("1"));
    let forwarded = Raw { status: 0, head: response.body, body: String::new() };
    for name in ["x-hop", "keep-alive", "proxy-connection", "upgrade", "http2-settings"] {
        assert_eq!(forwarded.header(name), None, "{}", forwarded.head);
    }
    assert_eq!(forwarded.header("te"), Some("trailers"));
    assert_eq!(forwarded.header("connection"), Some("te"));
    assert_eq!(forwarded.header("x-end"), Some("1"));
    assert_eq!(forwarded.header("x-forwarded-for"), Some("198.18.0.9, 127.0.0.1"));
    assert_eq!(forwarded.header("x-forwarded-proto"), Some("http"));
    assert_eq!(forwarded.header("x-forwarded-host"), Some("a"));
}

#[tokio::test]
async fn responses_are_framed_anew() {
    let rows = [
        // method, what the backend says, what the client gets: status, content-length, body
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", 200, Some("5"), ""),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n", 204, None, ""),
        ("GET", "HTTP/1.1 304 Not Modified\r\netag: x\r\n\r\n", 304, None, ""),
        (
            "GET",
            "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            200,
            Some("2"),
            "ok",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            200,
            None,
            "2\r\nok\r\n0\r\n\r\n",
        ),
    ];
    for (method, answer, status, length, body) in rows {
        let backend = Backend::canned(answer).await;
        let (_proxy, address) = forwarding(to(&backend)).await;
        let mut stream = connect(address).await;
        // Twice, so that bytes that were framed wrongly would be met.
        for _ in 0..2 {
            let request = format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let head = soon(read_head(&mut stream)).await.unwrap();
            let response = Raw { status: head[9..12].parse().unwrap(), head, body: String::new() };
            assert_eq!((response.status, response.header("content-length")), (status, length), "{answer}");
            let mut read = vec![0; body.len()];
            soon(stream.read_exact(&mut read)).await.unwrap();
            assert_eq!(read, body.as_bytes(), "{answer}");
        }
    }
}

#[tokio::test]
async fn continue_is_said_once_and_only_when_the_body_is_wanted() {
    let backend = Backend::http1(|request| async move {
        let text = head_text(&request);
        let (_, body, _) = collect(Response::new(request.into_body())).await;
        Response::new(full(text + &body))
    })
    .await;
    let address = address();
    let rules = vec![rule(vec![path_prefix("/a")], to(&backend))];
    let _proxy = serving(settings(), plain(address, rules)).await;
    let head = "HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n";
    let mut stream = connect(address).await;
    stream.write_all(format!("POST /a {head}").as_bytes()).await.unwrap();
    assert!(soon(read_head(&mut stream)).await.unwrap().starts_with("HTTP/1.1 100"));
    stream.write_all(b"hello").await.unwrap();
    let response = read_response(&mut stream).await;
    assert_eq!(response.status, 200);
    assert!(response.body.ends_with("hello") && !response.body.contains("expect"), "{}", response.body);
    let refused = exchange(address, &format!("POST /none {head}")).await;
    assert_eq!(refused.status, 404);
}

#[tokio::test]
async fn trailers_pass_both_ways_and_a_get_may_have_a_body() {
    let backend = Backend::http1(|request| async move {
        let (_, body, trailers) = collect(Response::new(request.into_body())).await;
        let sum = trailers.and_then(|all| all.get("x-sum").cloned()).expect("a trailer");
        let trailers = http::HeaderMap::from_iter([(http::HeaderName::from_static("x-sum"), sum)]);
        let body = http_body_util::Full::new(body.into());
        let body = body.with_trailers(async move { Some(Ok(trailers)) }).boxed();
        let response = Response::builder().header("trailer", "x-sum").header("transfer-encoding", "chunked");
        response.body(body).unwrap()
    })
    .await;
    let (_proxy, address) = forwarding(to(&backend)).await;
    for method in ["GET", "POST"] {
        let request = format!(
            "{method} / HTTP/1.1\r\nhost: a\r\nte: trailers\r\ntrailer: x-sum\r\n\
             transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n"
        );
        let response = exchange(address, &request).await;
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(response.body, "2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n");
    }
}

#[tokio::test]
async fn early_response_reaches_a_client_that_is_still_sending() {
    let backend = Backend::raw(|mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
        // Reads on, as a server that lingers does.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    })
    .await;
    let address = address();
    let rules = vec![rule(vec![path_prefix("/a")], to(&backend))];
    let _proxy = serving(settings(), plain(address, rules)).await;
    for (path, status) in [("/a", 413), ("/none", 404)] {
        let mut stream = connect(address).await;
        let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 3000000\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b'x'; 2_000_000]).await.unwrap();
        assert_eq!(read_response(&mut stream).await.status, status, "{path}");
    }
}

/// Answers `answered` requests on its first connection and closes it when the next one has arrived.
async fn closing_after(answered: usize) -> Backend {
    let first = Arc::new(AtomicUsize::new(0));
    Backend::raw(move |mut stream| {
        let index = first.fetch_add(1, Relaxed);
        async move {
            let mut served = 0;
            while read_head(&mut stream).await.is_some() && (index > 0 || served < answered) {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
                served += 1;
            }
        }
    })
    .await
}

#[tokio::test]
async fn connection_that_closes_under_a_request_is_replaced_once_where_that_is_safe() {
    for (request, status) in [
        ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", 200),
        ("DELETE / HTTP/1.1\r\nhost: a\r\n\r\n", 200),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n", 502),
        ("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nab", 502),
    ] {
        let backend = closing_after(1).await;
        let (_proxy, address) = forwarding(to(&backend)).await;
        let mut stream = connect(address).await;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        assert_eq!(read_response(&mut stream).await.status, 200);
        stream.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(read_response(&mut stream).await.status, status, "{request}");
    }
    // On a new connection the backend has had its chance.
    let backend = closing_after(0).await;
    let (_proxy, address) = forwarding(to(&backend)).await;
    assert_eq!(get(address, "a", "/").await.status, 502);
}

#[tokio::test]
async fn idle_connections_to_endpoints_are_closed() {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let backend = Backend::raw(move |mut stream| {
        let count = Arc::clone(&count);
        async move {
            while read_head(&mut stream).await.is_some() {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            }
            count.fetch_add(1, Relaxed);
        }
    })
    .await;
    let address = address();
    let rules = vec![rule(vec![path_prefix("/")], to(&backend))];
    let short = Settings { pool_idle_timeout: Duration::from_millis(50), ..settings() };
    let _proxy = serving(short, plain(address, rules)).await;
    assert_eq!(get(address, "a", "/").await.status, 200);
    eventually(|| ended.load(Relaxed) == 1).await;
}

#[tokio::test]
async fn silent_client_is_let_go() {
    let backend = Backend::named("a").await;
    let address = address();
    let rules = vec![rule(vec![path_prefix("/")], to(&backend))];
    let short = Settings {
        handshake_timeout: Duration::from_millis(50),
        client_idle_timeout: Duration::from_millis(50),
        ..settings()
    };
    let _proxy = serving(short, plain(address, rules)).await;
    for sent in ["", "PRI", "GET / HTTP/1.1\r\nhost", "GET / HTTP/1.1\r\nhost: a\r\n\r\n"] {
        let mut stream = connect(address).await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        assert!(closes(&mut stream).await, "{sent:?}");
    }
}

#[tokio::test]
async fn endpoint_that_does_not_accept_costs_504_and_another_one_is_tried() {
    // A full queue of connections: the kernel drops what comes.
    let silent = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    silent.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    silent.listen(0).unwrap();
    let deaf = silent.local_addr().unwrap().as_socket().unwrap();
    let _fills = connect(deaf).await;
    let backend = Backend::named("there").await;
    let address = address();
    let rules = vec![
        rule(vec![path_prefix("/deaf")], to_endpoints(AppProtocol::Http, &[deaf])),
        rule(vec![path_prefix("/both")], to_endpoints(AppProtocol::Http, &[deaf, backend.address])),
    ];
    let quick = Settings { connect_timeout: Duration::from_millis(100), ..settings() };
    let _proxy = serving(quick, plain(address, rules)).await;
    assert_eq!(get(address, "a", "/deaf").await.status, 504);
    for _ in 0..8 {
        assert_eq!(get(address, "a", "/both").await.body, "there");
    }
}
