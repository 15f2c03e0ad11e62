//! Upgrades: a tunnel, but only after the backend has agreed.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::*;

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
                       sec-websocket-key: x\r\n\r\n";

#[tokio::test]
async fn tunnel_carries_bytes_both_ways_after_101() {
    let backend = Backend::raw(|mut stream| async move {
        let head = read_head(&mut stream).await.unwrap().to_lowercase();
        assert!(head.contains("\r\nconnection: upgrade\r\n") && head.contains("\r\nupgrade: websocket\r\n"));
        let answer =
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nfirst";
        stream.write_all(answer).await.unwrap();
        let (mut read, mut write) = stream.split();
        tokio::io::copy(&mut read, &mut write).await.unwrap();
    })
    .await;
    let (proxy, address) = forwarding(to(&backend)).await;
    let mut stream = connect(address).await;
    // What follows the head at once belongs to the tunnel too.
    stream.write_all(format!("{UPGRADE}early").as_bytes()).await.unwrap();
    let head = soon(read_head(&mut stream)).await.unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.to_lowercase().contains("\r\nupgrade: websocket\r\n"), "{head}");
    let mut read = [0; 10];
    soon(stream.read_exact(&mut read)).await.unwrap();
    assert_eq!(&read, b"firstearly");
    let large = vec![7; 1 << 20];
    let (mut reader, mut writer) = stream.split();
    let mut echoed = vec![0; large.len()];
    let (sent, got) = tokio::join!(writer.write_all(&large), soon(reader.read_exact(&mut echoed)));
    sent.unwrap();
    got.unwrap();
    assert!(echoed == large);
    let active = |proxy: &gateway_daemon::l7::Proxy| -> u64 {
        proxy.stats().values().flat_map(|service| &service.backends).map(|backend| backend.active).sum()
    };
    assert_eq!(active(&proxy), 1);
    drop(stream);
    eventually(|| active(&proxy) == 0).await;
}

#[tokio::test]
async fn refused_upgrade_leaves_the_connection_to_http() {
    let backend = Backend::canned("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno").await;
    let (_proxy, address) = forwarding(to(&backend)).await;
    let mut stream = connect(address).await;
    for _ in 0..2 {
        stream.write_all(UPGRADE.as_bytes()).await.unwrap();
        let response = read_response(&mut stream).await;
        assert_eq!((response.status, response.body.as_str()), (200, "no"));
    }
}

#[tokio::test]
async fn upgrade_with_a_body_is_not_forwarded_as_one() {
    let backend = Backend::echo_head().await;
    let (_proxy, address) = forwarding(to(&backend)).await;
    let request = "POST / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                   content-length: 2\r\n\r\nab";
    let response = exchange(address, request).await;
    assert_eq!(response.status, 200);
    assert!(!response.body.contains("upgrade"), "{}", response.body);
}

#[tokio::test]
async fn backend_that_switches_unasked_is_at_fault() {
    let backend =
        Backend::canned("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")
            .await;
    let (_proxy, address) = forwarding(to(&backend)).await;
    assert_eq!(get(address, "a", "/").await.status, 502);
}
