//! The model-lending service, with messages that the tests sign (Standard Webhooks, "Signature scheme").

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Response;
use ring::hmac;

use super::TestSandbox;

/// The key of `sandbox::LENDING_SECRET`.
const KEY: &[u8] = b"sandbox lending secret";

#[expect(clippy::disallowed_methods, reason = "the sandbox compares timestamps with the clock of the system")]
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap()
}

fn sign(key: &[u8], id: &str, timestamp: &str, body: &str) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), format!("{id}.{timestamp}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(tag))
}

async fn send(
    sandbox: &TestSandbox,
    id: &str,
    timestamp: &str,
    signature: &str,
    body: &str,
) -> reqwest::Result<Response> {
    let request = sandbox.browser.post(format!("{}/lending/revocations", sandbox.base));
    let request = request.header("webhook-id", id).header("webhook-timestamp", timestamp);
    request.header("webhook-signature", signature).body(body.to_owned()).send().await
}

/// Sends a valid message about this grant.
async fn report(sandbox: &TestSandbox, sid: &str) -> reqwest::Result<Response> {
    let (id, timestamp, body) = (format!("msg_{sid}"), now().to_string(), format!(r#"{{"sid":"{sid}"}}"#));
    send(sandbox, &id, &timestamp, &sign(KEY, &id, &timestamp, &body), &body).await
}

#[tokio::test]
async fn only_signed_and_recent_messages_are_accepted() {
    let sandbox = TestSandbox::start().await;
    let body = r#"{"sid":"rejected"}"#;
    let current = now().to_string();
    let status = async |timestamp: &str, signature: &str| {
        send(&sandbox, "msg_1", timestamp, signature, body).await.unwrap().status().as_u16()
    };
    for age in [-3600, -302, 302, 86_400] {
        let timestamp = (now() - age).to_string();
        assert_eq!(status(&timestamp, &sign(KEY, "msg_1", &timestamp, body)).await, 401, "{age}");
    }
    for timestamp in ["", "now", "-1", "99999999999999999999"] {
        assert_eq!(status(timestamp, &sign(KEY, "msg_1", timestamp, body)).await, 401, "{timestamp}");
    }
    let valid = sign(KEY, "msg_1", &current, body);
    for signature in [
        "",
        "v1,",
        valid.strip_prefix("v1,").unwrap(),
        &valid.replace("v1,", "v2,"),
        &sign(b"another key", "msg_1", &current, body),
        &sign(KEY, "msg_2", &current, body),
        &sign(KEY, "msg_1", "1", body),
        &sign(KEY, "msg_1", &current, "{}"),
    ] {
        assert_eq!(status(&current, signature).await, 401, "{signature}");
    }
    assert!(!sandbox.text("/lending").await.contains("rejected"));
    // One valid signature among several is enough. Each id is accepted once.
    let several = format!("v1,AAAA {valid}");
    assert_eq!((status(&current, &several).await, status(&current, &valid).await), (204, 204));
    assert!(sandbox.text("/lending").await.contains("<td>rejected</td><td>msg_1</td><td>2</td>"));
    assert!(sandbox.text("/").await.contains("1 ended grants"));
}

#[tokio::test]
async fn faults_can_be_selected() {
    let sandbox = TestSandbox::start().await;
    let select = async |fault: &str| sandbox.submit("/lending", &[("fault", fault)]).await.status().as_u16();
    assert_eq!(select("unknown").await, 400);
    for (fault, status) in [("unavailable", 503), ("html", 502)] {
        assert_eq!(select(fault).await, 302);
        assert!(sandbox.text("/lending").await.contains(&format!("<option selected>{fault}</option>")));
        assert_eq!(report(&sandbox, fault).await.unwrap().status(), status);
    }
    assert_eq!(select("close").await, 302);
    report(&sandbox, "close").await.unwrap_err();
    // A hanging request has no response before the fault ends.
    assert_eq!(select("hang").await, 302);
    let mut hanging = Box::pin(report(&sandbox, "hang"));
    let arrived = async { while !sandbox.text("/lending").await.contains("Requests in progress: 1") {} };
    tokio::select! {
        response = &mut hanging => panic!("{response:?}"),
        () = arrived => {}
    }
    assert_eq!(select("none").await, 302);
    hanging.await.unwrap_err();
    let page = sandbox.text("/lending").await;
    assert!(page.contains("<option selected>none</option>") && !page.contains("msg_"), "{page}");
    for fault in ["slow", "none"] {
        assert_eq!(select(fault).await, 302);
        assert_eq!(report(&sandbox, fault).await.unwrap().status(), 204, "{fault}");
        assert!(sandbox.text("/lending").await.contains(&format!("msg_{fault}")));
    }
}
