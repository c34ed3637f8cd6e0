//! Mail that projects receive.

use std::collections::VecDeque;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::{DOMAIN, EMAIL, Kit, LOG, claim, ids, inbound, new_id};
use crate::support::ManualNode;

const MESSAGE: &str = "Received: by mx\r\nSubject: Hi\r\n\r\nHello\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn recipient_is_looked_up_by_its_domain() {
    let kit = Kit::start().await;
    let look_up = async |domain: &str| {
        let body = json!({ "domain": domain });
        kit.mx.send(Method::POST, "mail/recipients", |request| request.json(&body)).await.expect(200).clone()
    };
    assert_eq!(look_up(DOMAIN).await, json!({ "project": kit.project }));
    assert_eq!(look_up("other.ada.mail.localhost").await, json!("unknown"));
    assert_eq!(look_up("example.org").await, json!("foreign"));
    kit.ada.delete(EMAIL).await.expect(204);
    assert_eq!(look_up(DOMAIN).await, json!("unknown"));
}

#[tokio::test(flavor = "multi_thread")]
async fn received_mail_is_stored_once_and_delivered_to_the_home_node() {
    let kit = Kit::start().await;
    let id = kit.receive(MESSAGE).await;
    kit.upload(&id, MESSAGE).await.expect(204);
    kit.commit(&id, inbound(&kit.project, MESSAGE)).await.expect(204);
    let entry = kit.ada.get(&format!("{LOG}/{id}")).await.expect(200).clone();
    let expected = json!({
        "id": id, "direction": "in", "from": "eve@example.org", "to": [format!("sales@{DOMAIN}")], "subject": "Hi",
        "outcome": "received", "detail": null, "sizeBytes": MESSAGE.len(), "spf": "pass", "hasRaw": true,
        "createdAt": entry["createdAt"],
    });
    assert_eq!(entry, expected);
    assert_eq!(kit.ada.get(&format!("{LOG}/{id}/raw")).await.bytes, MESSAGE.as_bytes());
    assert_eq!(kit.ada.get(EMAIL).await.expect(200)["receivedLast24h"], 1);
    // Only the home node gets the mail.
    let other = ManualNode::named(&kit.app, "other").await;
    assert_eq!(kit.claim(&other).await, Vec::<Value>::new());
    let claimed = kit.claim(&kit.node).await;
    let expected = json!({
        "id": id, "project": kit.project, "attempt": 1, "from": "eve@example.org", "to": [format!("sales@{DOMAIN}")],
        "sizeBytes": MESSAGE.len(),
    });
    assert_eq!(claimed, [expected]);
    let raw = format!("mail/messages/{id}/raw");
    other.send(Method::GET, &raw, |request| request).await.expect_error(404, "not_found");
    let message = kit.node.send(Method::GET, &raw, |request| request).await;
    assert_eq!((message.status, message.header("content-type")), (200, "message/rfc822"));
    assert_eq!(message.bytes, MESSAGE.as_bytes());
    // Another node's result and an earlier attempt's result have no effect.
    kit.complete(&other, &id, 1, ("rejected", Some("no"))).await;
    kit.complete(&kit.node, &id, 2, ("rejected", Some("no"))).await;
    assert_eq!(kit.ada.get(&format!("{LOG}/{id}")).await.expect(200)["outcome"], "received");
    for _ in 0..2 {
        kit.complete(&kit.node, &id, 1, ("rejected", Some("no\r\nspam"))).await;
    }
    let entry = kit.ada.get(&format!("{LOG}/{id}")).await.expect(200).clone();
    assert_eq!((&entry["outcome"], &entry["detail"]), (&json!("rejected"), &json!("no  spam")));
    kit.node.send(Method::GET, &raw, |request| request).await.expect_error(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_waits_for_mail_and_a_failed_attempt_is_repeated() {
    let kit = Kit::start().await;
    let (waiting, id) = tokio::join!(claim(&kit.node, 30, &[]), kit.receive(MESSAGE));
    assert_eq!(waiting.expect(200)["deliveries"][0]["id"], id);
    kit.complete(&kit.node, &id, 1, ("failed", Some("threw an Error"))).await;
    let detail = "attempt 1 failed: threw an Error";
    assert_eq!(kit.ada.get(&format!("{LOG}/{id}")).await.expect(200)["detail"], detail);
    kit.app.clock.advance(5);
    assert_eq!(kit.claim(&kit.node).await[0]["attempt"], 2);
    kit.complete(&kit.node, &id, 2, ("handled", None)).await;
    assert_eq!(kit.ada.get(&format!("{LOG}/{id}")).await.expect(200)["detail"], Value::Null);
    let path = format!("mail/deliveries/{id}");
    for body in [
        json!({ "attempt": 2, "outcome": "rejected", "reason": "no", "unknownField": null }),
        json!({ "attempt": 2 }),
        json!({ "attempt": 2, "outcome": "unknown" }),
    ] {
        let response = kit.node.send(Method::POST, &path, |request| request.json(&body)).await;
        response.expect_error(400, "bad_request");
    }
    let in_progress = |ids: Value| json!({ "inProgress": ids });
    for (wait, body) in [
        (-1, in_progress(json!([]))),
        (0, json!({})),
        (0, in_progress(json!(["mail_1"]))),
        (0, in_progress(json!(vec![&id; 1001]))),
    ] {
        let path = format!("mail/deliveries?wait={wait}");
        let response = kit.node.send(Method::POST, &path, |request| request.json(&body)).await;
        response.expect_error(400, "bad_request");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_claim_of_a_renewed_credential_gets_no_mail() {
    let kit = Kit::start().await;
    let receive = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let renewed = kit.node.renew(&kit.app, "edge").await;
        (renewed, kit.receive(MESSAGE).await)
    };
    let (waiting, (renewed, id)) = tokio::join!(claim(&kit.node, 30, &[]), receive);
    waiting.expect_error(401, "unauthenticated");
    assert_eq!(ids(&claim(&renewed, 0, &[]).await), [id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_ends_those_of_mails_that_are_not_in_progress() {
    let kit = Kit::start().await;
    let [lost, in_progress] = [kit.receive(MESSAGE).await, kit.receive(MESSAGE).await];
    assert_eq!(kit.claim(&kit.node).await.len(), 2);
    assert_eq!(ids(&claim(&kit.node, 0, &[in_progress]).await), [lost]);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_claim_returns_mail_when_the_project_falls_below_its_limit() {
    /// The number of mails above the limit.
    const MORE: usize = 10;
    let kit = Kit::start().await;
    for _ in 0..5 + MORE {
        kit.receive(MESSAGE).await;
    }
    let mut claimed = VecDeque::from(ids(&claim(&kit.node, 0, &[]).await));
    assert_eq!(claimed.len(), 5);
    for _ in 0..MORE {
        let in_progress: Vec<String> = claimed.iter().cloned().collect();
        let handled = claimed.pop_front().unwrap();
        let handled = kit.complete(&kit.node, &handled, 1, ("handled", None));
        let (next, ()) = tokio::join!(claim(&kit.node, 30, &in_progress), handled);
        claimed.extend(ids(&next));
    }
    assert_eq!(claimed.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_mail_of_the_mail_node_is_rejected() {
    let kit = Kit::start().await;
    let id = new_id();
    let mail = |field: &str, value: Value| {
        let mut mail = inbound(&kit.project, MESSAGE);
        mail[field] = value;
        mail
    };
    // The message was not uploaded.
    kit.commit(&id, inbound(&kit.project, MESSAGE)).await.expect_error(409, "upload_mismatch");
    kit.upload(&id, MESSAGE).await.expect(204);
    kit.commit(&id, mail("sizeBytes", json!(1))).await.expect_error(409, "upload_mismatch");
    for (field, value) in [
        ("spf", json!("maybe")),
        ("receivedAt", json!("yesterday")),
        ("project", json!("prj_1")),
        ("to", json!([])),
        ("from", json!("x".repeat(513))),
    ] {
        kit.commit(&id, mail(field, value)).await.expect_error(400, "bad_request");
    }
    let unknown = mail("project", json!("prj_01h455vb4pex5vsknk084sn02q"));
    kit.commit(&id, unknown).await.expect_error(404, "not_found");
    kit.commit("mail_1", inbound(&kit.project, MESSAGE)).await.expect_error(404, "not_found");
    let path = format!("mail/uploads/{}/{id}", kit.project.as_str().unwrap());
    let upload =
        kit.mx.send(Method::PUT, &path, |request| request.header("content-type", "text/plain").body("x")).await;
    upload.expect_error(415, "unsupported_media_type");
    let large = vec![b'x'; 27 * 1024 * 1024];
    let upload = kit.mx.send(Method::PUT, &path, |it| it.header("content-type", "message/rfc822").body(large)).await;
    upload.expect_error(413, "payload_too_large");
    assert_eq!(kit.ada.get(LOG).await.expect(200)["items"], json!([]));
}
