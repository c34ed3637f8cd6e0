//! The model-lending client over real HTTP, against faulty servers. A small implementation of the receiver verifies the
//! signatures (Standard Webhooks, "Signature scheme").

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kernel::Time;
use providers::{Lending, Limits, OutboundConfigError, OutboundError};
use ring::hmac;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use url::Url;
use webhooks::SigningKey;

const SECRET: &str = "whsec_aHVzaC1odXNoLWh1c2g";
const KEY: &[u8] = b"hush-hush-hush";
const SENT_AT: i64 = 1_795_000_000;

/// A request as the server received it.
struct Received {
    /// The method and the target.
    line: String,
    headers: HashMap<String, String>,
    body: String,
}

/// A server that sends the same bytes to every request.
struct LendingServer {
    base: Url,
    received: UnboundedReceiver<Received>,
}

impl LendingServer {
    /// Starts a server, which then closes each connection or keeps it open.
    async fn start(response: impl Into<Vec<u8>>, closes: bool) -> Self {
        let (listener, response) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), response.into());
        let base = Url::parse(&format!("http://{}/lending/", listener.local_addr().unwrap())).unwrap();
        let (sender, received) = unbounded_channel();
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = Vec::new();
                let request = loop {
                    let read = stream.read_buf(&mut bytes).await.unwrap();
                    match parse(&bytes) {
                        Some(request) => break Some(request),
                        None if read == 0 => break None,
                        None => {}
                    }
                };
                sender.send(request.unwrap()).unwrap();
                // The client may close the connection before the end of a long response.
                let _ = stream.write_all(&response).await;
                if !closes {
                    open.push(stream);
                }
            }
        });
        Self { base, received }
    }

    fn next(&mut self) -> Received {
        self.received.try_recv().unwrap()
    }
}

/// Parses a request. Returns `None` while it is incomplete.
fn parse(bytes: &[u8]) -> Option<Received> {
    let (head, body) = std::str::from_utf8(bytes).ok()?.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let line = lines.next()?.to_owned();
    let headers: HashMap<_, _> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers["content-length"].parse().unwrap();
    (body.len() == length).then(|| Received { line, headers, body: body.to_owned() })
}

fn lending(base: &Url, secret: &str) -> Lending {
    Lending::new(base, SigningKey::parse(secret).unwrap()).unwrap()
}

async fn send(lending: &Lending) -> Result<(), OutboundError> {
    lending.revoke("msg_1", "sid_1", Time::UNIX_EPOCH.plus_seconds(SENT_AT)).await
}

/// Sends a message to a server with this response.
async fn send_to(response: impl Into<Vec<u8>>, closes: bool) -> Result<(), OutboundError> {
    let server = LendingServer::start(response, closes).await;
    send(&lending(&server.base, SECRET)).await
}

/// Verifies a signature with this key.
fn is_signed_with(received: &Received, key: &[u8]) -> bool {
    let header = |name: &str| received.headers[name].as_str();
    let signed = format!("{}.{}.{}", header("webhook-id"), header("webhook-timestamp"), received.body);
    let signature = STANDARD.decode(header("webhook-signature").strip_prefix("v1,").unwrap()).unwrap();
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key), signed.as_bytes(), &signature).is_ok()
}

