//! Outgoing connections of workers.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use sandbox::Certificate;
use testkit::reserved_address;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::name_server::NameServer;
use super::{HOST, Rig, workerd};
use crate::control_plane::{ControlPlane, State};
use crate::running::{Dir, environment, until};
use crate::visitor::{Visitor, VisitorResponse};

const CLIENT: &str = r#"
import { connect } from "cloudflare:sockets";
export default {
  async fetch(request) {
    const url = new URL(request.url), to = url.searchParams.get("to");
    try {
      if (url.pathname === "/connect") {
        const socket = connect(to, { secureTransport: url.searchParams.get("tls") ?? "off" });
        const writer = socket.writable.getWriter();
        await writer.write(new TextEncoder().encode("over a socket"));
        await writer.close();
        return new Response(await new Response(socket.readable).text());
      }
      if (url.pathname === "/websocket") {
        const { webSocket } = await fetch(to, { headers: { upgrade: "websocket" } });
        webSocket.accept();
        const echo = new Promise(resolve => webSocket.addEventListener("message", event => resolve(event.data)));
        webSocket.send("over a websocket");
        return new Response(await echo);
      }
      const { method, body } = request;
      const response = await fetch(to, { method, body, headers: { host: "forged", cookie: "a=b" } });
      const headers = new Headers(response.headers);
      headers.set("x-origin-status", response.status);
      return new Response(response.body, { headers });
    } catch (error) { return new Response("refused: " + error); }
  },
};
"#;

const ECHO: &str = r#"
export default {
  async fetch(request) {
    if (request.headers.get("upgrade") === "websocket") {
      const [ours, theirs] = Object.values(new WebSocketPair());
      theirs.accept();
      theirs.addEventListener("message", event => theirs.send("echo " + event.data));
      return new Response(null, { status: 101, webSocket: ours });
    }
    return Response.json([request.method, request.url, request.headers.get("cookie"), await request.text()]);
  },
};
"#;

const DENIED: (&str, &str) = ("403", "svc-node; error=destination_ip_prohibited");
/// The response is the same whether or not the name exists.
const NO_PUBLIC_ADDRESS: (&str, &str) = ("502", "svc-node; error=dns_error");

/// Starts a node whose workers may connect to 127.0.0.1, which stands for a public address. Also returns its name
/// server.
async fn rig() -> Option<(Rig, NameServer)> {
    let names = NameServer::start().await;
    let rig = Rig::start_with(|workers| {
        workers.egress.allow = "127.0.0.1/32".parse().unwrap();
        workers.egress.resolver = Some(names.address);
    });
    let rig = rig.await?;
    rig.serves(CLIENT).await;
    Some((rig, names))
}

/// Returns the status of the origin or the proxy, and the proxy's reason.
fn outcome(seen: &VisitorResponse) -> (&str, &str) {
    (seen.header("x-origin-status"), seen.header("proxy-status"))
}

async fn fetched(rig: &Rig, to: &str) -> VisitorResponse {
    rig.node.visitor.get(HOST, &format!("/?to={to}")).await
}

/// Starts an origin that sends a response with this head to each connection, and closes it. Returns its port and the
/// number of connections.
fn origin(address: Ipv4Addr, head: String) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let (port, connections) = (listener.local_addr().unwrap().port(), Arc::<AtomicUsize>::default());
    let counter = Arc::clone(&connections);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            counter.fetch_add(1, Ordering::Relaxed);
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(stream, "HTTP/1.1 {head}\r\nContent-Length: 6\r\n\r\norigin");
        }
    });
    (port, connections)
}

