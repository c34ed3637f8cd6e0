//! The outbound client, against faulty servers.

use std::time::Duration;

use kernel::Secret;
use providers::{Limits, OutboundClient, OutboundConfigError, OutboundError};
use sandbox::{Certificate, CodeHostServer};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

/// Starts a server that responds with these bytes, and then closes the connection or keeps it open.
pub async fn server(response: impl Into<Vec<u8>>, closes: bool) -> Url {
    let (listener, response) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), response.into());
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(&response).await;
            if !closes {
                open.push(stream);
            }
        }
    });
    url
}

async fn get(url: &Url, limits: Limits) -> Result<Value, OutboundError> {
    let client = OutboundClient::with_limits("test", [url], limits).unwrap();
    client.get(url, &Secret::new("hush".to_owned())).await
}

async fn get_from(response: impl Into<Vec<u8>>) -> Result<Value, OutboundError> {
    get(&server(response, true).await, Limits::default()).await
}

fn short_timeout() -> Limits {
    Limits { timeout: Duration::from_millis(200), ..Limits::default() }
}

#[tokio::test]
async fn json_response_is_parsed() {
    assert_eq!(get_from("HTTP/1.1 200 .\r\nContent-Length: 2\r\n\r\n17").await, Ok(Value::from(17)));
    assert_eq!(get_from("HTTP/1.1 201 .\r\n\r\n17").await, Ok(Value::from(17)));
}

#[tokio::test]
async fn other_responses_are_classified() {
    for (status, error) in [
        (301, OutboundError::Redirect(301)),
        (307, OutboundError::Redirect(307)),
        (400, OutboundError::Status(400)),
        (401, OutboundError::Status(401)),
        (503, OutboundError::Status(503)),
    ] {
        let response = format!("HTTP/1.1 {status} .\r\nLocation: /\r\nContent-Length: 2\r\n\r\n17");
        assert_eq!(get_from(response).await, Err(error));
    }
    for body in ["", "<!DOCTYPE html>", "{", "17 18", "\u{feff}17", "nul", "'a'"] {
        let response = format!("HTTP/1.1 200 .\r\nContent-Type: application/json\r\n\r\n{body}");
        assert_eq!(get_from(response).await, Err(OutboundError::NotJson), "{body:?}");
    }
    assert_eq!(get_from(b"HTTP/1.1 200 .\r\n\r\n\"\xff\"".to_vec()).await, Err(OutboundError::NotJson));
    let deep = format!("HTTP/1.1 200 .\r\n\r\n{}", "[".repeat(100_000));
    assert_eq!(get_from(deep).await, Err(OutboundError::NotJson));
    for response in ["", "220 mail.example ESMTP\r\n", "HTTP/1.1 200 .\r\nContent-Length: 5\r\n\r\n17"] {
        let error = get_from(response).await.unwrap_err();
        assert!(matches!(error, OutboundError::Unreachable(_)), "{response:?}: {error:?}");
    }
}

#[tokio::test]
async fn response_size_is_limited() {
    let limit = Limits::default().max_body_bytes;
    let json = |size: usize| format!("\"{}\"", "x".repeat(size - 2));
    let endless = |size| format!("HTTP/1.1 200 .\r\n\r\n{}", json(size));
    assert!(get_from(endless(limit)).await.is_ok());
    assert_eq!(get_from(endless(limit + 1)).await, Err(OutboundError::TooLarge));
    // The actual size counts, not `Content-Length`. This server never closes the connection.
    let announced = format!("HTTP/1.1 200 .\r\nContent-Length: 999999999999\r\n\r\n{}", json(2 * limit));
    assert_eq!(get(&server(announced, false).await, Limits::default()).await, Err(OutboundError::TooLarge));
    let short = format!("HTTP/1.1 200 .\r\nContent-Length: 2\r\n\r\n17{}", json(2 * limit));
    assert_eq!(get_from(short).await, Ok(Value::from(17)));
}

#[tokio::test]
async fn silent_server_times_out() {
    for response in ["", "HTTP/1.1 200 .\r\n", "HTTP/1.1 200 .\r\nContent-Length: 9\r\n\r\n\"17"] {
        assert_eq!(
            get(&server(response, false).await, short_timeout()).await,
            Err(OutboundError::Timeout),
            "{response:?}"
        );
    }
}

/// Starts a server that reads one request for each of these responses, sends the response, and then closes.
async fn sequence(responses: &[&str]) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let responses: Vec<String> = responses.iter().map(|&response| response.to_owned()).collect();
    tokio::spawn(async move {
        for response in responses {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_request(&mut stream).await;
            stream.write_all(response.as_bytes()).await.unwrap();
        }
    });
    url
}

