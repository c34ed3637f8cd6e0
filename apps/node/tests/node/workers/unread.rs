//! Visitors who do not read their responses, and the limits of requests in flight.

use std::fs;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::{HOST, Rig, workerd};
use crate::running::{eventually, until};
use crate::timeout::TIMEOUT;

const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

const CODE: &str = r#"
const chunk = new Uint8Array(64 * 1024);
const endless = () => new ReadableStream({ pull(controller) { controller.enqueue(chunk); } });
const events = () => new ReadableStream({
  async start(controller) {
    const encoder = new TextEncoder();
    controller.enqueue(encoder.encode("first."));
    await scheduler.wait(4000);
    controller.enqueue(encoder.encode("second."));
    controller.close();
  },
});
const socket = () => {
  const [ours, theirs] = Object.values(new WebSocketPair());
  theirs.accept();
  theirs.addEventListener("message", ({ data }) => {
    for (let i = 0; i < 256 && data === "flood"; i++) theirs.send(chunk);
    theirs.send("echo");
  });
  return new Response(null, { status: 101, webSocket: ours });
};
export default {
  fetch(request) {
    switch (new URL(request.url).pathname) {
      case "/endless": return new Response(endless());
      case "/events": return new Response(events());
      case "/ws": return socket();
      default: return new Response("from code");
    }
  },
};
"#;

/// Starts a node on which each client has this number of requests in flight.
async fn start(requests_of_client: usize, write_timeout: Duration) -> Option<Rig> {
    let rig = Rig::start_node(workerd()?, |config| {
        config.workers.as_mut().unwrap().max_in_flight = 4 * requests_of_client;
        config.write_timeout = write_timeout;
        config.proxies = "127.0.0.1/32".parse().unwrap();
    });
    let rig = rig.await;
    rig.core.deploy("app", &[("worker/index.js", CODE.as_bytes()), ("assets/large.bin", &vec![0; 32 << 20])]);
    rig.node.visitor.sees(HOST, "/", 200, "from code").await;
    Some(rig)
}

/// Sends a GET request and reads the head of the response.
async fn begin(rig: &Rig, path: &str, headers: &str) -> TcpStream {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n{headers}\r\n");
    let mut connection = rig.node.visitor.raw(&request).await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 ") || head.starts_with("HTTP/1.1 101 "), "{head}");
    connection
}

async fn open_websocket(rig: &Rig) -> TcpStream {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
    begin(rig, "/ws", &format!("{upgrade}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")).await
}

/// Sends a text message, masked with zeros.
async fn send_message(socket: &mut TcpStream, text: &str) {
    let frame = [&[0x81, 0x80 | u8::try_from(text.len()).unwrap(), 0, 0, 0, 0], text.as_bytes()].concat();
    socket.write_all(&frame).await.unwrap();
}

/// Waits until the node has closed a connection from which the client does not read.
async fn is_closed(connection: &mut TcpStream) {
    eventually("the end of the connection", async || connection.write_all(b"\r\n").await.err()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_responses_end() {
    let Some(rig) = start(1, WRITE_TIMEOUT).await else { return };
    let mut stream = begin(&rig, "/endless", "").await;
    rig.node.visitor.sees(HOST, "/", 200, "from code").await;
    is_closed(&mut stream).await;

    let mut socket = open_websocket(&rig).await;
    send_message(&mut socket, "flood").await;
    rig.node.visitor.sees(HOST, "/", 200, "from code").await;

    let mut asset = begin(&rig, "/large.bin", "").await;
    is_closed(&mut asset).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_without_data_to_send_stays_open() {
    let Some(rig) = start(2, WRITE_TIMEOUT).await else { return };
    let mut socket = open_websocket(&rig).await;
    let mut events = begin(&rig, "/events", "Connection: close\r\n").await;
    sleep(3 * WRITE_TIMEOUT).await;
    send_message(&mut socket, "hello").await;
    let mut echo = [0; 6];
    timeout(TIMEOUT, socket.read_exact(&mut echo)).await.unwrap().unwrap();
    assert_eq!(&echo, b"\x81\x04echo");
    let mut received = String::new();
    timeout(TIMEOUT, events.read_to_string(&mut received)).await.unwrap().unwrap();
    assert!(
        received.contains("first.") && received.contains("second.") && received.ends_with("0\r\n\r\n"),
        "{received}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn client_gets_a_quarter_of_the_requests_in_flight() {
    let Some(rig) = start(2, TIMEOUT).await else { return };
    let seen_by = async |client: &str| rig.node.visitor.get_with(HOST, "/", &[("x-forwarded-for", client)]).await;
    for (clients, other) in
        [(["192.0.2.1", "192.0.2.1"], "192.0.2.2"), (["2001:db8::1", "2001:db8::2"], "2001:db8:0:1::1")]
    {
        let mut held = Vec::new();
        for client in clients {
            held.push(begin(&rig, "/endless", &format!("X-Forwarded-For: {client}\r\n")).await);
        }
        for client in clients {
            let refused = seen_by(client).await;
            assert_eq!((refused.status, refused.header("retry-after")), (429, "1"), "{client}: {refused:?}");
        }
        assert_eq!(seen_by(other).await.status, 200, "{other}");
        drop(held);
        eventually("the end of the requests", async || (seen_by(clients[0]).await.status == 200).then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_applies_to_requests_that_wait_for_a_start() {
    let Some(workerd) = workerd() else { return };
    let rig = Rig::start_node(workerd, |config| {
        let workers = config.workers.as_mut().unwrap();
        (workers.max_in_flight, workers.idle) = (4, Duration::from_secs(1));
        config.proxies = "127.0.0.1/32".parse().unwrap();
    });
    let rig = rig.await;
    rig.serves(CODE).await;
    let run = rig.dir.path().join("run");
    // After the idle process exits, only the socket of the bindings is left.
    until("exit of the idle worker", || fs::read_dir(&run).unwrap().count() == 1).await;
    let responses = join_all((0..12).map(|client| {
        let request = rig.node.visitor.request(Method::GET, HOST, "/endless");
        request.header("x-forwarded-for", format!("192.0.2.{client}")).send()
    }));
    // All responses are kept, so the admitted requests stay in flight.
    let responses = responses.await;
    let statuses = responses.iter().map(|response| response.as_ref().unwrap().status().as_u16());
    let mut statuses: Vec<u16> = statuses.collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![200; 4], vec![503; 8]].concat());
}
