//! Submissions: validation, and who may send.

use std::collections::BTreeMap;
use std::time::Duration;

use diesel_async::SimpleAsyncConnection as _;
use kernel::Limits;
use mail::{Attachment, OutgoingMail, Refusal, Submission};

use crate::kit::{Kit, outgoing};

/// Returns the code of a refusal.
fn code(result: Result<kernel::MailId, Refusal>) -> &'static str {
    match result {
        Ok(_) => "accepted",
        Err(Refusal::RateLimited { .. }) => "rate_limited",
        Err(Refusal::Suppressed(_)) => "suppressed",
        Err(Refusal::InvalidRecipient(_)) => "invalid_recipient",
        Err(Refusal::InvalidSender { .. }) => "invalid_sender",
        Err(Refusal::InvalidMessage(_)) => "invalid_message",
        Err(Refusal::TooLarge { .. }) => "too_large",
        Err(Refusal::NotGranted) => "not_granted",
        Err(Refusal::MailboxFull { .. }) => "mailbox_full",
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sender_is_an_address_at_the_project_and_nothing_else() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    for (from, expected) in [
        (None, "accepted"),
        (Some("support@shop.acme.mail.example"), "accepted"),
        (Some("The Shop <a.b+c@SHOP.acme.mail.example>"), "accepted"),
        (Some("noreply@acme.mail.example"), "invalid_sender"),
        (Some("noreply@blog.acme.mail.example"), "invalid_sender"),
        (Some("noreply@sub.shop.acme.mail.example"), "invalid_sender"),
        (Some("noreply@shop.acme.mail.example.evil.example"), "invalid_sender"),
        (Some("noreply@evil.example <x@shop.acme.mail.example>, eve@evil.example"), "invalid_sender"),
        (Some("\"eve@evil.example\" <noreply@evil.example>"), "invalid_sender"),
        (Some("a@shop.acme.mail.example\r\nBcc: eve@evil.example"), "invalid_sender"),
        (Some(""), "invalid_sender"),
    ] {
        let mail = OutgoingMail { from: from.map(str::to_owned), ..outgoing(&["ada@example.org"]) };
        assert_eq!(code(kit.submit(shop, mail).await), expected, "{from:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recipients_are_1_to_50_addresses_with_cc_and_bcc() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let many = |count: usize| (0..count).map(|n| format!("a{n}@example.org")).collect::<Vec<_>>();
    let mail = |to, cc, bcc| OutgoingMail { to, cc, bcc, ..outgoing(&[]) };
    let submit = async |mail| code(kit.submit(shop, mail).await);
    assert_eq!(submit(mail(many(20), many(20), many(10))).await, "accepted");
    assert_eq!(submit(mail(many(20), many(20), many(11))).await, "invalid_recipient");
    assert_eq!(submit(mail(many(0), many(1), many(1))).await, "invalid_recipient");
    for bad in ["ada", "ada@", "a@b.org,c@d.org", "a@b.org\n", "ada@exa mple.org", "a@[127.0.0.1]", "jörg@example.org"]
    {
        assert_eq!(submit(outgoing(&["ok@example.org", bad])).await, "invalid_recipient", "{bad:?}");
        let in_bcc = mail(many(1), Vec::new(), vec![bad.to_owned()]);
        assert_eq!(submit(in_bcc).await, "invalid_recipient", "{bad:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_content_is_refused() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let base = || outgoing(&["ada@example.org"]);
    let with_header = |name: &str, value: &str| OutgoingMail {
        headers: BTreeMap::from([(name.to_owned(), value.to_owned())]),
        ..base()
    };
    let with_attachment = |filename: &str, content_type: &str, content: &str| OutgoingMail {
        attachments: vec![Attachment {
            filename: filename.to_owned(),
            content_type: content_type.to_owned(),
            content: content.to_owned(),
        }],
        ..base()
    };
    let mut mails = vec![
        OutgoingMail { subject: "Hi\r\nBcc: eve@example.org".to_owned(), ..base() },
        OutgoingMail { subject: "x".repeat(1001), ..base() },
        OutgoingMail { text: Some("a\0b".to_owned()), ..base() },
        OutgoingMail { reply_to: Some("nobody".to_owned()), ..base() },
        with_header("X-Note", "a\r\nBcc: eve@example.org"),
        with_header("X Note", "a"),
        with_header("X-Note:", "a"),
        with_header("", "a"),
        // Their lines cannot be broken (RFC 5322 section 2.1.1).
        with_header("X-Token", &"x".repeat(2000)),
        with_header("References", &"<1@example.org>".repeat(100)),
        with_header("X-Spaces", &format!("a{}b", " ".repeat(2000))),
        OutgoingMail {
            headers: ["References", "references"].map(|name| (name.to_owned(), "<1@example.org>".to_owned())).into(),
            ..base()
        },
        with_attachment("", "text/plain", ""),
        with_attachment("a\r\nb", "text/plain", ""),
        with_attachment("a.txt", "text", ""),
        with_attachment("a.txt", &format!("text/plain; x={}", "y".repeat(250)), ""),
        with_attachment("a.txt", "text/plain\r\nX: y", ""),
        with_attachment("a.eml", "message/rfc822", ""),
        with_attachment("a", "Multipart/Mixed", ""),
        with_attachment("a.txt", "text/plain", "not base64!"),
    ];
    for name in [
        "From",
        "SENDER",
        "Reply-To",
        "to",
        "Cc",
        "Bcc",
        "Subject",
        "Date",
        "Message-ID",
        "MIME-Version",
        "Content-Type",
        "content-transfer-encoding",
        "DKIM-Signature",
        "Received",
        "Return-Path",
        "Authentication-Results",
        "Resent-From",
        "ARC-Seal",
        "X-SES-CONFIGURATION-SET",
    ] {
        mails.push(with_header(name, "value"));
    }
    for mail in mails {
        assert_eq!(code(kit.submit(shop, mail.clone()).await), "invalid_message", "{mail:?}");
    }
    assert_eq!((kit.objects(), kit.db_number("SELECT count(*) FROM mail.messages").await), (0, 0));
    // The content of the second mail is within the limit, but the assembled mail exceeds it.
    for lines in [11 * 1024 * 1024, 6 * 1024 * 1024] {
        let large = OutgoingMail { text: Some("\n".repeat(lines)), ..base() };
        assert_eq!(code(kit.submit(shop, large).await), "too_large");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_home_node_sends_for_a_project_with_a_grant() {
    let kit = Kit::start().await;
    let shop = kit.project("shop").await;
    let mail = || outgoing(&["ada@example.org"]);
    let elsewhere = Submission { id: kit.new_id(), project: shop.project, mail: mail() };
    assert_eq!(kit.mail.submit(kit.store.clock_rng().id(), elsewhere).await.unwrap(), Err(Refusal::NotGranted));
    let blog = kit.ungranted("blog").await;
    assert_eq!(code(kit.submit(blog, mail()).await), "not_granted");
    kit.submit(shop, mail()).await.unwrap();
    kit.revoke(shop).await;
    assert_eq!(code(kit.submit(shop, mail()).await), "not_granted");
    kit.grant(shop, "shop").await;
    kit.db_execute("UPDATE convergence.placements SET state = 'suspended'").await;
    let refusal = kit.submit(shop, mail()).await.unwrap_err();
    assert!(refusal == Refusal::NotGranted && refusal.to_string().contains("suspended"), "{refusal}");
    kit.db_execute(
        "UPDATE convergence.placements SET state = 'active'; UPDATE projects.projects SET deleted_at = now()",
    )
    .await;
    assert_eq!(code(kit.submit(shop, mail()).await), "not_granted");
    assert_eq!(kit.db_number("SELECT count(*) FROM mail.messages").await, 1);
}

/// Another submission is accepted between the first decision and the exact one, which waits for the mailbox.
#[tokio::test(flavor = "multi_thread")]
async fn mail_gets_the_decision_under_the_lock_after_its_suppression_is_deleted() {
    let mut limits = Limits::default();
    limits.free.mails_per_hour = 1;
    for (accepted, expected) in [("none", "suppressed"), ("the same", "accepted"), ("another", "rate_limited")] {
        let kit = Kit::with(limits, |mail| mail).await;
        let (shop, id) = (kit.project("shop").await, kit.new_id());
        let project = shop.project.as_uuid();
        // Only the first decision finds the suppression.
        kit.db_execute(&format!(
            "INSERT INTO mail.suppressions VALUES ('{project}', 'ada@example.org', 'bounce', NULL, now());
             ALTER TABLE mail.suppressions RENAME TO deleted;
             CREATE SEQUENCE mail.reads;
             CREATE VIEW mail.suppressions AS SELECT * FROM mail.deleted WHERE nextval('mail.reads') = 1;
             INSERT INTO mail.mailboxes (project_id) VALUES ('{project}')"
        ))
        .await;
        let mut other = kit.connection().await;
        other.batch_execute("BEGIN; SELECT FROM mail.mailboxes FOR UPDATE").await.unwrap();
        let accept = async {
            let waiting =
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
            while kit.db_number(waiting).await == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if accepted != "none" {
                let id = if accepted == "the same" { id } else { kit.new_id() };
                let insert = format!(
                    "INSERT INTO mail.messages (id, project_id, direction, sender, recipients, outcome, size_bytes,
                         stored_bytes, has_raw, created_at)
                     VALUES ('{}', '{project}', 'out', '', '{{}}', 'queued', 0, 0, false, '{}')",
                    id.as_uuid(),
                    kit.now()
                );
                other.batch_execute(&insert).await.unwrap();
            }
            other.batch_execute("COMMIT").await.unwrap();
        };
        let both = async { tokio::join!(kit.submit_as(id, shop, outgoing(&["ada@example.org"])), accept) };
        let (submitted, ()) = tokio::time::timeout(Duration::from_secs(30), both).await.unwrap();
        assert_eq!(code(submitted.map(|()| id)), expected);
        assert_eq!(kit.notices.take().len(), usize::from(expected == "rate_limited"));
        let stored = kit.db_number("SELECT count(*) FROM mail.messages").await;
        let queued = kit.db_number("SELECT count(*) FROM store.outbox").await;
        assert_eq!((stored, queued, kit.objects()), (i64::from(accepted != "none"), 0, 0), "{accepted}");
    }
}
