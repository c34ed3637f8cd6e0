//! The format of sent mails, and helpers of the mail tests.

use chrono::DateTime;
use kernel::Time;
use mail_parser::{Message, MessageParser, MimeHeaders as _};
use providers::{Action, Cause, InvalidSmtp, Mail, MailContent, MailError, Smtp, SmtpConfig};
use sandbox::{Encryption, SmtpServer};

pub fn mail_content() -> MailContent {
    MailContent {
        subject: "Größe zählt 🚀 — für alle, die es ganz genau wissen wollen und noch ein bißchen mehr".to_owned(),
        heading: "Grüße, Ada 👋".to_owned(),
        paragraphs: vec![
            ".Ein Punkt am Anfang, und eine Zeile, die viel länger ist, als SMTP sie haben will. ".repeat(20),
            "From hier & <dort> = \"drüben\"".to_owned(),
        ],
        action: Some(Action::new("Einladung annehmen", "https://svc.example/invite?t=a_b%20c&x=1").unwrap()),
        footer: "Du bekommst das, weil …".to_owned(),
    }
}

pub fn mail(message_id: &str) -> Mail {
    let date = Time::new(DateTime::from_timestamp(1_700_000_000, 0).unwrap());
    Mail { to: "grace@navy.example".to_owned(), message_id: message_id.to_owned(), date, content: mail_content() }
}

/// Returns the settings of a client that trusts this server.
pub fn config(server: &SmtpServer, url: &str) -> SmtpConfig {
    SmtpConfig { ca_certificate: Some(server.authority().to_owned()), ..url.parse().unwrap() }
}

pub fn client(config: &SmtpConfig) -> Smtp {
    Smtp::new(config, "Svc Größe <no-reply@svc.example>".parse().unwrap()).unwrap()
}

fn header<'a>(message: &'a Message<'_>, name: &'static str) -> &'a str {
    message.header_raw(name).unwrap_or_else(|| panic!("no {name}")).trim()
}

#[tokio::test]
async fn sent_mail_has_the_expected_headers_and_bodies() {
    let server = SmtpServer::start(Encryption::None).await;
    client(&config(&server, &server.url())).send(&mail("invite-1.a_b")).await.unwrap();
    let [received] = &server.wait_for(1).await[..] else { panic!("not one mail") };
    assert_eq!(
        (received.from.as_str(), &received.to[..]),
        ("no-reply@svc.example", &["grace@navy.example".to_owned()][..])
    );
    // The mail is ASCII, in lines of at most 998 characters (RFC 5322 section 2.1.1), which all servers accept.
    assert!(received.raw.is_ascii());
    assert!(
        received
            .raw
            .split(|byte| *byte == b'\n')
            .all(|line| line.len() <= 999 && line.last().is_none_or(|it| *it == b'\r'))
    );

    let message = MessageParser::default().parse(&received.raw).unwrap();
    assert_eq!(message.subject(), Some(mail_content().subject.as_str()));
    let from = message.from().unwrap().first().unwrap();
    assert_eq!((from.name(), from.address()), (Some("Svc Größe"), Some("no-reply@svc.example")));
    assert_eq!(message.to().unwrap().first().unwrap().address(), Some("grace@navy.example"));
    assert_eq!(header(&message, "Message-ID"), "<invite-1.a_b@svc.example>");
    assert_eq!(header(&message, "Date"), "Tue, 14 Nov 2023 22:13:20 +0000");
    assert_eq!(header(&message, "MIME-Version"), "1.0");
    assert_eq!(header(&message, "Auto-Submitted"), "auto-generated");
    assert!(header(&message, "Content-Type").starts_with("multipart/alternative;"));
    assert_eq!((message.text_body_count(), message.html_body_count(), message.attachment_count()), (1, 1, 0));
    assert_eq!(message.body_text(0).unwrap().replace("\r\n", "\n").trim_end(), mail_content().text().trim_end());
    assert_eq!(message.body_html(0).unwrap().replace("\r\n", "\n").trim_end(), mail_content().html().trim_end());
    for part in message.parts.iter().skip(1) {
        assert_eq!(part.content_type().and_then(|it| it.attribute("charset")), Some("utf-8"));
    }
}

