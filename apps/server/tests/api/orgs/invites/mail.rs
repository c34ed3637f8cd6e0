//! Invitation mails, with one SMTP server per test.

use std::time::Duration;

use mail_parser::MessageParser;
use sandbox::{Encryption, SmtpFault, SmtpServer};
use serde_json::{Value, json};
use server::Config;
use server::config::MailConfig;

use super::{INVITES, accept, acme, invite, invited, listed, preview, token};
use crate::process::Process;
use crate::support::{App, Caller, eventually};

/// Starts an installation that sends mail through this SMTP server.
async fn mailing(smtp: &SmtpServer) -> App {
    mailing_with(smtp, |_| {}).await
}

/// Like [`mailing`], with a configuration that `change` modifies.
async fn mailing_with(smtp: &SmtpServer, change: impl FnOnce(&mut Config)) -> App {
    let server = smtp.url().parse().unwrap();
    let from = "Hosting <hello@svc.example>".parse().unwrap();
    App::with(|config| {
        config.mail = Some(MailConfig { server, from });
        change(config);
    })
    .await
}

/// Waits until the only invitation has a `sentAt`, and returns it.
async fn sent_at(admin: &Caller) -> Option<Value> {
    listed(admin).await.into_iter().next().map(|invite| invite["sentAt"].clone()).filter(Value::is_string)
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_contains_the_link_to_accept_the_invitation() {
    let smtp = SmtpServer::start(Encryption::None).await;
    let app = mailing(&smtp).await;
    let ada = acme(&app).await;
    let (created, token) = invited(&ada, "bob@example.org", "admin").await;
    assert_eq!(created["sentAt"], json!(null));
    let received = smtp.wait_for(1).await;
    assert_eq!(
        (received[0].from.as_str(), received[0].to.as_slice()),
        ("hello@svc.example", ["bob@example.org".to_owned()].as_slice())
    );

    let mail = MessageParser::default().parse(&received[0].raw).unwrap();
    let address = |addresses: Option<&mail_parser::Address<'_>>| {
        let first = addresses.unwrap().first().unwrap();
        (first.name().map(str::to_owned), first.address().unwrap().to_owned())
    };
    assert_eq!(mail.subject(), Some("Ada Lovelace invites you to join Acme & Sons on test"));
    assert_eq!(address(mail.from()), (Some("Hosting".to_owned()), "hello@svc.example".to_owned()));
    assert_eq!(address(mail.to()), (None, "bob@example.org".to_owned()));
    assert!(mail.message_id().unwrap().ends_with("@svc.example"));
    let date = mail.date().unwrap().to_timestamp();
    assert!((date - kernel::ClockRng::system().now().unix_seconds()).abs() < 60, "{date}");
    assert_eq!((mail.text_body_count(), mail.html_body_count()), (1, 1));
    let link = format!("http://localhost:3000/invites/{token}");
    let (text, html) = (mail.body_text(0).unwrap(), mail.body_html(0).unwrap());
    assert!(text.contains(&format!("\n{link}\r\n")) || text.contains(&format!("\n{link}\n")), "{text}");
    assert!(html.contains(&format!("href=\"{link}\"")) && html.contains("Acme &amp; Sons"), "{html}");

    eventually("sentAt is set", async || sent_at(&ada).await).await;
    let events = ["org.create", "member.invite"];
    assert_eq!(app.db_audit("acme").await, events);
    let bob = app.sign_in("bob").await;
    assert_eq!(accept(&bob, &token).await.expect(200)["role"], "admin");
    assert_eq!(app.db_rows("SELECT * FROM store.outbox").await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_invitation_sends_a_new_link() {
    let smtp = SmtpServer::start(Encryption::None).await;
    let app = mailing(&smtp).await;
    let ada = acme(&app).await;
    let (_, old) = invited(&ada, "bob@example.org", "viewer").await;
    smtp.wait_for(1).await;
    let first_sent_at = eventually("sentAt is set", async || sent_at(&ada).await).await;
    // Within ten minutes after a mail, no other mail is sent. The link of that mail and the new link are both valid.
    app.clock.advance(540);
    for _ in 0..3 {
        let kept = invite(&ada, "bob@example.org", "viewer").await.expect(200).clone();
        assert_eq!(kept["sentAt"], first_sent_at);
        for link in [&old, &token(&kept["acceptUrl"])] {
            assert_eq!(preview(&app, link).await.expect(200)["state"], "pending");
        }
    }
    assert_eq!(app.db_rows("SELECT * FROM store.outbox").await, Vec::<Value>::new());
    app.clock.advance(60);
    let again = invite(&ada, "bob@example.org", "viewer").await.expect(200).clone();
    assert_eq!(again["sentAt"], json!(null));
    preview(&app, &old).await.expect_error(404, "not_found");
    let new = token(&again["acceptUrl"]);
    let received = smtp.wait_for(2).await;
    let texts: Vec<String> = received
        .iter()
        .map(|mail| {
            let mail = MessageParser::default().parse(&mail.raw).unwrap();
            mail.body_text(0).unwrap().into_owned()
        })
        .collect();
    assert!(texts[0].contains(&old) && texts[1].contains(&new) && !texts[1].contains(&old));
    let ids: Vec<String> = received
        .iter()
        .map(|mail| MessageParser::default().parse(&mail.raw).unwrap().message_id().unwrap().to_owned())
        .collect();
    assert_ne!(ids[0], ids[1]);
    eventually("sentAt is set", async || sent_at(&ada).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invitation_mails_are_limited_per_organization_and_day() {
    let smtp = SmtpServer::start(Encryption::None).await;
    let app = mailing_with(&smtp, |config| config.abuse_limits.invite_mails_per_org = 2).await;
    let ada = acme(&app).await;
    invited(&ada, "bob@example.org", "viewer").await;
    invited(&ada, "carol@example.org", "viewer").await;
    let refused = invite(&ada, "dave@example.org", "viewer").await;
    assert_eq!(refused.expect_error(429, "rate_limited")["details"], json!({ "limit": 2 }));
    let retry_after: i64 = refused.header("retry-after").parse().unwrap();
    assert!((24 * 3600 - 60..=24 * 3600).contains(&retry_after), "{retry_after}");
    assert_eq!((listed(&ada).await.len(), smtp.wait_for(2).await.len()), (2, 2));
    app.clock.advance(retry_after);
    invited(&ada, "dave@example.org", "viewer").await;
    assert_eq!(smtp.wait_for(3).await[2].to, ["dave@example.org"]);
}

/// Waits for a failed delivery, and checks that its error contains no token or address.
async fn wait_for_failed_delivery(app: &App) {
    eventually("an attempt fails", async || {
        let rows =
            app.db_rows("SELECT last_error FROM store.outbox WHERE attempts > 0 AND last_error IS NOT NULL").await;
        let reason = rows.first()?["last_error"].as_str()?.to_owned();
        assert!(!reason.contains("svc_inv_") && !reason.contains("bob@"), "{reason}");
        Some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_is_delivered_once_after_an_smtp_outage() {
    let smtp = SmtpServer::start(Encryption::None).await;
    smtp.stop().await;
    let app = mailing(&smtp).await;
    let other = app.another().await;
    let ada = acme(&app).await;
    let (_, token) = invited(&other.connect(&ada), "bob@example.org", "member").await;
    wait_for_failed_delivery(&app).await;
    assert_eq!(listed(&ada).await[0]["sentAt"], json!(null));
    smtp.restart().await;
    app.clock.advance(400);
    smtp.wait_for(1).await;
    eventually("sentAt is set", async || sent_at(&ada).await).await;
    // No server has the mail in its queue any longer, so the next mail is the second one.
    app.clock.advance(400);
    invited(&ada, "carol@example.org", "member").await;
    let received = smtp.wait_for(2).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(smtp.received().len(), 2);
    assert_eq!(
        (&received[0].to[0], &received[1].to[0]),
        (&"bob@example.org".to_owned(), &"carol@example.org".to_owned())
    );
    assert!(String::from_utf8_lossy(&received[0].raw).replace("=\r\n", "").contains(&token));
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_recipient_leaves_no_dead_letter() {
    let smtp = SmtpServer::start(Encryption::None).await;
    smtp.inject(Some(SmtpFault::Recipient("550 5.1.1 no such user")));
    let app = mailing(&smtp).await;
    let ada = acme(&app).await;
    invited(&ada, "bob@example.org", "member").await;
    let is_empty = async || app.db_rows("SELECT id FROM store.outbox").await.is_empty().then_some(());
    eventually("the message ends", is_empty).await;
    assert_eq!((smtp.received(), listed(&ada).await[0]["sentAt"].clone()), (vec![], json!(null)));

    smtp.inject(None);
    app.clock.advance(600);
    invite(&ada, "bob@example.org", "member").await.expect(200);
    assert_eq!(smtp.wait_for(1).await[0].to, ["bob@example.org"]);
    eventually("sentAt is set", async || sent_at(&ada).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_recipient_is_logged_and_counted() {
    let smtp = SmtpServer::start(Encryption::None).await;
    smtp.inject(Some(SmtpFault::Recipient("550 5.1.1 <bob@example.org>: no such user")));
    let mail = [("SVC_SMTP_URL", smtp.url()), ("SVC_MAIL_FROM", "no-reply@svc.example".to_owned())];
    let process = Process::with(&mail).await;
    let token = process.sign_in().await;
    let invite = json!({ "email": "bob@example.org", "role": "viewer" });
    process.json(&token, "POST", "/v1/orgs/ada/invites", Some(invite)).await;
    let is_counted = |line: &str| line.starts_with("svc_mails_refused_total{") && line.ends_with(" 1");
    let counted = async || process.metrics().await.lines().any(is_counted).then_some(());
    eventually("the mail is counted", counted).await;
    let line =
        async || process.log().lines().find(|it| it.contains("the mail server refused a mail")).map(str::to_owned);
    let line = eventually("the log has the refusal", line).await;
    assert!(line.contains("RCPT TO: the server replied 550 5.1.1") && !line.contains("bob@"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_invitation_is_not_mailed() {
    let smtp = SmtpServer::start(Encryption::None).await;
    smtp.stop().await;
    let app = mailing(&smtp).await;
    let ada = acme(&app).await;
    let (created, _) = invited(&ada, "bob@example.org", "member").await;
    wait_for_failed_delivery(&app).await;
    ada.delete(&format!("{INVITES}/{}", created["id"].as_str().unwrap())).await.expect(204);
    assert_eq!(app.db_rows("SELECT * FROM store.outbox").await, Vec::<Value>::new());
    smtp.restart().await;
    app.clock.advance(400);
    invited(&ada, "carol@example.org", "member").await;
    assert_eq!(smtp.wait_for(1).await[0].to, ["carol@example.org"]);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(smtp.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_invitation_is_not_mailed() {
    let smtp = SmtpServer::start(Encryption::None).await;
    smtp.stop().await;
    let app = mailing(&smtp).await;
    let ada = acme(&app).await;
    let (_, token) = invited(&ada, "bob@example.org", "member").await;
    wait_for_failed_delivery(&app).await;
    accept(&app.sign_in("bob").await, &token).await.expect(200);
    assert_eq!(app.db_rows("SELECT * FROM store.outbox").await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn outbox_contains_no_plaintext_link_or_address() {
    let smtp = SmtpServer::start(Encryption::None).await;
    smtp.stop().await;
    let app = mailing(&smtp).await;
    let ada = acme(&app).await;
    let (_, token) = invited(&ada, "bob@example.org", "member").await;
    let rows = app.db_rows("SELECT o.*, encode(payload, 'escape') AS escaped FROM store.outbox o").await;
    let text = serde_json::to_string(&rows).unwrap();
    assert_eq!(rows.len(), 1);
    assert!(!text.contains(&token[8..]) && !text.contains("example.org"), "{text}");
}
