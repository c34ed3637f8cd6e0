//! Requests to workers.

use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::{Body, Method};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{HOST, Rig, workerd};
use crate::control_plane::{ControlPlane, sha256};
use crate::node_process::NodeProcess;
use crate::running::eventually;
use crate::visitor::Visitor;

const ECHO: &str = r#"
import { greeting } from "./lib/greeting.js";
import text from "./lib/text.txt";
import data from "./lib/data.json";
import bytes from "./lib/raw.bin";
import common from "./lib/common.cjs";

export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    if (url.pathname === "/modules") {
      return Response.json([greeting, text, data.answer, new Uint8Array(bytes)[1], common.value]);
    }
    if (url.pathname.startsWith("/assets-of/")) {
      return env.assets.fetch(new Request("http://x" + url.pathname.slice(10), { headers: { "svc-worker-key": "forged" } }));
    }
    if (url.pathname === "/stream") return new Response(request.body);
    if (url.pathname === "/streamed") {
      const part = new TextEncoder().encode("part");
      return new Response(new ReadableStream({ pull(it) { it.enqueue(part); it.close(); } }));
    }
    if (url.pathname === "/empty") return new Response(null, { status: 204 });
    if (url.pathname === "/error") throw new Error("mine");
    if (url.pathname === "/ws") {
      const [ours, theirs] = Object.values(new WebSocketPair());
      theirs.accept();
      theirs.addEventListener("message", event => theirs.send("echo " + event.data));
      return new Response(null, { status: 101, webSocket: ours });
    }
    return Response.json({
      method: request.method, url: request.url, headers: Object.fromEntries(request.headers),
      body: await request.text(), env: Object.keys(env),
    }, { status: 201, headers: { "x-own": "1", "set-cookie": "a=b" } });
  },
};
"#;

