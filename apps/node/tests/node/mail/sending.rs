//! `env.email.send`.

use protocol::{MailAttachment, MailRefusal, OutgoingMail};
use reqwest::Method;
use serde_json::{Value, json};

use super::{HOST, Rig, address};
use crate::running::{eventually, until};
use crate::visitor::Visitor;

fn minimal() -> Value {
    json!({ "to": "ada@example.com", "subject": "Hello", "text": "Hi" })
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_is_submitted_with_all_fields() {
    let Some(rig) = Rig::start().await else { return };
    let sent = rig.send(&minimal()).await;
    let sent_all = rig
        .send(&json!({
            "to": ["ada@example.com", "Grüße <ü@example.com>"], "cc": "cc@example.com", "bcc": ["bcc@example.com"],
            "from": "Bot <bot@app.ada.example>", "replyTo": "reply@example.com",
            "subject": "Grüße\r\nX: y", "text": "a\u{1}b", "html": "<p>", "headers": { "X-One": "1", "In-Reply-To": "<1>" },
            "attachments": [
                { "filename": "ü.txt", "contentType": "text/plain", "text": "Grüße" },
                { "filename": "bytes", "contentType": "application/octet-stream", "bytes": [0, 255, 10] },
                { "filename": "view", "contentType": "x", "view": [1, 2] },
                { "filename": "empty", "contentType": "x", "text": "" },
                { "filename": "zero", "contentType": "x", "text": "\0" },
                { "filename": "named", "contentType": "Text/html; Charset=us-ascii", "text": "a" },
                { "filename": "latin", "contentType": "text/plain", "bytes": [228] },
            ],
        }))
        .await;
    let submitted = rig.core.submitted_mail();
    for (sent, submitted) in [&sent, &sent_all].into_iter().zip(&submitted) {
        assert_eq!(*sent, json!({ "id": submitted.id }));
        let digits = submitted.id.strip_prefix("mail_").unwrap();
        assert!(digits.len() == 26 && digits.starts_with('0'), "{digits}");
        assert_eq!(submitted.project, "app");
    }
    assert!(submitted[0].id < submitted[1].id);
    let expected = OutgoingMail {
        to: vec!["ada@example.com".to_owned()],
        subject: "Hello".to_owned(),
        text: Some("Hi".to_owned()),
        ..OutgoingMail::default()
    };
    assert_eq!(submitted[0].mail, expected);
    let attachment = |filename: &str, content_type: &str, content: &str| MailAttachment {
        filename: filename.to_owned(),
        content_type: content_type.to_owned(),
        content: content.to_owned(),
    };
    let expected = OutgoingMail {
        from: Some("Bot <bot@app.ada.example>".to_owned()),
        reply_to: Some("reply@example.com".to_owned()),
        to: vec!["ada@example.com".to_owned(), "Grüße <ü@example.com>".to_owned()],
        cc: vec!["cc@example.com".to_owned()],
        bcc: vec!["bcc@example.com".to_owned()],
        subject: "Grüße\r\nX: y".to_owned(),
        text: Some("a\u{1}b".to_owned()),
        html: Some("<p>".to_owned()),
        headers: [("X-One", "1"), ("In-Reply-To", "<1>")].map(|(name, it)| (name.to_owned(), it.to_owned())).into(),
        attachments: vec![
            attachment("ü.txt", "text/plain; charset=utf-8", "R3LDvMOfZQ=="),
            attachment("bytes", "application/octet-stream", "AP8K"),
            attachment("view", "x", "AQI="),
            attachment("empty", "x", ""),
            attachment("zero", "x", "AA=="),
            attachment("named", "Text/html; Charset=us-ascii", "YQ=="),
            attachment("latin", "text/plain", "5A=="),
        ],
    };
    assert_eq!(submitted[1].mail, expected);
    rig.has_metrics(&[r#"svc_node_mail_sends_total{outcome="ok"} 2"#]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_thrown_with_their_code_and_message() {
    let Some(rig) = Rig::start().await else { return };
    let refusals = [
        (MailRefusal::RateLimited, "rate_limited"),
        (MailRefusal::MailboxFull, "mailbox_full"),
        (MailRefusal::Suppressed, "suppressed"),
        (MailRefusal::InvalidRecipient, "invalid_recipient"),
        (MailRefusal::InvalidSender, "invalid_sender"),
        (MailRefusal::InvalidMessage, "invalid_message"),
        (MailRefusal::TooLarge, "too_large"),
        (MailRefusal::NotGranted, "not_granted"),
    ];
    for (refusal, code) in refusals {
        rig.core.refuse_mail(Some(refusal));
        // The node repeats the previous refusal for a moment if it applies to all mails of the project.
        let thrown =
            eventually(code, async || Some(rig.send(&minimal()).await).filter(|thrown| thrown["code"] == code));
        assert_eq!(thrown.await, json!({ "isError": true, "code": code, "message": "The reason of the test." }));
    }
    // A refused mail is submitted once, and a repeated refusal needs no submission.
    assert_eq!(rig.core.submitted_mail().len(), refusals.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_calls_are_refused_before_the_submission() {
    let Some(rig) = Rig::start().await else { return };
    let codes: Value = serde_json::from_str(&rig.visitor().get(HOST, "/malformed").await.body).unwrap();
    for (name, code) in codes.as_object().unwrap() {
        let expected = match name.as_str() {
            "to" | "toLong" | "toList" | "toObject" | "cc" | "bcc" => "invalid_recipient",
            "from" => "invalid_sender",
            "large" | "long" => "too_large",
            _ => "invalid_message",
        };
        assert_eq!(code, expected, "{name}");
    }
    assert!(rig.core.submitted_mail().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn zero_character_is_refused_with_the_name_of_the_field() {
    let Some(rig) = Rig::start().await else { return };
    let zero = "a\0b@example.com";
    for (field, value, code) in [
        ("to", json!(zero), "invalid_recipient"),
        ("cc", json!(["cc@example.com", zero]), "invalid_recipient"),
        ("bcc", json!(zero), "invalid_recipient"),
        ("from", json!(zero), "invalid_sender"),
        ("replyTo", json!(zero), "invalid_message"),
        ("subject", json!(zero), "invalid_message"),
        ("text", json!(zero), "invalid_message"),
        ("html", json!(zero), "invalid_message"),
        ("headers", json!({ "X-One": zero }), "invalid_message"),
        ("filename", json!({ "filename": zero, "contentType": "x", "text": "" }), "invalid_message"),
        ("contentType", json!({ "filename": "x", "contentType": zero, "text": "" }), "invalid_message"),
    ] {
        let mut mail = minimal();
        match field {
            "filename" | "contentType" => mail["attachments"] = json!([value]),
            _ => mail[field] = value,
        }
        let thrown = rig.send(&mail).await;
        assert_eq!(thrown["code"], code, "{field}");
        assert!(thrown["message"].as_str().unwrap().contains(&format!("`{field}`")), "{thrown}");
    }
    assert!(rig.core.submitted_mail().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_response_repeats_the_same_submission() {
    let Some(rig) = Rig::start().await else { return };
    rig.core.lose_mail_responses(3);
    let sent = rig.send(&minimal()).await;
    let submitted = rig.core.submitted_mail();
    assert_eq!(submitted.len(), 4);
    assert!(submitted.iter().all(|submission| *submission == submitted[0]));
    assert_eq!(sent, json!({ "id": submitted[0].id }));
}

#[tokio::test(flavor = "multi_thread")]
async fn short_outage_of_the_control_plane_delays_a_mail() {
    let Some(mut rig) = Rig::start().await else { return };
    rig.0.core.stop().await;
    let request = rig.visitor().request(Method::POST, HOST, "/send").body(minimal().to_string());
    let sending = tokio::spawn(Visitor::send(request));
    // The node has logged a failed attempt.
    until("an attempt", || rig.log().contains("failed to submit a mail")).await;
    rig.0.core.restart().await;
    let sent: Value = serde_json::from_str(&sending.await.unwrap().body).unwrap();
    assert_eq!(sent, json!({ "id": rig.core.submitted_mail()[0].id }));
}

#[tokio::test(flavor = "multi_thread")]
async fn control_plane_that_rejects_the_node_is_unavailable() {
    let Some(rig) = Rig::start().await else { return };
    rig.core.accept("svc_nod_other");
    let thrown = rig.send(&minimal()).await;
    assert_eq!((&thrown["isError"], &thrown["code"]), (&json!(true), &json!("unavailable")), "{thrown}");
    rig.has_metrics(&[r#"svc_node_mail_sends_total{outcome="unavailable"} 1"#]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn largest_attachments_are_submitted() {
    let Some(rig) = Rig::start().await else { return };
    let content = "x".repeat(10 << 20);
    let mut large = minimal();
    large["attachments"] = json!([{ "filename": "x", "contentType": "text/plain", "text": content }]);
    let sent = rig.send(&large).await;
    let submitted = rig.core.submitted_mail();
    assert_eq!(sent, json!({ "id": submitted[0].id }));
    assert_eq!(submitted[0].mail.attachments[0].content.len(), content.len().div_ceil(3) * 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn binding_follows_the_grant_without_a_declaration() {
    let Some(rig) = Rig::start().await else { return };
    rig.core.set_part("app", "email", Value::Null);
    rig.sees_granted("false").await;
    rig.core.set_part("app", "email", address("app"));
    rig.sees_granted("true").await;
    // Another mail domain needs no new process, because code does not see the domain.
    rig.send(&minimal()).await;
    rig.core.set_part("app", "email", json!({ "domain": "other.ada.example" }));
    rig.send(&minimal()).await;
    until("both mails", || rig.core.submitted_mail().len() == 2).await;
}
