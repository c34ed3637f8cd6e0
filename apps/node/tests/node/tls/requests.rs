//! Requests over TLS: HTTP/1.1 and HTTP/2, assets, worker code and the access gate.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use hyper::{Method, Request};
use sandbox::Certificate;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};

use super::{Client, HOST, Rig};
use crate::control_plane::sha256;
use crate::workers::workerd;

/// A connection with HTTP/2.
pub(super) struct Http2(SendRequest<Bytes>);

/// A response over HTTP/2.
pub(super) struct Seen {
    pub(super) status: u16,
    headers: hyper::HeaderMap,
    pub(super) body: String,
}

impl Http2 {
    async fn connect(rig: &Rig, certificate: &Certificate) -> Self {
        Self::connect_with(rig.client(&[certificate])).await
    }

    pub(super) async fn connect_with(client: Client) -> Self {
        let client = client.with(|config| config.alpn_protocols = vec![b"h2".to_vec()]);
        let (send, connection) = h2::client::handshake(client.connect(HOST).await.unwrap()).await.unwrap();
        tokio::spawn(async { drop(connection.await) });
        Self(send)
    }

    /// Begins a request and sends its whole body.
    async fn begin(&self, request: Request<()>, body: &[&str]) -> (ResponseFuture, SendStream<Bytes>) {
        let mut send = self.0.clone().ready().await.unwrap();
        let (response, mut outgoing) = send.send_request(request, body.is_empty()).unwrap();
        for (number, chunk) in body.iter().enumerate() {
            outgoing.send_data(Bytes::from((*chunk).to_owned()), number + 1 == body.len()).unwrap();
        }
        (response, outgoing)
    }

    async fn send(&self, request: Request<()>, body: &[&str]) -> Seen {
        let (response, _outgoing) = self.begin(request, body).await;
        let (head, mut incoming) = response.await.unwrap().into_parts();
        let mut body = Vec::new();
        while let Some(chunk) = incoming.data().await {
            body.extend(chunk.unwrap());
        }
        Seen { status: head.status.as_u16(), headers: head.headers, body: String::from_utf8(body).unwrap() }
    }

    pub(super) async fn get(&self, path: &str) -> Seen {
        self.send(request(Method::GET, path), &[]).await
    }
}

