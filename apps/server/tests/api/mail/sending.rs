//! Mail that workers send.

use sandbox::SmtpFault;
use serde_json::{Value, json};

use super::{DOMAIN, EMAIL, Kit, LOG, new_id};
use crate::support::{eventually, use_short_waits};

#[tokio::test(flavor = "multi_thread")]
async fn sent_mail_reaches_the_relay_and_the_log() {
    let kit = Kit::start().await;
    let id = kit
        .send(json!({
            "from": format!("The Shop <shop@{DOMAIN}>"), "to": ["Ada <ada@example.org>"], "bcc": ["eve@example.org"],
            "subject": "Grüße", "html": "<p>Hello</p>",
            "attachments": [{ "filename": "a.txt", "contentType": "text/plain", "content": "YQ==" }],
        }))
        .await;
    let mail = kit.relay.wait_for(1).await.remove(0);
    assert_eq!(mail.from, format!("shop@{DOMAIN}"));
    assert_eq!(mail.to, ["ada@example.org", "eve@example.org"]);
    let text = String::from_utf8(mail.raw.clone()).unwrap();
    assert!(text.contains(&format!("Message-ID: <{id}@{DOMAIN}>\r\n")) && !text.contains("eve@"), "{text}");
    let entry = kit.wait_for(&id, "sent").await;
    let expected = json!({
        "id": id, "direction": "out", "from": format!("shop@{DOMAIN}"), "to": ["ada@example.org", "eve@example.org"],
        "subject": "Grüße", "outcome": "sent", "detail": null, "sizeBytes": entry["sizeBytes"], "spf": null,
        "hasRaw": true, "createdAt": entry["createdAt"],
    });
    assert_eq!(entry, expected);
    assert_eq!(kit.ada.get(LOG).await.expect(200), &json!({ "items": [expected], "nextCursor": null }));
    let raw = kit.ada.get(&format!("{LOG}/{id}/raw")).await;
    raw.expect(200);
    assert_eq!(raw.header("content-type"), "message/rfc822");
    assert_eq!(raw.header("content-disposition"), format!("attachment; filename=\"{id}.eml\""));
    assert_eq!(raw.header("cache-control"), "no-store");
    assert_eq!(json!(raw.bytes.len()), entry["sizeBytes"]);
    assert_eq!(raw.bytes.trim_ascii_end(), mail.raw.trim_ascii_end());
    let status = kit.ada.get(EMAIL).await.expect(200).clone();
    assert_eq!((&status["sentLastHour"], &status["sentLast24h"]), (&json!(1), &json!(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_submission_and_lost_response_send_the_same_message() {
    let kit = Kit::start().await;
    kit.relay.inject(Some(SmtpFault::DropAfterMessage));
    let id = kit.send(json!({})).await;
    for _ in 0..3 {
        assert_eq!(kit.submit(&id, json!({})).await.expect(200), &json!("queued"));
    }
    kit.relay.wait_for(1).await;
    kit.relay.inject(None);
    let received = kit.relay.wait_for(2).await;
    kit.wait_for(&id, "sent").await;
    assert_eq!(received[0].raw, received[1].raw);
    assert_eq!(kit.ada.get(LOG).await.expect(200)["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_of_the_relay_bounces_the_mail() {
    let kit = Kit::start().await;
    kit.relay.inject(Some(SmtpFault::Recipient("550 5.1.1 unknown")));
    let id = kit.send(json!({})).await;
    let entry = kit.wait_for(&id, "bounced").await;
    assert!(entry["detail"].as_str().unwrap().contains("550"), "{entry}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_mail_is_refused_with_its_code() {
    let kit = Kit::start().await;
    let many: Vec<String> = (0..51).map(|n| format!("a{n}@example.org")).collect();
    for (fields, code) in [
        (json!({ "from": "noreply@other.ada.mail.localhost" }), "invalid_sender"),
        (json!({ "to": [] }), "invalid_recipient"),
        (json!({ "to": ["nobody"] }), "invalid_recipient"),
        (json!({ "bcc": many }), "invalid_recipient"),
        (json!({ "subject": "a\r\nBcc: b@example.org" }), "invalid_message"),
        (json!({ "headers": { "Message-ID": "<a@b>" } }), "invalid_message"),
        (json!({ "text": "x y z\n".repeat(2_000_000) }), "too_large"),
    ] {
        assert_eq!(kit.refusal(fields.clone()).await, code, "{:.200}", fields.to_string());
    }
    kit.submit(&new_id(), json!({ "text": "a\u{0}b" })).await.expect_error(400, "bad_request");
    assert_eq!(kit.ada.get(LOG).await.expect(200)["items"], json!([]));
    for (id, project) in [("mail_1", kit.project.clone()), (&*new_id(), json!("prj_1"))] {
        let mail = json!({ "to": ["a@b.org"], "cc": [], "bcc": [], "subject": "", "headers": {}, "attachments": [] });
        let body = json!({ "id": id, "project": project, "mail": mail });
        let response = kit.node.send(reqwest::Method::POST, "mail/submissions", |request| request.json(&body)).await;
        response.expect_error(400, "bad_request");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_grant_ends_sending_and_keeps_the_log() {
    let kit = Kit::start().await;
    let id = kit.send(json!({})).await;
    kit.wait_for(&id, "sent").await;
    kit.ada.delete(EMAIL).await.expect(204);
    assert_eq!(kit.refusal(json!({})).await, "not_granted");
    assert_eq!(kit.ada.get(&format!("{LOG}/{id}")).await.expect(200)["outcome"], "sent");
    kit.ada.get(&format!("{LOG}/{id}/raw")).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn hourly_limit_notifies_the_organization_once() {
    let kit = Kit::with(|config| config.limits.free.mails_per_hour = 2).await;
    for _ in 0..2 {
        kit.send(json!({})).await;
    }
    for _ in 0..3 {
        assert_eq!(kit.refusal(json!({})).await, "rate_limited");
    }
    let notifications = kit.ada.get("/v1/orgs/ada/notifications").await.expect(200)["items"].clone();
    let kinds: Vec<_> = notifications.as_array().unwrap().iter().map(|it| (&it["kind"], &it["project"])).collect();
    assert_eq!(kinds, [(&json!("limit.email"), &json!("site"))]);
    let audit = "SELECT data ->> 'kind' AS kind FROM store.audit WHERE event = 'notification.raise'";
    assert_eq!(kit.app.db_rows(audit).await, [json!({ "kind": "limit.email" })]);
    assert_eq!(kit.ada.get(EMAIL).await.expect(200)["sentLastHour"], 2);
}

/// The node repeats a submission after an error.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_submission_raises_the_notification_that_failed() {
    let kit = Kit::with(|config| {
        use_short_waits(config);
        config.limits.free.mails_per_hour = 1;
    })
    .await;
    kit.send(json!({})).await;
    let id = new_id();
    let locked = kit.app.hold("SELECT FROM orgs.orgs FOR UPDATE").await;
    kit.submit(&id, json!({})).await.expect_error(503, "unavailable");
    locked.commit("").await;
    let notifications = async || kit.ada.get("/v1/orgs/ada/notifications").await.expect(200)["items"].clone();
    assert_eq!(notifications().await, json!([]));
    assert_eq!(kit.submit(&id, json!({})).await.expect(200)["refused"]["code"], "rate_limited");
    assert_eq!(notifications().await[0]["kind"], "limit.email");
}

#[tokio::test(flavor = "multi_thread")]
async fn log_is_filtered_by_direction_and_paged() {
    let kit = Kit::start().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(kit.send(json!({})).await);
        kit.receive("Subject: Hi\r\n\r\nHello\r\n").await;
    }
    let page = async |query: &str| kit.ada.get(&format!("{LOG}?{query}")).await.expect(200).clone();
    let count = |page: &Value| page["items"].as_array().unwrap().len();
    assert_eq!(count(&page("").await), 6);
    assert_eq!(count(&page("direction=").await), 6);
    assert_eq!(count(&page("direction=in").await), 3);
    let first = page("direction=out&limit=2").await;
    assert_eq!(
        first["items"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect::<Vec<_>>(),
        [&ids[2], &ids[1]]
    );
    let rest = page(&format!("direction=out&limit=2&cursor={}", first["nextCursor"].as_str().unwrap())).await;
    assert_eq!((&rest["items"][0]["id"], &rest["nextCursor"]), (&json!(ids[0]), &Value::Null));
    for query in ["direction=both", "direction=IN", "limit=0", "cursor=x", "direction=in&direction=out"] {
        kit.ada.get(&format!("{LOG}?{query}")).await.expect_error(400, "bad_request");
    }
    for id in [new_id(), "mail_1".to_owned()] {
        kit.ada.get(&format!("{LOG}/{id}")).await.expect_error(404, "not_found");
        kit.ada.get(&format!("{LOG}/{id}/raw")).await.expect_error(404, "not_found");
    }
    // Another project does not show the mail.
    kit.ada.post("/v1/orgs/ada/projects", json!({ "name": "other" })).await.expect(201);
    let other = format!("/v1/orgs/ada/projects/other/email/log/{}", ids[0]);
    kit.ada.get(&other).await.expect_error(404, "not_found");
    eventually("the relay receives all mails", async || (kit.relay.received().len() == 3).then_some(())).await;
}
