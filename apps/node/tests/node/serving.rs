//! Serving of assets.

use reqwest::Method;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::control_plane::{ControlPlane, sha256};
use crate::running::{Dir, RunningNode};
use crate::timeout::TIMEOUT;
use crate::visitor::{Visitor, VisitorResponse};

const HOST: &str = "shop.localhost";
const FILES: &[(&str, &[u8])] = &[
    ("assets/index.html", b"home"),
    ("assets/404.html", b"nowhere"),
    ("assets/style.css", b"body {}"),
    ("assets/docs/index.html", b"docs"),
    ("assets/a b/ü.txt", b"umlaut"),
];

/// Starts a node that serves [`FILES`] at [`HOST`].
async fn shop() -> (ControlPlane, Dir, RunningNode) {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    core.deploy("shop", FILES);
    let node = RunningNode::start(&core, &dir).await;
    node.visitor.sees(HOST, "/", 200, "home").await;
    (core, dir, node)
}

#[tokio::test(flavor = "multi_thread")]
async fn assets_are_served_with_their_headers() {
    let (_core, _dir, node) = shop().await;
    let seen = node.visitor.get(HOST, "/style.css").await;
    assert_eq!((seen.status, seen.body.as_str()), (200, "body {}"));
    assert_eq!(seen.header("content-type"), "text/css; charset=utf-8");
    assert_eq!(seen.header("content-length"), "7");
    assert_eq!(seen.header("cache-control"), "public, max-age=0, must-revalidate");
    assert_eq!(seen.header("x-content-type-options"), "nosniff");
    assert_eq!(seen.header("etag"), format!("\"{}\"", sha256(b"body {}")));
    assert_eq!(node.visitor.get(HOST, "/a%20b/%C3%BC.txt?x=y").await.body, "umlaut");
    assert_eq!(node.visitor.get(HOST, "/index.html").await.body, "home");
}