#[tokio::test]
async fn every_form_of_the_secret_signs_with_its_key() {
    for (secret, key) in [
        (SECRET, KEY),
        ("whsec_aHVzaC1odXNoLWh1c2g=", KEY),
        ("hush-hush-hush", KEY),
        ("aHVzaC1odXNoLWh1c2g", b"aHVzaC1odXNoLWh1c2g"),
        ("WHSEC_aHVzaC1odXNoLWh1c2g", b"WHSEC_aHVzaC1odXNoLWh1c2g"),
        ("schl\u{fc}ssel", "schl\u{fc}ssel".as_bytes()),
    ] {
        let mut server = LendingServer::start("HTTP/1.1 204 .\r\n\r\n", true).await;
        send(&lending(&server.base, secret)).await.unwrap();
        let received = server.next();
        assert_eq!(received.line, "POST /lending/revocations HTTP/1.1");
        assert_eq!(received.body, r#"{"sid":"sid_1"}"#);
        let header = |name: &str| received.headers[name].as_str();
        assert_eq!(header("content-type"), "application/json");
        assert_eq!((header("webhook-id"), header("webhook-timestamp")), ("msg_1", SENT_AT.to_string().as_str()));
        assert!(is_signed_with(&received, key), "{secret}");
        assert!(!is_signed_with(&received, b"another key") && !is_signed_with(&received, b""), "{secret}");
    }
}

#[tokio::test]
async fn only_2xx_is_accepted() {
    for status in [200, 201, 202, 204] {
        assert_eq!(send_to(format!("HTTP/1.1 {status} .\r\n\r\n"), true).await, Ok(()), "{status}");
    }
    for status in [400, 401, 403, 404, 409, 410, 418, 422, 429, 500, 502, 503, 504] {
        let html = format!("HTTP/1.1 {status} .\r\nContent-Type: text/html\r\n\r\n<!DOCTYPE html><title>Bad</title>");
        assert_eq!(send_to(html, true).await, Err(OutboundError::Status(status)), "{status}");
    }
    for response in ["", "220 mail.example ESMTP\r\n", "HTTP/1.1"] {
        let error = send_to(response, true).await.unwrap_err();
        assert!(matches!(error, OutboundError::Unreachable(_)), "{response:?}: {error:?}");
    }
}

#[tokio::test]
async fn redirect_is_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        let mut target = LendingServer::start("HTTP/1.1 204 .\r\n\r\n", true).await;
        let location = target.base.join("revocations").unwrap();
        let redirect = format!("HTTP/1.1 {status} .\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(send_to(redirect, true).await, Err(OutboundError::Redirect(status)));
        assert!(target.received.try_recv().is_err(), "{status}");
        // This request shows that the server received no other request before it.
        send(&lending(&target.base, SECRET)).await.unwrap();
        target.next();
    }
}

#[tokio::test]
async fn silent_server_times_out() {
    for response in ["", "HTTP/1.1 204", "HTTP/1.1 204 .\r\n"] {
        let server = LendingServer::start(response, false).await;
        let limits = Limits { timeout: Duration::from_millis(200), ..Limits::default() };
        let lending = Lending::with_limits(&server.base, SigningKey::parse(SECRET).unwrap(), limits).unwrap();
        assert_eq!(send(&lending).await, Err(OutboundError::Timeout), "{response:?}");
    }
}

/// The body of a response has no meaning. So the client does not read it, whatever its size.
#[tokio::test]
async fn large_or_unfinished_body_is_not_read() {
    let large = "x".repeat(8 * Limits::default().max_body_bytes);
    for (status, expected) in [(200, Ok(())), (500, Err(OutboundError::Status(500)))] {
        assert_eq!(send_to(format!("HTTP/1.1 {status} .\r\n\r\n{large}"), true).await, expected);
        let unfinished = format!("HTTP/1.1 {status} .\r\nContent-Length: 999999999999\r\n\r\n{{");
        assert_eq!(send_to(unfinished, false).await, expected);
    }
}

#[tokio::test]
async fn errors_contain_neither_the_secret_nor_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = Url::parse(&format!("http://{}/?key=hush-hush-hush", listener.local_addr().unwrap())).unwrap();
    drop(listener);
    let quoting = "HTTP/1.1 500 .\r\nX-Key: hush-hush-hush\r\n\r\nhush-hush-hush";
    let server = LendingServer::start(quoting, true).await;
    for base in [&closed, &server.base] {
        let lending = lending(base, SECRET);
        let error = send(&lending).await.unwrap_err();
        let texts = format!("{error} {error:?} {lending:?} {:?}", SigningKey::parse(SECRET));
        for secret in ["hush", "aHVzaC", "sid_1", "/lending", "key="] {
            assert!(!texts.contains(secret), "{secret} is in {texts}");
        }
    }
}

#[test]
fn address_must_be_http_without_credentials() {
    let create = |url: &str| Lending::new(&Url::parse(url).unwrap(), SigningKey::parse(SECRET).unwrap()).map(drop);
    create("http://127.0.0.1:1/lending").unwrap();
    assert!(matches!(create("ftp://lending.example"), Err(OutboundConfigError::Scheme)));
    assert!(matches!(create("https://u:hush@lending.example"), Err(OutboundConfigError::Userinfo)));
}
