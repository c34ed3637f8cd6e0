//! Workers that switch protocols.

use reqwest::Method;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::{HOST, Rig};
use crate::visitor::Visitor;

/// Requests a WebSocket. Returns the connection and the head of the response.
async fn websocket(rig: &Rig, path: &str) -> (TcpStream, String) {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    let mut socket = rig.node.visitor.raw(&format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n{upgrade}\r\n")).await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    (socket, String::from_utf8(head).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_can_switch_protocols_only_to_a_requested_websocket() {
    let rig = Rig::simulated(|_| ()).await;
    rig.serves("").await;
    let visitor = &rig.node.visitor;
    // Requests without the headers of an upgrade, for another protocol, and with only one of the two headers.
    let upgrades: [&[(&str, &str)]; 4] = [
        &[],
        &[("connection", "upgrade"), ("upgrade", "h2c")],
        &[("upgrade", "websocket")],
        &[("connection", "upgrade")],
    ];
    for headers in upgrades {
        for method in [Method::GET, Method::HEAD, Method::POST] {
            let request = visitor.request(method, HOST, "/websocket");
            let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            let seen = Visitor::send(request).await;
            assert_eq!((seen.status, seen.header("upgrade")), (502, ""), "{headers:?}: {seen:?}");
            assert!(!seen.body.contains("switched"), "{headers:?}: {seen:?}");
        }
    }
    for path in ["/other-protocol", "/two-protocols", "/no-protocol"] {
        let (_, head) = websocket(&rig, path).await;
        assert!(head.starts_with("HTTP/1.1 502 "), "{path}: {head}");
    }
    let (mut socket, head) = websocket(&rig, "/websocket").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let mut switched = String::new();
    socket.read_to_string(&mut switched).await.unwrap();
    assert_eq!(switched, "switched");
    assert_eq!(visitor.get(HOST, "/").await.body, "from code");
}

#[tokio::test(flavor = "multi_thread")]
async fn streamed_refusal_of_an_upgrade_has_no_chunks_and_ends_the_connection() {
    let rig = Rig::simulated(|_| ()).await;
    rig.serves("").await;
    let requests =
        [("GET", "Connection: Upgrade\r\nUpgrade: websocket\r\n"), ("GET", "Upgrade: WebSocket\r\n"), ("CONNECT", "")];
    for (method, headers) in requests {
        let request = format!("{method} /refusal HTTP/1.1\r\nHost: {HOST}\r\n{headers}\r\n");
        let mut seen = String::new();
        rig.node.visitor.raw(&request).await.read_to_string(&mut seen).await.unwrap();
        assert!(seen.starts_with("HTTP/1.1 403 ") && seen.ends_with("\r\n\r\nrefused"), "{request}{seen}");
        assert!(seen.contains("\r\nconnection: close\r\n") && !seen.contains("transfer-encoding"), "{request}{seen}");
    }
    let request = format!("GET /refusal HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    let seen = rig.node.visitor.raw_answer(&request).await;
    assert!(seen.contains("\r\ntransfer-encoding: chunked\r\n") && seen.ends_with("refused\r\n0\r\n\r\n"), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn code_receives_a_websocket_at_the_path_of_an_asset() {
    let rig = Rig::simulated(|_| ()).await;
    rig.core.deploy("app", &[("worker/index.js", b""), ("assets/websocket", b"asset")]);
    rig.node.visitor.sees(HOST, "/websocket", 200, "asset").await;
    let (_, head) = websocket(&rig, "/websocket").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
}