#[tokio::test(flavor = "multi_thread")]
async fn allowed_origin_is_reached_by_fetch_websocket_and_socket() {
    let Some((rig, _names)) = rig().await else { return };
    rig.core.deploy("two", &[("worker/index.js", ECHO.as_bytes())]);
    rig.observes("two", State::Serving).await;
    let front = rig.node.visitor.address();
    // Names below `localhost` lead to 127.0.0.1.
    let two = format!("http://two.localhost:{}", front.port());

    for _ in 0..2 {
        let request = rig.node.visitor.request(reqwest::Method::POST, HOST, &format!("/?to={two}/p?q=1")).body("sent");
        let seen = Visitor::send(request).await;
        assert_eq!(seen.header("x-origin-status"), "200", "{seen:?}");
        assert_eq!(seen.body, format!(r#"["POST","{two}/p?q=1","a=b","sent"]"#));
    }
    let seen = rig.node.visitor.get(HOST, &format!("/websocket?to={two}/")).await;
    assert_eq!(seen.body, "echo over a websocket");

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let path = format!("/connect?to=127.0.0.1:{port}");
    let (seen, ()) = tokio::join!(rig.node.visitor.get(HOST, &path), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = String::new();
        stream.read_to_string(&mut received).await.unwrap();
        stream.write_all(received.to_uppercase().as_bytes()).await.unwrap();
    });
    assert_eq!(seen.body, "OVER A SOCKET");
    // TLS over sockets is not supported. Nothing is sent in plain text instead.
    let seen = rig.node.visitor.get(HOST, &format!("{path}&tls=on")).await;
    assert!(seen.body.starts_with("refused: "), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_to_a_private_address_is_refused() {
    let Some((rig, names)) = rig().await else { return };
    let (private, connections) = origin(Ipv4Addr::new(127, 0, 0, 2), "200 OK".to_owned());
    names.set("private.test", &[&[Ipv4Addr::new(127, 0, 0, 2)]]);
    for (host, refusal) in [("127.0.0.2", DENIED), ("[::ffff:127.0.0.2]", DENIED), ("private.test", NO_PUBLIC_ADDRESS)]
    {
        let location = format!("302 Found\r\nLocation: http://{host}:{private}/");
        let (public, _) = origin(Ipv4Addr::LOCALHOST, location);
        let seen = fetched(&rig, &format!("http://127.0.0.1:{public}/")).await;
        assert_eq!(outcome(&seen), refusal, "{seen:?}");
    }
    assert_eq!(connections.load(Ordering::Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn name_leads_only_to_addresses_that_were_checked() {
    let Some((rig, names)) = rig().await else { return };
    let (public, denied) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2));
    let (port, connections) = origin(public, "200 OK".to_owned());
    let private = TcpListener::bind((denied, port)).unwrap();
    private.set_nonblocking(true).unwrap();

    names.set("private.test", &[&[denied, Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(169, 254, 169, 254)]]);
    let seen = fetched(&rig, &format!("http://private.test:{port}/")).await;
    assert_eq!(outcome(&seen), NO_PUBLIC_ADDRESS, "{seen:?}");
    let seen = rig.node.visitor.get(HOST, &format!("/connect?to=private.test:{port}")).await;
    assert!(seen.body.starts_with("refused: "), "{seen:?}");

    // Rebinding: the first answer is public, all others are private.
    names.set("rebound.test", &[&[public], &[denied]]);
    let seen = fetched(&rig, &format!("http://rebound.test:{port}/")).await;
    assert_eq!((seen.header("x-origin-status"), seen.body.as_str()), ("200", "origin"), "{seen:?}");
    assert_eq!(names.queries("rebound.test"), 1, "the connection used another answer than the check");
    // The next query may have the same id.
    names.set("rebound.test", &[&[denied]]);
    let seen = fetched(&rig, &format!("http://rebound.test:{port}/")).await;
    assert_eq!(outcome(&seen), NO_PUBLIC_ADDRESS, "{seen:?}");

    // The proxy ignores the private addresses of a name that also has a public one.
    names.set("mixed.test", &[&[denied, public]]);
    let seen = fetched(&rig, &format!("http://mixed.test:{port}/")).await;
    assert_eq!((seen.header("x-origin-status"), seen.body.as_str()), ("200", "origin"), "{seen:?}");

    // The origin closes each connection without the header `Connection: close`, so the proxy must not reuse it.
    for _ in 0..5 {
        let seen = fetched(&rig, &format!("http://127.0.0.1:{port}/")).await;
        assert_eq!((seen.header("x-origin-status"), seen.body.as_str()), ("200", "origin"), "{seen:?}");
    }

    names.set("empty.test", &[&[]]);
    let seen = fetched(&rig, "http://empty.test/").await;
    assert_eq!(outcome(&seen), NO_PUBLIC_ADDRESS);
    assert!(private.accept().is_err(), "a worker reached a private address");
    assert_eq!(connections.load(Ordering::Relaxed), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_of_an_https_origin_is_verified() {
    let Some(workerd) = workerd() else { return };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (core, dir, names, certificate) =
        (ControlPlane::start().await, Dir::new(), NameServer::start().await, Certificate::generate());
    let origin = https_origin(&certificate).await;
    let authority = dir.path().join("authority.pem");
    std::fs::write(&authority, certificate.authority()).unwrap();
    core.deploy("app", &[("worker/index.js", CLIENT.as_bytes())]);
    names.set("other.test", &[&[Ipv4Addr::LOCALHOST]]);
    let front = reserved_address();
    let mut node = Command::new(env!("CARGO_BIN_EXE_svc-node"));
    node.env_clear().envs(environment(&core, &dir)).env("SVC_EDGE_LISTEN", front.to_string());
    node.env("SVC_NODE_WORKERD", workerd).env("SVC_NODE_EGRESS_ALLOW", "127.0.0.1/32");
    node.env("SVC_NODE_EGRESS_RESOLVER", names.address.to_string()).env("SSL_CERT_FILE", authority);
    let mut node = node.spawn().unwrap();
    until("the front", || std::net::TcpStream::connect(front).is_ok()).await;
    let visitor = Visitor::new(front);
    let path = |host: &str| format!("/?to=https://{host}:{}/", origin.port());
    let seen = visitor.sees(HOST, &path("localhost"), 200, "over TLS").await;
    assert_eq!(seen.header("x-origin-status"), "200");
    // The certificate is for another name.
    let seen = visitor.get(HOST, &path("other.test")).await;
    assert_eq!(seen.header("proxy-status"), "svc-node; error=tls_certificate_error", "{seen:?}");
    kill_process(Pid::from_child(&node), Signal::TERM).unwrap();
    node.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn response_with_a_long_head_is_refused() {
    let Some((rig, _names)) = rig().await else { return };
    for (bytes, expected) in [(32 << 10, ("200", "")), (256 << 10, ("502", "svc-node; error=connection_terminated"))] {
        let (port, _) = origin(Ipv4Addr::LOCALHOST, format!("200 OK\r\nX-Long: {}", "x".repeat(bytes)));
        let seen = fetched(&rig, &format!("http://127.0.0.1:{port}/")).await;
        assert_eq!(outcome(&seen), expected, "{bytes}");
    }
}

async fn https_origin(certificate: &Certificate) -> SocketAddr {
    let (listener, acceptor) =
        (tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap(), certificate.acceptor().clone());
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nover TLS").await;
            let _ = stream.shutdown().await;
        }
    });
    address
}
