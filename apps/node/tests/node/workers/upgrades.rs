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