async fn echo() -> Option<Rig> {
    let rig = Rig::start().await?;
    let files: [(&str, &[u8]); 9] = [
        ("worker/index.js", ECHO.as_bytes()),
        ("worker/lib/greeting.js", b"export { greeting } from './deep/er.mjs';"),
        ("worker/lib/deep/er.mjs", b"export const greeting = 'hi';"),
        ("worker/lib/text.txt", b"some text"),
        ("worker/lib/data.json", b"{\"answer\": 42}"),
        ("worker/lib/raw.bin", &[1, 200, 3]),
        ("worker/lib/common.cjs", b"exports.value = 'common';"),
        ("assets/style.css", b"body {}"),
        ("assets/404.html", b"nowhere"),
    ];
    rig.core.deploy("app", &files);
    rig.core.deploy("other", &[("assets/secret.txt", b"of another")]);
    rig.node.visitor.sees(HOST, "/style.css", 200, "body {}").await;
    rig.node.visitor.sees("other.localhost", "/secret.txt", 200, "of another").await;
    Some(rig)
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_receives_requests_without_an_asset_unchanged() {
    let Some(rig) = echo().await else { return };
    let visitor = &rig.node.visitor;
    assert_eq!(visitor.get(HOST, "/style.css").await.header("content-type"), "text/css; charset=utf-8");
    let request = visitor.request(Method::PUT, "app.localhost:8088", "/style.css?a=b%20c").body("sent");
    let request = request
        .header("svc-access-bypass", "svc_byp_x")
        .header("cookie", "mine=1; __Host-svc_access=x")
        .header("x-forwarded-proto", "https")
        .header("x-forwarded-for", "198.51.100.7")
        .header("cf-connecting-ip", "198.51.100.7")
        .header("x-real-ip", "198.51.100.7");
    let seen = Visitor::send(request).await;
    assert_eq!((seen.status, seen.header("x-own"), seen.header("set-cookie")), (201, "1", "a=b"));
    let echoed: Value = serde_json::from_str(&seen.body).unwrap();
    assert_eq!((&echoed["method"], &echoed["body"]), (&"PUT".into(), &"sent".into()));
    assert_eq!(echoed["url"], "http://app.localhost:8088/style.css?a=b%20c");
    assert_eq!(echoed["env"], serde_json::json!(["assets"]));
    let headers = &echoed["headers"];
    assert_eq!((&headers["cookie"], &headers["x-forwarded-for"]), (&"mine=1".into(), &"127.0.0.1".into()));
    // The control plane determines the scheme; the visitor's header is ignored.
    assert_eq!(headers["x-forwarded-proto"], "http");
    assert_eq!((headers.get("cf-connecting-ip"), headers.get("x-real-ip")), (None, None));
    let names: Vec<_> = headers.as_object().unwrap().keys().filter(|name| name.starts_with("svc-")).collect();
    assert!(names.is_empty(), "{names:?}");

    // The worker handles missing paths instead of the 404 page, and paths that assets reject.
    let seen = visitor.get(HOST, "/missing/%2f..").await;
    assert_eq!(seen.status, 201, "{seen:?}");
    let modules = visitor.get(HOST, "/modules").await;
    assert_eq!(modules.body, r#"["hi","some text",42,200,"common"]"#);
    let seen = visitor.get(HOST, "/error").await;
    assert_eq!(seen.status, 500, "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_receives_the_body_of_any_method() {
    let Some(rig) = echo().await else { return };
    for method in ["GET", "DELETE", "POST"] {
        for body in ["Content-Length: 4\r\n\r\nsent", "Transfer-Encoding: chunked\r\n\r\n4\r\nsent\r\n0\r\n\r\n"] {
            let request = format!("{method} /echo HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n{body}");
            let seen = rig.node.visitor.raw_answer(&request).await;
            let (_, echoed) = seen.split_once("\r\n\r\n").unwrap();
            let echoed: Value = serde_json::from_str(echoed).unwrap();
            assert_eq!((&echoed["method"], &echoed["body"]), (&method.into(), &"sent".into()), "{body}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn code_of_a_protected_site_cannot_use_shared_caches() {
    const CODE: &str = r#"
        const headers = { "cache-control": "public, max-age=60", "cdn-cache-control": "max-age=60" };
        export default { fetch() { return new Response("inside", { headers }); } };
    "#;
    let Some(rig) = Rig::start().await else { return };
    let key = sha256(b"svc_byp_key");
    let access = json!({ "mode": "org", "password": null, "bypass": key, "version": 1 });
    rig.core.protect("app", &[("worker/index.js", CODE.as_bytes())], access);
    let seen = eventually("the protected site is served", async || {
        let seen = rig.node.visitor.get_with(HOST, "/", &[("svc-access-bypass", "svc_byp_key")]).await;
        (seen.status == 200).then_some(seen)
    })
    .await;
    let headers = (seen.header("cache-control"), seen.header("cdn-cache-control"));
    assert_eq!((seen.body.as_str(), headers), ("inside", ("private, max-age=60", "")));
}

#[tokio::test(flavor = "multi_thread")]
async fn response_with_a_long_head_is_refused() {
    const CODE: &str = r#"
        export default {
          fetch({ url }) {
            return new Response("inside", { headers: { "x-long": "x".repeat(new URL(url).searchParams.get("bytes")) } });
          },
        };
    "#;
    let Some(rig) = Rig::start().await else { return };
    rig.serves(CODE).await;
    for (bytes, status) in [(60 << 10, 200), (256 << 10, 502), (60 << 10, 200)] {
        let seen = rig.node.visitor.get(HOST, &format!("/?bytes={bytes}")).await;
        assert_eq!(seen.status, status, "{bytes}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_have_one_length_and_head_has_no_body() {
    let Some(rig) = echo().await else { return };
    let raw = async |method: &str, path: &str| {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        rig.node.visitor.raw_answer(&request).await.to_ascii_lowercase()
    };
    let got = raw("GET", "/modules").await;
    assert_eq!((got.matches("content-length: ").count(), got.matches("transfer-encoding").count()), (1, 0), "{got}");
    let head = raw("HEAD", "/modules").await;
    assert!(head.ends_with("\r\n\r\n") && head.contains("content-length: "), "{head}");
    // A length that the worker does not state is not invented.
    for method in ["GET", "HEAD"] {
        let streamed = raw(method, "/streamed").await;
        let headers = ["content-length: ", "transfer-encoding: chunked"].map(|name| streamed.contains(name));
        assert_eq!((headers, streamed.ends_with("\r\n\r\n")), ([false, true], true), "{method}: {streamed}");
        assert_eq!(streamed.contains("part"), method == "GET", "{method}: {streamed}");
    }
    // A client with HTTP/1.0 does not know chunks.
    let request = format!("GET /streamed HTTP/1.0\r\nHost: {HOST}\r\nConnection: keep-alive\r\n\r\n");
    let old = rig.node.visitor.raw_answer(&request).await.to_ascii_lowercase();
    assert!(!old.contains("transfer-encoding") && old.ends_with("\r\n\r\npart"), "{old}");
    let empty = raw("GET", "/empty").await;
    assert!(empty.starts_with("http/1.1 204 ") && empty.ends_with("\r\n\r\n"), "{empty}");
}

#[tokio::test(flavor = "multi_thread")]
async fn response_that_ends_early_has_no_line_at_the_default_level() {
    const CODE: &str = r#"
        let count = 0;
        const pull = async it => {
          if (count++ === 0) return it.enqueue(new TextEncoder().encode("part"));
          // Until then, `workerd` sends the first part.
          await new Promise(resolve => setTimeout(resolve, 50));
          it.error(new Error("mine"));
        };
        export default {
          fetch({ url }) { return new Response(url.endsWith("/fails") ? new ReadableStream({ pull }) : "fine"); },
        };
    "#;
    if workerd().is_none() {
        return;
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let debug = ("SVC_NODE_LOG", "info,actix_http=off,node::worker::proxy=debug");
    for (settings, is_logged) in [(vec![], false), (vec![debug], true)] {
        let core = ControlPlane::start().await;
        core.deploy("app", &[("worker/index.js", CODE.as_bytes())]);
        let node = NodeProcess::start(core, settings).await;
        let visitor = node.visitor();
        visitor.sees(HOST, "/", 200, "fine").await;
        let failed = async { visitor.request(Method::GET, HOST, "/fails").send().await?.bytes().await };
        assert!(failed.await.is_err());
        let log = node.log();
        assert!(!log.contains("actix_http"), "{log}");
        assert_eq!(log.contains("a response of a worker ended early"), is_logged, "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn env_assets_serves_the_same_responses_as_visitors_receive() {
    let Some(rig) = echo().await else { return };
    let seen = rig.node.visitor.get(HOST, "/assets-of/style.css").await;
    assert_eq!((seen.status, seen.body.as_str()), (200, "body {}"));
    assert_eq!(seen.header("content-type"), "text/css; charset=utf-8");
    assert_eq!(seen.header("etag"), format!("\"{}\"", sha256(b"body {}")));
    let seen = rig.node.visitor.get(HOST, "/assets-of/missing").await;
    assert_eq!((seen.status, seen.body.as_str()), (404, "nowhere"));
    for path in ["/secret.txt", "/../other/secret.txt", "/worker/index.js", "/svc.json"] {
        let seen = rig.node.visitor.get(HOST, &format!("/assets-of{path}")).await;
        assert!(!seen.body.contains("of another") && seen.status >= 400 || seen.status == 201, "{seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_stream_in_both_directions_concurrently() {
    let Some(rig) = echo().await else { return };
    let (sender, receiver) = mpsc::channel::<std::io::Result<&'static str>>(1);
    let body = Body::wrap_stream(futures_util::stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|chunk| (chunk, receiver))
    }));
    let request = rig.node.visitor.request(Method::POST, HOST, "/stream").body(body);
    sender.send(Ok("first")).await.unwrap();
    let mut answer = request.send().await.unwrap().bytes_stream();
    // Each chunk returns before the next one is sent.
    for (sent, next) in [("first", Some("second")), ("second", Some("third")), ("third", None)] {
        assert_eq!(answer.next().await.unwrap().unwrap(), sent);
        if let Some(next) = next {
            sender.send(Ok(next)).await.unwrap();
        }
    }
    drop(sender);
    assert!(answer.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn websockets_are_forwarded() {
    let Some(rig) = echo().await else { return };
    let mut socket = rig
        .node
        .visitor
        .raw(&format!(
            "GET /ws HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        ))
        .await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    // The example of RFC 6455 1.3.
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
    for text in ["one", "two"] {
        // A final text frame, masked with zeros.
        let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
        frame.extend(text.as_bytes());
        socket.write_all(&frame).await.unwrap();
        let expected = format!("echo {text}");
        let mut answer = vec![0; 2 + expected.len()];
        timeout(Duration::from_secs(20), socket.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!((answer[0], &answer[2..]), (0x81, expected.as_bytes()));
    }
    // A close frame with 1000, normal closure. The worker closes the connection.
    socket.write_all(&[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8]).await.unwrap();
    let mut rest = Vec::new();
    timeout(Duration::from_secs(20), socket.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert_eq!(rest.first(), Some(&0x88));
}
