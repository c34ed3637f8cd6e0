//! The end of the process: on a signal, and in a crash.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use sandbox::{Encryption, SmtpServer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::Process;
use crate::paused_commit::{crash_before_commit, pause_commits};
use crate::support::{client, eventually, site};

/// The time for which the server keeps idle connections open after the signal.
const LINGER: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_waits_for_an_upload() {
    let mut process = Process::start().await;
    let token = process.sign_in().await;
    process.json(&token, "POST", "/v1/orgs/ada/projects", Some(json!({ "name": "site" }))).await;
    let whole = site(&"page ".repeat(5000));
    let (first, second) = (whole[..50].to_vec(), whole[50..].to_vec());
    let (resume, resumed) = tokio::sync::oneshot::channel::<()>();
    let first = futures_util::stream::iter([Ok::<_, std::io::Error>(first)]);
    let slow = first.chain(futures_util::stream::once(async move {
        resumed.await.unwrap();
        Ok(second)
    }));
    let upload = client()
        .post(format!("{}/v1/orgs/ada/projects/site/deployments", process.base))
        .bearer_auth(&token)
        .header("content-type", "application/gzip")
        .body(reqwest::Body::wrap_stream(slow))
        .send();
    let address = process.base.strip_prefix("http://").unwrap();
    let (upload, ()) = tokio::join!(upload, async {
        let is_upload = |line: &str| line.starts_with("svc_uploads_in_progress{") && line.contains("\"bundle\"");
        let has_begun = async || {
            let metrics = process.metrics().await;
            metrics.lines().any(|line| is_upload(line) && line.ends_with(" 1")).then_some(())
        };
        eventually("the upload is in progress", has_begun).await;
        process.terminate();
        let is_stopping = async || TcpStream::connect(address).await.is_err().then_some(());
        eventually("the listener closes", is_stopping).await;
        resume.send(()).unwrap();
    });
    assert_eq!(upload.unwrap().status(), 201);
    assert!(process.wait_for_exit().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_connection_is_closed_after_a_response() {
    for _ in 0..10 {
        if closes_after_response().await {
            return;
        }
    }
    panic!("the connection was idle for too long in each attempt");
}

/// Sends requests until the server that stops closes their connection. Returns whether it did so after a response. Returns
/// false if it closed an idle connection, because a busy machine paused this test for too long.
async fn closes_after_response() -> bool {
    let mut process = Process::start().await;
    let address = process.base.strip_prefix("http://").unwrap().to_owned();
    let mut connection = TcpStream::connect(&address).await.unwrap();
    let terminated_at = Instant::now();
    process.terminate();
    loop {
        let request = format!("GET /v1/config HTTP/1.1\r\nhost: {address}\r\n\r\n");
        let sent = connection.write_all(request.as_bytes()).await;
        let mut response = String::new();
        while !response.ends_with('}') {
            let mut bytes = [0; 4096];
            let read = if sent.is_ok() { connection.read(&mut bytes).await.unwrap_or(0) } else { 0 };
            if read == 0 && response.is_empty() && terminated_at.elapsed() >= LINGER {
                return false;
            }
            assert_ne!(read, 0, "the connection was closed without a response: {response:?}");
            response.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        }
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        if response.to_lowercase().contains("connection: close") {
            break;
        }
    }
    assert!(process.wait_for_exit().await.success());
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_is_duplicated_at_most_once_after_a_crash() {
    let smtp = SmtpServer::start(Encryption::None).await;
    let mail = [("SVC_SMTP_URL", smtp.url()), ("SVC_MAIL_FROM", "Svc <no-reply@svc.example>".to_owned())];
    let mut process = Process::with(&mail).await;
    let token = process.sign_in().await;
    // The SMTP server accepts the mail, but the delivery is not recorded before the crash.
    let pause = format!("{}; INSERT INTO paused VALUES (true)", pause_commits("DELETE", "store.outbox"));
    process.database.run(&pause).await;
    let invite = json!({ "email": "bob@example.org", "role": "viewer" });
    process.json(&token, "POST", "/v1/orgs/ada/invites", Some(invite)).await;
    smtp.wait_for(1).await;
    crash_before_commit(&mut process, "DELETE FROM paused").await;

    let sent = async || process.json(&token, "GET", "/v1/orgs/ada/invites", None).await["items"][0]["sentAt"].clone();
    assert_eq!(sent().await, Value::Null);
    // End the lease of the killed process instead of waiting for it.
    process.database.run("UPDATE store.outbox SET next_attempt_at = created_at").await;
    eventually("the mail is recorded as sent", async || sent().await.is_string().then_some(())).await;
    let received = smtp.wait_for(2).await;
    let id = |raw: &[u8]| {
        let text = String::from_utf8_lossy(raw).into_owned();
        text.lines().find(|line| line.starts_with("Message-ID:")).unwrap().to_owned()
    };
    let ids: Vec<String> = received.iter().map(|mail| id(&mail.raw)).collect();
    assert_eq!(ids.len(), 2);
    assert_eq!(ids[0], ids[1], "the duplicate has another Message-ID");
}