#[tokio::test]
async fn same_mail_has_the_same_bytes() {
    let server = SmtpServer::start(Encryption::None).await;
    for _ in 0..2 {
        client(&config(&server, &server.url())).send(&mail("1")).await.unwrap();
    }
    client(&config(&server, &server.url())).send(&mail("2")).await.unwrap();
    let received = server.wait_for(3).await;
    assert_eq!(received[0].raw, received[1].raw);
    assert_ne!(received[0].raw, received[2].raw);
}

#[tokio::test]
async fn subject_cannot_inject_headers() {
    let server = SmtpServer::start(Encryption::None).await;
    let mut mail = mail("1");
    mail.content.subject = "Hi\r\nBcc: eve@evil.example\r\n\r\n<b>\u{0}\u{85}body".to_owned();
    client(&config(&server, &server.url())).send(&mail).await.unwrap();
    let received = server.wait_for(1).await;
    let message = MessageParser::default().parse(&received[0].raw).unwrap();
    assert_eq!(message.subject(), Some("Hi Bcc: eve@evil.example  <b>  body"));
    assert!(message.bcc().is_none());
    assert_eq!(received[0].to.len(), 1);
}

/// The encoded word contains U+202E and U+202C, which a name must not contain.
#[tokio::test]
async fn name_that_looks_encoded_is_not_decoded() {
    const SUBJECT: &str = "Ada invites you to join =?utf-8?q?=E2=80=AEemca=E2=80=AC_by_Bank?= on Svc";
    let server = SmtpServer::start(Encryption::None).await;
    let mut mail = mail("1");
    mail.content.subject = SUBJECT.to_owned();
    client(&config(&server, &server.url())).send(&mail).await.unwrap();
    let received = server.wait_for(1).await;
    let message = MessageParser::default().parse(&received[0].raw).unwrap();
    assert_eq!(message.subject(), Some(SUBJECT));
}

#[tokio::test]
async fn invalid_recipient_or_id_fails_without_a_connection() {
    let smtp = client(&"smtp://localhost:1".parse().unwrap());
    for to in ["", "grace", "grace@", "a@b.example, c@d.example", "a@b.example>\r\nRCPT TO:<c@d.example", "ü@b.example"]
    {
        let mail = Mail { to: to.to_owned(), ..mail("1") };
        assert_eq!(smtp.send(&mail).await, Err(MailError::Permanent(Cause::Address)), "{to:?}");
    }
    for id in ["", "a b", "a@b", "<a>", "a\r\nB: c", ".a", "a..b", &"a".repeat(65)] {
        assert_eq!(smtp.send(&mail(id)).await, Err(MailError::Permanent(Cause::MessageId)), "{id:?}");
    }
}

#[tokio::test]
async fn international_domains_are_converted_to_ascii() {
    let server = SmtpServer::start(Encryption::None).await;
    let from = "no-reply@größe.example".parse().unwrap();
    let smtp = Smtp::new(&config(&server, &server.url()), from).unwrap();
    smtp.send(&Mail { to: "grace@müller.example".to_owned(), ..mail("1") }).await.unwrap();
    let received = &server.wait_for(1).await[0];
    assert_eq!(
        (received.from.as_str(), received.to[0].as_str()),
        ("no-reply@xn--gre-6ka8i.example", "grace@xn--mller-kva.example")
    );
}

#[test]
fn invalid_sender_or_ca_certificate_is_rejected() {
    let config: SmtpConfig = "smtp://localhost".parse().unwrap();
    let create = |config: &SmtpConfig, from: &str| Smtp::new(config, from.parse().unwrap()).map(drop);
    let error: InvalidSmtp = create(&config, "ü@svc.example").unwrap_err();
    assert_eq!(error.to_string(), "the sender address is invalid");
    let broken = SmtpConfig {
        ca_certificate: Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned()),
        ..config
    };
    create(&broken, "a@svc.example").unwrap_err();
}