#[tokio::test(flavor = "multi_thread")]
async fn host_matches_in_any_case_and_with_port_or_trailing_dot() {
    let (_core, _dir, node) = shop().await;
    for host in ["shop.localhost:8088", "SHOP.localhost", "shop.localhost.", "Shop.Localhost.:80"] {
        assert_eq!(node.visitor.get(host, "/").await.status, 200, "{host}");
    }
    let absolute = "GET http://shop.localhost:1/ HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n";
    assert!(node.visitor.raw_answer(absolute).await.ends_with("home"));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_host_receives_the_error_envelope() {
    let (_core, _dir, node) = shop().await;
    let seen = node.visitor.get("other.localhost", "/style.css").await;
    assert_eq!((seen.status, seen.header("content-type")), (404, "application/json"));
    let envelope: Value = serde_json::from_str(&seen.body).unwrap();
    assert_eq!(envelope["code"], "unknown_hostname");
    assert_eq!(envelope["details"], Value::Null);
    assert!(envelope["message"].as_str().is_some_and(|message| !message.is_empty()));
    assert_eq!(envelope["requestId"], seen.header("x-request-id"));
    assert_eq!(seen.header("x-request-id").len(), 36);
    let request = node.visitor.request(Method::GET, "other.localhost", "/").header("x-request-id", "build-17.a_b");
    let seen = Visitor::send(request).await;
    assert_eq!(seen.header("x-request-id"), "build-17.a_b");
    // A request that is not HTTP has no host.
    let malformed = node.visitor.raw_answer("GET /\r\n\r\n").await;
    assert!(malformed.starts_with("HTTP/1.1 400 ") && malformed.contains("<h1>Bad Request</h1>"), "{malformed}");
    let hostless = node.visitor.raw_answer("GET / HTTP/1.0\r\n\r\n").await;
    assert!(hostless.contains(" 404 ") && hostless.contains("unknown_hostname"), "{hostless}");
}

#[tokio::test(flavor = "multi_thread")]
async fn matching_if_none_match_receives_304() {
    let (_core, _dir, node) = shop().await;
    let etag = node.visitor.get(HOST, "/").await.header("etag").to_owned();
    let with = async |condition: String| -> VisitorResponse {
        Visitor::send(node.visitor.request(Method::GET, HOST, "/").header("if-none-match", condition)).await
    };
    for condition in [etag.clone(), format!("\"x\", W/{etag}"), "*".to_owned()] {
        let seen = with(condition).await;
        assert_eq!((seen.status, seen.body.as_str(), seen.header("etag")), (304, "", etag.as_str()));
        assert_eq!(seen.header("cache-control"), "public, max-age=0, must-revalidate");
    }
    assert_eq!(with("\"x\"".to_owned()).await.status, 200);
    let missing = node.visitor.request(Method::GET, HOST, "/missing").header("if-none-match", "*");
    assert_eq!(Visitor::send(missing).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn head_has_the_headers_of_get_and_no_body() {
    let (_core, _dir, node) = shop().await;
    for path in ["/", "/style.css", "/docs", "/missing"] {
        let got = node.visitor.get(HOST, path).await;
        let head = Visitor::send(node.visitor.request(Method::HEAD, HOST, path)).await;
        assert_eq!((head.status, head.body.as_str()), (got.status, ""), "{path}");
        for name in ["etag", "content-type", "content-length", "location", "cache-control"] {
            assert_eq!(head.header(name), got.header(name), "{name} of {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_without_trailing_slash_is_redirected() {
    let (_core, _dir, node) = shop().await;
    assert_eq!(node.visitor.get(HOST, "/docs/").await.body, "docs");
    let seen = node.visitor.get(HOST, "/docs?a=b%20c").await;
    assert_eq!((seen.status, seen.header("location")), (308, "/docs/?a=b%20c"));
    assert_eq!(node.visitor.get(HOST, "/docs").await.header("location"), "/docs/");
    assert_eq!(node.visitor.get(HOST, "/style.css/").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_path_receives_the_404_page_of_the_site_or_the_node() {
    let (core, _dir, node) = shop().await;
    let seen = node.visitor.get(HOST, "/missing").await;
    assert_eq!((seen.status, seen.body.as_str()), (404, "nowhere"));
    assert_eq!(seen.header("content-type"), "text/html; charset=utf-8");
    assert_eq!(node.visitor.get(HOST, "/worker/index.js").await.status, 404);
    assert_eq!(node.visitor.get(HOST, "/svc.json").await.status, 404);
    core.deploy("bare", &[("assets/a.txt", b"a")]);
    node.visitor.sees("bare.localhost", "/a.txt", 200, "a").await;
    let seen = node.visitor.get("bare.localhost", "/").await;
    assert!(seen.status == 404 && seen.body.contains("no page at this address"), "{seen:?}");
    assert_eq!(seen.header("x-content-type-options"), "nosniff");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_methods_than_get_and_head_receive_405() {
    let (_core, _dir, node) = shop().await;
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::PATCH] {
        let seen = Visitor::send(node.visitor.request(method, HOST, "/").body("x")).await;
        assert_eq!((seen.status, seen.header("allow")), (405, "GET, HEAD"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn path_traversal_is_rejected() {
    let (_core, _dir, node) = shop().await;
    for path in [
        "/../worker/index.js",
        "/docs/../../worker/index.js",
        "/%2e%2e/worker/index.js",
        "/..%2fworker/index.js",
        "/..%5cworker%5cindex.js",
        "/../../desired.json",
        "//etc/passwd",
        "/%2f%2fevil.test/..",
        "/style.css%00.html",
        "/%ff",
        "/%zz",
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        let answer = node.visitor.raw_answer(&request).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && !answer.contains("secret"), "{path}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_without_workerd_serves_assets_and_503_for_code() {
    let (core, _dir, node) = shop().await;
    core.deploy("api", &[("worker/index.js", b"secret code"), ("assets/a.txt", b"asset"), ("assets/404.html", b"x")]);
    node.visitor.sees("api.localhost", "/a.txt", 200, "asset").await;
    for (method, path) in [(Method::GET, "/"), (Method::GET, "/worker/index.js"), (Method::POST, "/a.txt")] {
        let seen = Visitor::send(node.visitor.request(method, "api.localhost", path)).await;
        assert!(seen.status == 503 && seen.body.contains("does not run"), "{seen:?}");
        assert_eq!(seen.header("cache-control"), "no-store");
    }
    assert_eq!(node.visitor.get(HOST, "/").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_check_responds_on_every_host() {
    let (_core, _dir, node) = shop().await;
    for host in ["127.0.0.1:8088", HOST] {
        let seen = node.visitor.get(host, "/__svc/node/health").await;
        assert_eq!((seen.status, seen.body.as_str()), (200, "ok"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn host_header_is_a_name_with_an_optional_port() {
    let (_core, _dir, node) = shop().await;
    for (host, status) in [(":8088", "200"), (":", "200"), (":80@evil.test", "404"), (":x", "404"), ("/", "4")] {
        let request = format!("GET / HTTP/1.1\r\nHost: {HOST}{host}\r\nConnection: close\r\n\r\n");
        let answer = node.visitor.raw_answer(&request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{host}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_head_of_a_later_request_closes_the_connection() {
    let (_core, _dir, node) = shop().await;
    let mut stream = node.visitor.raw(&format!("HEAD / HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(b"G").await.unwrap();
    let closed = timeout(TIMEOUT, stream.read_to_end(&mut Vec::new())).await;
    assert!(closed.is_ok(), "the connection stays open");
}