/// Reads a request to its end. Otherwise the close of the connection could discard the response.
async fn read_request(stream: &mut TcpStream) {
    let mut request = Vec::new();
    loop {
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "the request ended early");
        let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        if body.len() >= length.map_or(0, |length| length.trim().parse().unwrap()) {
            return;
        }
    }
}

#[tokio::test]
async fn rate_limited_request_is_repeated_once_after_a_short_time() {
    const OK: &str = "HTTP/1.1 200 .\r\n\r\n17";
    const NOW: &str = "HTTP/1.1 429 .\r\nRetry-After: 0\r\n\r\n{}";
    const WITHOUT: &str = "HTTP/1.1 429 .\r\n\r\n{}";
    const SOON: &str = "HTTP/1.1 429 .\r\nRetry-After: 2\r\n\r\n{}";
    const LATER: &str = "HTTP/1.1 429 .\r\nRetry-After: 3\r\n\r\n{}";
    let (repeated, limited) = (Ok(Value::from(17)), Err(OutboundError::Status(429)));
    for (responses, expected) in
        [([NOW, OK], &repeated), ([WITHOUT, OK], &repeated), ([NOW, NOW], &limited), ([LATER, OK], &limited)]
    {
        assert_eq!(get(&sequence(&responses).await, Limits::default()).await, *expected, "{responses:?}");
    }
    // The timeout of the call includes the wait.
    let limits = Limits { timeout: Duration::from_millis(1900), ..Limits::default() };
    assert_eq!(get(&sequence(&[SOON, OK]).await, limits).await, limited);
    let form = async |responses: &[&str]| {
        let url = sequence(responses).await;
        OutboundClient::new("test", [&url]).unwrap().post_form::<Value>(&url, &[("a", "b")]).await
    };
    assert_eq!(form(&[NOW, OK]).await, repeated);
}

#[tokio::test]
async fn closed_port_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/?hush=hush", listener.local_addr().unwrap())).unwrap();
    drop(listener);
    let error = get(&url, Limits::default()).await.unwrap_err();
    assert!(matches!(error, OutboundError::Unreachable(_)), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
}

#[tokio::test]
async fn only_configured_origins_are_called() {
    let (configured, other) = (CodeHostServer::start().await, CodeHostServer::start().await);
    let configured = configured.client().user_url;
    let client = OutboundClient::new("test", [&configured]).unwrap();
    let secret = Secret::new("hush".to_owned());
    let port = configured.port().unwrap();
    for url in [
        other.client().user_url.to_string(),
        format!("https://127.0.0.1:{port}/user"),
        format!("http://localhost:{port}/user"),
        "http://127.0.0.1/user".to_owned(),
        format!("ftp://127.0.0.1:{port}/user"),
        "data:,17".to_owned(),
    ] {
        let url = Url::parse(&url).unwrap();
        assert_eq!(client.get::<Value>(&url, &secret).await, Err(OutboundError::NotAllowed), "{url}");
        assert_eq!(client.post_form::<Value>(&url, &[]).await, Err(OutboundError::NotAllowed), "{url}");
    }
    assert_eq!(other.requests(), Vec::<String>::new());
    assert_eq!(client.get::<Value>(&configured, &secret).await, Err(OutboundError::Status(401)));
}

#[test]
fn origin_must_be_http_without_credentials() {
    let create = |url: &str| OutboundClient::new("test", [&Url::parse(url).unwrap()]).map(drop);
    create("https://a.example/x").unwrap();
    assert!(matches!(create("ftp://a.example/"), Err(OutboundConfigError::Scheme)));
    assert!(matches!(create("data:,"), Err(OutboundConfigError::Scheme)));
    assert!(matches!(create("https://u:p@a.example/"), Err(OutboundConfigError::Userinfo)));
    assert!(matches!(create("https://u@a.example/"), Err(OutboundConfigError::Userinfo)));
}

#[tokio::test]
async fn https_certificate_is_verified() {
    let (certificate, listener) = (Certificate::generate(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let url = Url::parse(&format!("https://localhost:{}/", listener.local_addr().unwrap().port())).unwrap();
    let accepted = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        certificate.acceptor().accept(stream).await.map(drop)
    });
    let error = get(&url, Limits::default()).await.unwrap_err();
    assert!(matches!(&error, OutboundError::Unreachable(what) if what.contains("UnknownIssuer")), "{error:?}");
    accepted.await.unwrap().unwrap_err();
}
