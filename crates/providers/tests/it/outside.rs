//! The client for calls to the outside, against servers that answer what they like.

use std::time::Duration;

use kernel::Secret;
use providers::{InvalidOutside, Limits, Outside, OutsideError};
use sandbox::{Certificate, CodeHostServer};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use url::Url;

/// A server that answers each request with these bytes, and then keeps silent or ends the connection.
async fn server(answer: impl Into<Vec<u8>>, ends: bool) -> Url {
    let (listener, answer) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), answer.into());
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(&answer).await;
            if !ends {
                kept.push(stream);
            }
        }
    });
    url
}

async fn get(url: &Url, limits: Limits) -> Result<Value, OutsideError> {
    let outside = Outside::within("test", [url], limits).unwrap();
    outside.get(url, &Secret::new("hush".to_owned())).await
}

async fn answered(answer: impl Into<Vec<u8>>) -> Result<Value, OutsideError> {
    get(&server(answer, true).await, Limits::default()).await
}

fn impatient() -> Limits {
    Limits { whole: Duration::from_millis(200), ..Limits::default() }
}

#[tokio::test]
async fn json_is_read() {
    assert_eq!(answered("HTTP/1.1 200 .\r\nContent-Length: 2\r\n\r\n17").await, Ok(Value::from(17)));
    assert_eq!(answered("HTTP/1.1 201 .\r\n\r\n17").await, Ok(Value::from(17)));
}

#[tokio::test]
async fn anything_else_is_told_apart() {
    for (status, error) in [
        (301, OutsideError::Redirected(301)),
        (307, OutsideError::Redirected(307)),
        (400, OutsideError::Refused(400)),
        (401, OutsideError::Refused(401)),
        (503, OutsideError::Refused(503)),
    ] {
        let answer = format!("HTTP/1.1 {status} .\r\nLocation: /\r\nContent-Length: 2\r\n\r\n17");
        assert_eq!(answered(answer).await, Err(error));
    }
    for body in ["", "<!DOCTYPE html>", "{", "17 18", "\u{feff}17", "nul", "'a'"] {
        let answer = format!("HTTP/1.1 200 .\r\nContent-Type: application/json\r\n\r\n{body}");
        assert_eq!(answered(answer).await, Err(OutsideError::NotJson), "{body:?}");
    }
    assert_eq!(answered(b"HTTP/1.1 200 .\r\n\r\n\"\xff\"".to_vec()).await, Err(OutsideError::NotJson));
    let deep = format!("HTTP/1.1 200 .\r\n\r\n{}", "[".repeat(100_000));
    assert_eq!(answered(deep).await, Err(OutsideError::NotJson));
    for answer in ["", "220 mail.example ESMTP\r\n", "HTTP/1.1 200 .\r\nContent-Length: 5\r\n\r\n17"] {
        let error = answered(answer).await.unwrap_err();
        assert!(matches!(error, OutsideError::Unreachable(_)), "{answer:?}: {error:?}");
    }
}

#[tokio::test]
async fn an_answer_is_bounded_while_it_is_read() {
    let limit = Limits::default().body;
    let json = |size: usize| format!("\"{}\"", "x".repeat(size - 2));
    let endless = |size| format!("HTTP/1.1 200 .\r\n\r\n{}", json(size));
    assert!(answered(endless(limit)).await.is_ok());
    assert_eq!(answered(endless(limit + 1)).await, Err(OutsideError::TooLarge));
    // What is announced does not count: here the server would go on for ever.
    let liar = format!("HTTP/1.1 200 .\r\nContent-Length: 999999999999\r\n\r\n{}", json(2 * limit));
    assert_eq!(get(&server(liar, false).await, Limits::default()).await, Err(OutsideError::TooLarge));
    let short = format!("HTTP/1.1 200 .\r\nContent-Length: 2\r\n\r\n17{}", json(2 * limit));
    assert_eq!(answered(short).await, Ok(Value::from(17)));
}

#[tokio::test]
async fn silence_ends_the_call() {
    for answer in ["", "HTTP/1.1 200 .\r\n", "HTTP/1.1 200 .\r\nContent-Length: 9\r\n\r\n\"17"] {
        assert_eq!(get(&server(answer, false).await, impatient()).await, Err(OutsideError::Timeout), "{answer:?}");
    }
}

#[tokio::test]
async fn a_port_that_nobody_listens_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/?hush=hush", listener.local_addr().unwrap())).unwrap();
    drop(listener);
    let error = get(&url, Limits::default()).await.unwrap_err();
    assert!(matches!(error, OutsideError::Unreachable(_)), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
}

#[tokio::test]
async fn only_the_named_origins_are_called() {
    let (named, other) = (CodeHostServer::start().await, CodeHostServer::start().await);
    let named = named.client().user_url;
    let outside = Outside::new("test", [&named]).unwrap();
    let secret = Secret::new("hush".to_owned());
    let port = named.port().unwrap();
    for url in [
        other.client().user_url.to_string(),
        format!("https://127.0.0.1:{port}/user"),
        format!("http://localhost:{port}/user"),
        "http://127.0.0.1/user".to_owned(),
        format!("ftp://127.0.0.1:{port}/user"),
        "data:,17".to_owned(),
    ] {
        let url = Url::parse(&url).unwrap();
        assert_eq!(outside.get::<Value>(&url, &secret).await, Err(OutsideError::NotAllowed), "{url}");
        assert_eq!(outside.post_form::<Value>(&url, &[]).await, Err(OutsideError::NotAllowed), "{url}");
    }
    assert_eq!(other.requested(), Vec::<String>::new());
    assert_eq!(outside.get::<Value>(&named, &secret).await, Err(OutsideError::Refused(401)));
}

#[test]
fn an_origin_is_http_and_holds_no_credentials() {
    let made = |url: &str| Outside::new("test", [&Url::parse(url).unwrap()]).map(drop);
    made("https://a.example/x").unwrap();
    assert!(matches!(made("ftp://a.example/"), Err(InvalidOutside::Scheme)));
    assert!(matches!(made("data:,"), Err(InvalidOutside::Scheme)));
    assert!(matches!(made("https://u:p@a.example/"), Err(InvalidOutside::Userinfo)));
    assert!(matches!(made("https://u@a.example/"), Err(InvalidOutside::Userinfo)));
}

#[tokio::test]
async fn https_is_verified() {
    let (certificate, listener) = (Certificate::generate(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let url = Url::parse(&format!("https://localhost:{}/", listener.local_addr().unwrap().port())).unwrap();
    let accepted = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        certificate.acceptor().accept(stream).await.map(drop)
    });
    let error = get(&url, Limits::default()).await.unwrap_err();
    assert!(matches!(&error, OutsideError::Unreachable(what) if what.contains("UnknownIssuer")), "{error:?}");
    accepted.await.unwrap().unwrap_err();
}