fn request(method: Method, path: &str) -> Request<()> {
    Request::builder().method(method).uri(format!("https://{HOST}{path}")).body(()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn assets_are_served_over_both_versions_of_http() {
    let (rig, certificate) = Rig::start_with_certificate().await;
    let response = rig.client(&[&certificate]).get(HOST, "/").await;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\nhome"), "{response}");
    let connection = Http2::connect(&rig, &certificate).await;
    for _ in 0..3 {
        let seen = connection.get("/").await;
        assert_eq!((seen.status, seen.body.as_str()), (200, "home"));
        assert_eq!(seen.headers["etag"], format!("\"{}\"", sha256(b"home")));
        assert_eq!(seen.headers["x-content-type-options"], "nosniff");
    }
    let head = connection.send(request(Method::HEAD, "/"), &[]).await;
    assert_eq!((head.status, head.body.as_str(), &head.headers["content-length"]), (200, "", &"4".parse().unwrap()));
    let mut known = request(Method::GET, "/");
    known.headers_mut().insert("if-none-match", "*".parse().unwrap());
    let unchanged = connection.send(known, &[]).await;
    assert_eq!((unchanged.status, unchanged.headers.get("content-length")), (304, None));
    let authority = reqwest::Certificate::from_pem(certificate.authority().as_bytes()).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([authority]).no_proxy().resolve(HOST, rig.address());
    let client = client.pool_max_idle_per_host(0).build().unwrap();
    let url = format!("https://{HOST}:{}/", rig.address().port());
    assert_eq!(client.get(url).send().await.unwrap().text().await.unwrap(), "home");
    drop(connection);
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_over_http_2_are_limited() {
    let (rig, certificate) = Rig::start_with_certificate().await;
    let connection = Http2::connect(&rig, &certificate).await;
    let with_header = |bytes: usize| {
        let mut large = request(Method::GET, "/");
        // Huffman coding does not shorten this character.
        large.headers_mut().insert("x-large", "~".repeat(bytes).parse().unwrap());
        large
    };
    assert_eq!(connection.send(with_header(16 << 10), &[]).await.status, 200);
    // Short fields are larger as a header map than in compressed form.
    let with_fields = |count: usize| {
        let mut large = request(Method::GET, "/");
        for _ in 0..count {
            large.headers_mut().append("x", "".parse().unwrap());
        }
        large
    };
    assert_eq!(connection.send(with_fields(3800), &[]).await.status, 200);
    assert_eq!(connection.send(with_fields(4200), &[]).await.status, 431);
    let closed = Http2::connect(&rig, &certificate).await;
    let (response, _) = closed.0.clone().ready().await.unwrap().send_request(with_header(33 << 10), true).unwrap();
    assert!(response.await.is_err());
    assert!(closed.0.clone().ready().await.is_err());
    let access = json!({ "mode": "password", "password": "hash", "bypass": null, "version": 1 });
    rig.core.protect("shop", &[("assets/index.html", b"home")], access);
    super::wait_for("the gate", async || connection.get("/").await.status == 401).await;
    // Each of these requests waits for the rest of its form.
    let mut waiting = Vec::new();
    for _ in 0..256 {
        let mut send = connection.0.clone().ready().await.unwrap();
        waiting.push(send.send_request(request(Method::POST, "/__svc/access/password"), false).unwrap());
    }
    super::wait_for("the limit", async || connection.get("/").await.status == 503).await;
    drop(waiting);
    super::wait_for("the permits", async || connection.get("/").await.status == 401).await;
    drop(connection);
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_with_unread_responses_is_closed() {
    let (rig, certificate) = Rig::start_with_certificate().await;
    let client = rig.client(&[&certificate]).with(|config| config.alpn_protocols = vec![b"h2".to_vec()]);
    let mut builder = h2::client::Builder::new();
    // The client reads no body.
    builder.initial_window_size(0).initial_max_send_streams(usize::MAX);
    let (send, connection) = builder.handshake::<_, Bytes>(client.connect(HOST).await.unwrap()).await.unwrap();
    let connection = tokio::spawn(connection);
    let (mut sent, mut pending, mut responses) = (0, VecDeque::new(), Vec::new());
    while let Ok(mut send) = send.clone().ready().await {
        assert!(sent < 10_000, "the connection stays open");
        let Ok((response, _)) = send.send_request(request(Method::GET, "/"), true) else { break };
        sent += 1;
        pending.push_back(response);
        // The client queues any number of requests, so it follows the responses of the node.
        if pending.len() > 64 {
            match pending.pop_front().unwrap().await {
                Ok(response) => responses.push(response),
                Err(_) => break,
            }
        }
    }
    assert!(sent >= 512, "{sent}");
    assert!(connection.await.unwrap().is_err());
    assert_eq!(Http2::connect(&rig, &certificate).await.get("/").await.body, "home");
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_with_too_many_frames_is_closed() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    /// A HEADERS frame without the end of its fields.
    const OPEN_HEADERS: &[u8] = b"\0\0\x04\x01\x01\0\0\0\x01\x82\x87\x84\x84";
    let (rig, certificate) = Rig::start_with_certificate().await;
    let client = rig.client(&[&certificate]).with(|config| config.alpn_protocols = vec![b"h2".to_vec()]);
    let ping = b"\0\0\x08\x06\0\0\0\0\x0012345678".to_vec();
    let settings = b"\0\0\0\x04\0\0\0\0\0".to_vec();
    let priority = b"\0\0\x05\x02\0\0\0\0\x01\0\0\0\0\0".to_vec();
    let continuation = b"\0\0\0\x09\0\0\0\0\x01".to_vec();
    let (empty, small) = (b"\0\0\0\0\0\0\0\0\x01".to_vec(), b"\0\0\x01\0\0\0\0\0\x01x".to_vec());
    // The node does not read the body of this request: it waits for the lookup of a challenge.
    rig.core.delay_challenges(Duration::from_secs(600));
    let waiting =
        headers(&[(2, "GET"), (7, "https"), (1, HOST), (4, "/.well-known/acme-challenge/ffffffffffffffffffff0")]);
    for (start, frame, count) in [
        (&[][..], ping, 10_000),
        (&[], settings, 10_000),
        (&[], priority, 10_000),
        (OPEN_HEADERS, continuation, 4000),
        (waiting.as_slice(), empty, 10_000),
        (waiting.as_slice(), small, 10_000),
    ] {
        let (mut incoming, mut outgoing) = tokio::io::split(client.connect(HOST).await.unwrap());
        let frames = [PREFACE, start, &frame.repeat(count)].concat();
        let sent = tokio::spawn(async move {
            // Fails when the node closes the connection.
            drop(outgoing.write_all(&frames).await);
            outgoing
        });
        let closed = timeout(Duration::from_secs(20), incoming.read_to_end(&mut Vec::new())).await;
        assert!(closed.is_ok(), "the connection stays open: {frame:?}");
        drop(sent.await);
    }
    assert_eq!(Http2::connect(&rig, &certificate).await.get("/").await.body, "home");
    rig.node.stop().await;
}

/// Returns a HEADERS frame that opens a request with a body. Each field has the index of its name in the static table.
fn headers(fields: &[(u8, &str)]) -> Vec<u8> {
    let fields = fields.iter().flat_map(|(index, value)| [&[*index, value.len() as u8][..], value.as_bytes()].concat());
    let fields: Vec<u8> = fields.collect();
    // END_HEADERS, and stream 1.
    [&[0, 0, fields.len() as u8, 1, 4, 0, 0, 0, 1][..], &fields].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_end_with_their_connection() {
    let (rig, certificate) = Rig::start_with_certificate().await;
    let path = |number: u32| format!("/.well-known/acme-challenge/ffffffffffffffffffff{number}");
    rig.core.delay_challenges(Duration::from_secs(600));
    let client = rig.client(&[&certificate]).with(|config| config.alpn_protocols = vec![b"h2".to_vec()]);
    let (send, connection) = h2::client::handshake(client.connect(HOST).await.unwrap()).await.unwrap();
    let connection = tokio::spawn(connection);
    // The client has one lookup of the host.
    let mut send = send.ready().await.unwrap();
    let _waiting = send.send_request(request(Method::GET, &path(0)), true).unwrap();
    super::wait_for("the lookup", async || rig.core.challenge_lookups() == 1).await;
    rig.core.delay_challenges(Duration::ZERO);
    connection.abort();
    // This request needs the permit.
    super::wait_for("the permit", async || rig.node.visitor.get(HOST, &path(1)).await.status == 404).await;
    assert_eq!(rig.core.challenge_lookups(), 2);
    let metrics = rig.metrics().await;
    assert!(
        !metrics.contains("svc_node_acme_challenges_total{outcome=\"failed\"}"),
        "the lookups did not end: {metrics}"
    );
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_end_with_their_stream() {
    const CODE: &str = r#"
        const encoder = new TextEncoder();
        let beats = 0;
        let isFinished = false;
        const beat = async () => { for (;;) { beats += 1; await scheduler.wait(20); } };
        const finish = async () => { while (!isFinished) await scheduler.wait(20); };
        const events = (work) => new ReadableStream({
            async start(controller) {
                controller.enqueue(encoder.encode("first."));
                await work();
                controller.enqueue(encoder.encode("last."));
                controller.close();
            },
        });
        export default {
            async fetch(request) {
                await request.text();
                switch (new URL(request.url).pathname) {
                    case "/beats": return new Response(String(beats));
                    case "/events": return new Response(events(beat));
                    case "/finished": return new Response(events(finish));
                    case "/slow": await beat();
                    case "/finish": isFinished = true;
                }
                return new Response("from code");
            },
        };
    "#;
    let Some(workerd) = workerd() else { return };
    // A client has three requests in flight.
    let change = |config: &mut node::config::Config| config.workers.as_mut().unwrap().max_in_flight = 12;
    let (rig, certificate) = Rig::start_with_code(workerd, CODE, change).await;
    let connection = Http2::connect(&rig, &certificate).await;
    super::wait_for("the worker", async || connection.get("/").await.status == 200).await;
    let (response, _) = connection.begin(request(Method::GET, "/finished"), &[]).await;
    let mut continued = response.await.unwrap().into_body();

    let beats = async || {
        let seen = connection.get("/beats").await;
        // The requests that were reset are not in flight.
        assert_eq!(seen.status, 200);
        seen.body
    };
    let cases: [(Method, &str, &[&str]); 3] =
        [(Method::GET, "/slow", &[]), (Method::GET, "/events", &[]), (Method::POST, "/events", &["body"])];
    for (method, path, body) in cases {
        let before = beats().await;
        let (response, mut outgoing) = connection.begin(request(method, path), body).await;
        super::wait_for("the code", async || beats().await != before).await;
        if path == "/slow" {
            outgoing.send_reset(Reason::CANCEL);
        } else {
            let mut incoming = response.await.unwrap().into_body();
            assert_eq!(incoming.data().await.unwrap().unwrap(), "first.");
            outgoing.send_reset(Reason::CANCEL);
        }
        let has_ended = async || {
            let before = beats().await;
            sleep(Duration::from_millis(200)).await;
            beats().await == before
        };
        super::wait_for("the end of the code", has_ended).await;
    }

    assert_eq!(connection.get("/finish").await.status, 200);
    let mut received = Vec::new();
    while let Some(chunk) = continued.data().await {
        received.extend(chunk.unwrap());
    }
    assert_eq!(received, b"first.last.");
    drop(connection);
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn host_with_another_certificate_is_misdirected() {
    let (rig, certificate) = Rig::start_with_certificate().await;
    for project in ["blog", "plain", "other"] {
        rig.core.deploy(project, &[("assets/index.html", project.as_bytes())]);
        rig.node.visitor.sees(&format!("{project}.localhost"), "/", 200, project).await;
    }
    let both = Certificate::generate_for(&["blog.localhost", "other.localhost"]);
    rig.core.issue("blog", "blog.localhost", &both);
    let other = Certificate::generate_for(&["other.localhost"]);
    rig.core.issue("other", "other.localhost", &other);
    let client = rig.client(&[&certificate, &both, &other]);
    client.presents("blog.localhost", &both).await;
    client.presents("other.localhost", &other).await;
    let request = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let send = async |name, host| client.send(name, &request(host)).await;
    assert!(send(HOST, "blog.localhost").await.starts_with("HTTP/1.1 421 "));
    assert!(send(HOST, "Shop.localhost.").await.ends_with("home"));
    // The client may use the connection for all names of its certificate.
    assert!(send("blog.localhost", "other.localhost").await.ends_with("other"));
    assert!(send("other.localhost", "blog.localhost").await.starts_with("HTTP/1.1 421 "));
    // Another connection would not help: the host has no certificate.
    assert!(send(HOST, "plain.localhost").await.ends_with("plain"));
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn graceful_stop_closes_idle_connections() {
    let (rig, certificate) = Rig::start_with_certificate().await;
    let (http_2, http_1) = (Http2::connect(&rig, &certificate).await, rig.client(&[&certificate]).connect(HOST).await);
    assert_eq!(http_2.get("/").await.body, "home");
    // Both connections are open. If the node did not close them, the stop would end only after 30 s.
    timeout(Duration::from_secs(20), rig.node.stop()).await.unwrap();
    assert!(http_2.0.clone().ready().await.is_err());
    drop(http_1);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_during_a_graceful_stop_are_served() {
    let (rig, certificate) = Rig::start_with_certificate().await;
    let large = vec![b'x'; 1 << 20];
    rig.core.deploy("shop", &[("assets/index.html", b"home"), ("assets/large", &large)]);
    let client = rig.client(&[&certificate]).with(|config| config.alpn_protocols = vec![b"h2".to_vec()]);
    let mut builder = h2::client::Builder::new();
    // The unread part of a response does not use up the window of the connection.
    builder.initial_connection_window_size(1 << 20);
    let (send, connection) = builder.handshake::<_, Bytes>(client.connect(HOST).await.unwrap()).await.unwrap();
    tokio::spawn(async { drop(connection.await) });
    let connection = Http2(send);
    let is_deployed = async || connection.send(request(Method::HEAD, "/large"), &[]).await.status == 200;
    super::wait_for("the large file", is_deployed).await;
    let (response, _) = connection.begin(request(Method::GET, "/large"), &[]).await;
    let mut unread = response.await.unwrap().into_body();

    let mut http_1 = rig.client(&[&certificate]).connect(HOST).await.unwrap();
    let stopped = tokio::spawn(rig.node.stop());
    // The node has begun to stop when it closes this connection.
    drop(http_1.read_to_end(&mut Vec::new()).await);
    for _ in 0..5 {
        let seen = connection.get("/").await;
        assert_eq!((seen.status, seen.body.as_str()), (200, "home"));
    }
    let mut received = 0;
    while let Some(chunk) = unread.data().await {
        let chunk = chunk.unwrap();
        unread.flow_control().release_capacity(chunk.len()).unwrap();
        received += chunk.len();
    }
    assert_eq!(received, large.len());
    timeout(Duration::from_secs(20), stopped).await.unwrap().unwrap();
    assert!(connection.0.clone().ready().await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_response_over_http_2_ends() {
    const CODE: &str = r#"
        const chunk = new Uint8Array(64 * 1024);
        const endless = () => new ReadableStream({ pull(controller) { controller.enqueue(chunk); } });
        export default { fetch({ url }) { return new Response(url.endsWith("/endless") ? endless() : "from code"); } };
    "#;
    let Some(workerd) = workerd() else { return };
    let change = |config: &mut node::config::Config| {
        // A client has one request in flight.
        config.workers.as_mut().unwrap().max_in_flight = 4;
        config.write_timeout = Duration::from_secs(1);
    };
    let (rig, certificate) = Rig::start_with_code(workerd, CODE, change).await;
    let other = Http2::connect(&rig, &certificate).await;
    super::wait_for("the worker", async || other.get("/").await.status == 200).await;

    // The connection reads, but not this response.
    let connection = Http2::connect(&rig, &certificate).await;
    let (response, _) =
        connection.0.clone().ready().await.unwrap().send_request(request(Method::GET, "/endless"), true).unwrap();
    let mut unread = response.await.unwrap().into_body();
    super::wait_for("the end of the response", async || other.get("/").await.status == 200).await;
    let mut end = None;
    while end.is_none() {
        match unread.data().await {
            Some(Ok(chunk)) => unread.flow_control().release_capacity(chunk.len()).unwrap(),
            other => end = Some(other),
        }
    }
    assert!(matches!(end, Some(Some(Err(_)))), "{end:?}");
    assert_eq!(connection.get("/").await.status, 200);
    drop((connection, other));
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_code_sees_https() {
    const CODE: &str = r#"export default { async fetch(request) {
        return Response.json({ url: request.url, headers: Object.fromEntries(request.headers), body: await request.text() });
    } };"#;
    let Some(workerd) = workerd() else { return };
    let (rig, certificate) = Rig::start_with_code(workerd, CODE, |_| {}).await;
    rig.node.visitor.sees(HOST, "/", 308, "").await;
    let connection = Http2::connect(&rig, &certificate).await;
    super::wait_for("the worker", async || connection.get("/").await.status == 200).await;

    let mut posted = request(Method::POST, "/a?b=c");
    for cookie in ["one=1", "two=2", "__Host-svc_auth=x"] {
        posted.headers_mut().append("cookie", cookie.parse().unwrap());
    }
    posted.headers_mut().append("x-forwarded-proto", "ftp".parse().unwrap());
    // HTTP/2 needs no Content-Length.
    let seen = connection.send(posted, &["first ", "second"]).await;
    let value: Value = serde_json::from_str(&seen.body).unwrap();
    let headers = &value["headers"];
    assert_eq!((&value["url"], &value["body"]), (&json!("https://shop.localhost/a?b=c"), &json!("first second")));
    assert_eq!((&headers["host"], &headers["x-forwarded-proto"]), (&json!(HOST), &json!("https")));
    assert_eq!(headers["cookie"], "one=1; two=2");
    let seen = connection.send(request(Method::DELETE, "/"), &[]).await;
    assert_eq!(serde_json::from_str::<Value>(&seen.body).unwrap()["body"], "");
    let response = rig.client(&[&certificate]).get(HOST, "/").await;
    assert!(response.contains("\"url\":\"https://shop.localhost/\""), "{response}");
    drop(connection);
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn access_cookie_is_secure_only_over_tls() {
    let (rig, certificate) = Rig::start_with_certificate().await;
    let access = json!({ "mode": "org", "password": null, "bypass": null, "version": 1 });
    for project in ["shop", "plain"] {
        rig.core.protect(project, &[("assets/index.html", b"inside")], access.clone());
    }
    let callback = "/__svc/access/callback?code=code&next=%2F";
    rig.node.visitor.sees("plain.localhost", "/", 302, "").await;
    rig.core.allow_code("code", "plain.localhost", "plain");
    let seen = rig.node.visitor.get("plain.localhost", callback).await;
    assert!(seen.header("set-cookie").starts_with("__svc_access=") && !seen.header("set-cookie").contains("Secure"));

    let client = rig.client(&[&certificate]);
    super::wait_for("the gate", async || client.get(HOST, "/").await.starts_with("HTTP/1.1 302 ")).await;
    rig.core.allow_code("code", HOST, "shop");
    let response = client.get(HOST, callback).await;
    let cookie = response.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap_or_default();
    assert!(cookie.starts_with("__svc_access=") && cookie.contains("; Secure"), "{response}");
    let cookie = cookie.split(';').next().unwrap();
    let with_origin = async |origin: &str| {
        let head = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\nCookie: {cookie}\r\n");
        client.send(HOST, &format!("{head}Origin: {origin}\r\nContent-Length: 0\r\n\r\n")).await
    };
    // Assets accept only reads: 405 is behind the gate, 401 before it.
    assert!(with_origin("https://shop.localhost").await.starts_with("HTTP/1.1 405 "));
    assert!(with_origin("http://shop.localhost").await.starts_with("HTTP/1.1 401 "));
    rig.node.stop().await;
}
