//! Requests that are answered, and the statuses of those that are not.

use gateway_daemon::model::l7::{Action, AppProtocol, BackendRef, Target};
use tokio::io::AsyncWriteExt as _;

use crate::support::*;

#[tokio::test]
async fn request_is_forwarded_and_connections_are_kept() {
    let backend = Backend::echo_head().await;
    let (_proxy, address) = forwarding(to(&backend)).await;
    let mut stream = connect(address).await;
    for _ in 0..3 {
        stream.write_all(b"GET /a?b=c HTTP/1.1\r\nhost: a.example:8080\r\n\r\n").await.unwrap();
        let response = read_response(&mut stream).await;
        assert_eq!(response.status, 200);
        assert!(response.body.starts_with("GET /a?b=c HTTP/1.1\n"), "{}", response.body);
        assert!(response.body.contains("\nhost: a.example:8080\n"), "{}", response.body);
        assert!(response.body.contains("\nx-forwarded-for: 127.0.0.1\n"), "{}", response.body);
        assert!(response.body.contains("\nx-forwarded-proto: http\n"), "{}", response.body);
    }
    assert_eq!(backend.connections.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[tokio::test]
async fn failures_have_their_status() {
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let closing = Backend::raw(|mut stream| async move {
        read_head(&mut stream).await;
    })
    .await;
    let garbage = Backend::canned("SSH-2.0-OpenSSH\r\n\r\n").await;
    let invalid = BackendRef { name: "x".into(), weight: 1, target: Target::Invalid("missing".into()) };
    let rows: Vec<(&str, Action, u16)> = vec![
        ("/none", Action::NoBackend, 500),
        ("/unusable", Action::Unusable("x".into()), 500),
        ("/invalid", Action::Forward(service("invalid", vec![invalid])), 500),
        (
            "/zero",
            Action::Forward(service("zero", vec![backend_ref("x", 0, AppProtocol::Http, &[gone])])),
            500,
        ),
        ("/empty", to_endpoints(AppProtocol::Http, &[]), 503),
        ("/refused", to_endpoints(AppProtocol::Http, &[gone]), 502),
        ("/refused-h2", to_endpoints(AppProtocol::H2c, &[gone]), 502),
        ("/closing", to(&closing), 502),
        ("/garbage", to(&garbage), 502),
        ("/garbage-h2", to_endpoints(AppProtocol::H2c, &[garbage.address]), 502),
    ];
    let address = address();
    let rules = rows.iter().map(|(path, action, _)| rule(vec![path_prefix(path)], action.clone())).collect();
    let _proxy = serving(settings(), plain(address, rules)).await;
    for (path, _, status) in &rows {
        let response = get(address, "a.example", path).await;
        assert_eq!(response.status, *status, "{path}: {response:?}");
        assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
        assert!(!response.body.is_empty() && !response.body.contains("127.0"), "{path}: {}", response.body);
    }
    assert_eq!(get(address, "a.example", "/elsewhere").await.status, 404);
}
