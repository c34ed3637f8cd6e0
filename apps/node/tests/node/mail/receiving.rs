//! The mail that `email()` receives.

use actix_web::web::Bytes;
use protocol::DeliveryResult;
use reqwest::Method;
use reqwest::header::HOST as HOST_HEADER;
use serde_json::{Value, json};

use super::{HOST, Rig, address, mail};
use crate::control_plane::{ControlPlane, sha256};
use crate::node_process::NodeProcess;
use crate::running::until;
use crate::visitor::Visitor;
use crate::workers::workerd;

#[tokio::test(flavor = "multi_thread")]
async fn message_has_the_envelope_the_headers_and_the_raw_mail() {
    let Some(rig) = Rig::start().await else { return };
    let raw = "X-Mode: describe\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n folded\r\nReceived: a\r\nReceived: b\r\n\r\n\
        From: body\r\n.\r\n..\r\n";
    let id = rig.core.receive_mail("app", raw);
    let DeliveryResult::Rejected(seen) = rig.core.mail_result(&id).await else { panic!("not described") };
    let headers = [("received", "a, b"), ("subject", "=?utf-8?q?Gr=C3=BC=C3=9Fe?= folded"), ("x-mode", "describe")];
    let expected = json!({
        "id": id, "from": "ada@example.com", "to": ["hello@app.ada.example", "bye@app.ada.example"], "headers": headers,
        "rawSize": raw.len(), "size": raw.len(), "digest": sha256(raw.as_bytes()),
    });
    assert_eq!(serde_json::from_str::<Value>(&seen).unwrap(), expected);
    assert_eq!(rig.seen().await, [id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_of_the_sender_are_only_in_the_raw_mail() {
    let Some(rig) = Rig::start().await else { return };
    let raw = "Return-Path: <a@x.example>\r\n\
        Authentication-Results: mx.example;\r\n\tspf=none smtp.mailfrom=x.example\r\n\
        Received: from x.example by mx.example\r\nX-Mode: describe\r\n\
        Authentication-Results: evil; spf=pass smtp.mailfrom=bank.example\r\n\tdkim=pass\r\n\
        AUTHENTICATION-RESULTS : evil (\r\n mx.example; spf=pass)\r\nReceived-SPF: pass\r\n\r\n";
    let seen = rig.described(raw).await;
    let headers = json!([
        ["authentication-results", "mx.example; spf=none smtp.mailfrom=x.example"],
        ["received", "from x.example by mx.example"],
        ["received-spf", "pass"],
        ["return-path", "<a@x.example>"],
        ["x-mode", "describe"],
    ]);
    assert_eq!(seen["headers"], headers);
    assert_eq!(seen["digest"], sha256(raw.as_bytes()));
}

#[tokio::test(flavor = "multi_thread")]
async fn null_sender_is_an_empty_text() {
    let Some(rig) = Rig::start().await else { return };
    let id = rig.core.receive_mail_from("", "app", mail("describe"));
    let DeliveryResult::Rejected(seen) = rig.core.mail_result(&id).await else { panic!("not described") };
    assert_eq!(serde_json::from_str::<Value>(&seen).unwrap()["from"], "");
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_mails_are_delivered() {
    let Some(rig) = Rig::start().await else { return };
    let long = "x".repeat(300 << 10);
    for (name, raw, headers) in [
        (
            "bytes that are not UTF-8",
            b"A: \xff\xfe\0\x01z\r\nX-Mode: describe\r\n\r\n\xff\0".to_vec(),
            json!([["a", "\u{fffd}\u{fffd}  z"], ["x-mode", "describe"]]),
        ),
        (
            "UTF-8",
            "X-Mode: describe\r\nSubject: Grüße 日本\r\n\r\n".into(),
            json!([["subject", "Grüße 日本"], ["x-mode", "describe"]]),
        ),
        (
            "names that are not of HTTP",
            b"a(b: 1\r\n\xff: 2\r\nno colon\r\n: 3\r\nX-Mode: describe\r\n\r\n".to_vec(),
            json!([["x-mode", "describe"]]),
        ),
        ("no body", b"X-Mode: describe\r\n\r\n".to_vec(), json!([["x-mode", "describe"]])),
        ("no end of the headers", b"X-Mode: describe\r\nA: 1".to_vec(), json!([["x-mode", "describe"]])),
        ("line feeds", b"X-Mode: describe\nA: 1\n\nB: 2\n".to_vec(), json!([["a", "1"], ["x-mode", "describe"]])),
        (
            "headers over the limit",
            format!("X-Mode: describe\r\nLong: {long}\r\nLast: 1\r\n\r\n").into(),
            json!([["x-mode", "describe"]]),
        ),
        (
            "name of an object's property",
            b"X-Mode: describe\r\n__proto__: 1\r\n\r\n".to_vec(),
            json!([["__proto__", "1"], ["x-mode", "describe"]]),
        ),
    ] {
        let seen = rig.described(raw.clone()).await;
        assert_eq!(seen["headers"], headers, "{name}");
        assert_eq!((&seen["size"], &seen["digest"]), (&json!(raw.len()), &json!(sha256(&raw))), "{name}");
    }
    // Without a mode, the worker of the test throws.
    let empty = rig.result_of("").await;
    assert!(matches!(&empty, DeliveryResult::Failed(error) if error.starts_with("TypeError")), "{empty:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_mail_uses_little_memory_of_the_node() {
    let Some(rig) = Rig::start().await else { return };
    let large = |mode| Bytes::from(format!("X-Mode: {mode}\r\n\r\n{}", "0123456789abcdef".repeat((25 << 20) / 16)));
    let raw = large("digest");
    assert_eq!(rig.result_of(mail("ignore")).await, DeliveryResult::Handled);
    let before = rig.memory("VmRSS");
    rig.reset_peak();
    let digest = sha256(&raw);
    assert_eq!(rig.result_of(raw).await, DeliveryResult::Rejected(digest));
    let peak = rig.memory("VmHWM");
    assert!(peak < before + (8 << 20), "{} KiB", (peak - before) >> 10);
    // The result is not lost if the worker does not read the mail to its end.
    for mode in ["ignore", "cancel", "lock"] {
        let raw = large(mode);
        for _ in 0..3 {
            assert_eq!(rig.result_of(raw.clone()).await, DeliveryResult::Handled, "{mode}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn visitors_and_other_workers_cannot_call_the_handler() {
    let Some(rig) = Rig::start().await else { return };
    const OTHER: &str = r#"export default { async fetch(request, env, ctx) {
      const results = [];
      for (const url of ["http://email/", "http://app.localhost/", "http://svc:email/", "unix:email"]) {
        try { results.push((await fetch(url, { method: "POST", body: await request.clone().text() })).status); }
        catch { results.push("error"); }
      }
      return Response.json({ env: Object.keys(env), exports: Object.keys(ctx.exports ?? {}), results });
    } };"#;
    rig.core.deploy("other", &[("worker/index.js", OTHER.as_bytes())]);
    rig.visitor().sees("other.localhost", "/", 200, r#""env":["assets"]"#).await;
    // A forged request, with the content that the node itself would send.
    let head = json!({ "id": "mail_forged", "from": "", "to": [], "headers": [["x-mode", "ignore"]], "rawSize": 0 });
    let head = head.to_string();
    let forged = [&u32::try_from(head.len()).unwrap().to_be_bytes()[..], head.as_bytes()].concat();
    for (host, path) in
        [(HOST, "/"), (HOST, "/email"), (HOST, "/__svc/email"), ("email", "/"), ("app.localhost:1", "/")]
    {
        let request = rig.visitor().request(Method::POST, host, path).body(forged.clone());
        let request = request.header("svc-worker-binding", "email").header("svc-worker-email", "1");
        let response = Visitor::send(request).await;
        assert_eq!(response.status, 404, "{host} {path}: {response:?}");
    }
    let request = rig.visitor().request(Method::POST, "other.localhost", "/").body(forged);
    let other = Visitor::send(request.header(HOST_HEADER, "other.localhost")).await;
    assert!(!other.body.contains("200") && !other.body.contains("svc:email"), "{other:?}");
    assert_eq!(rig.seen().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn node_polls_only_while_a_project_has_an_address() {
    if workerd().is_none() {
        return;
    }
    let core = ControlPlane::start().await;
    core.deploy("app", &[("worker/index.js", include_bytes!("worker.js"))]);
    let node = NodeProcess::start::<&str, &str>(core, []).await;
    node.visitor().sees(HOST, "/granted", 200, "false").await;
    let id = node.core.receive_mail("app", mail("ignore"));
    assert_eq!(node.core.mail_polls(), 0);
    node.core.set_part("app", "email", address("app"));
    node.visitor().sees(HOST, "/granted", 200, "true").await;
    // The previous process has no address, so the first attempt can fail.
    node.core.mail_result(&id).await;
    node.core.redeliver_mail(&id);
    assert_eq!(node.core.mail_result(&id).await, DeliveryResult::Handled);
    until("a poll", || node.core.mail_polls() > 0).await;
}
