//! Faulty mail servers: transient and permanent errors.

use std::time::Duration;

use providers::{Cause, MailError, Smtp, Step, Timeouts};
use sandbox::{Encryption, SmtpFault, SmtpServer};

use crate::mail::{client, config, mail};

async fn sent(encryption: Encryption, fault: SmtpFault) -> (SmtpServer, Result<(), MailError>) {
    let server = SmtpServer::start(encryption).await;
    server.inject(Some(fault));
    let smtp = client(&config(&server, &server.url()));
    // Run in a task that can move between threads, like in a server.
    let result = tokio::spawn(async move { smtp.send(&mail("1")).await }).await.unwrap();
    (server, result)
}

#[tokio::test]
async fn only_errors_about_the_recipient_or_message_are_permanent() {
    let reply = |step, code, enhanced: Option<&str>| Cause::Reply { step, code, enhanced: enhanced.map(str::to_owned) };
    let (transient, permanent) = (MailError::Transient, MailError::Permanent);
    for (fault, error) in [
        (
            SmtpFault::Recipient("550 5.1.1 <grace@navy.example>: no such user"),
            permanent(reply(Step::Recipient, 550, Some("5.1.1"))),
        ),
        (SmtpFault::Recipient("553 grace@navy.example is malformed"), permanent(reply(Step::Recipient, 553, None))),
        (SmtpFault::Recipient("451 4.7.1 Greylisted"), transient(reply(Step::Recipient, 451, Some("4.7.1")))),
        (SmtpFault::Recipient("421 4.3.2 Going down"), transient(reply(Step::Recipient, 421, Some("4.3.2")))),
        (SmtpFault::Recipient("552 Too many"), transient(reply(Step::Recipient, 552, None))),
        (SmtpFault::Recipient("530 5.7.0 STARTTLS first"), transient(reply(Step::Recipient, 530, Some("5.7.0")))),
        (SmtpFault::Sender("550 5.7.1 Not you"), transient(reply(Step::Sender, 550, Some("5.7.1")))),
        (SmtpFault::Sender("452 4.3.1 Full"), transient(reply(Step::Sender, 452, Some("4.3.1")))),
        (
            SmtpFault::Message("554-5.7.1 grace@navy.example\r\n554 5.7.1 wants no such thing"),
            permanent(reply(Step::Message, 554, Some("5.7.1"))),
        ),
        (SmtpFault::Message("451 4.3.0 Disk"), transient(reply(Step::Message, 451, Some("4.3.0")))),
    ] {
        let (server, result) = sent(Encryption::None, fault).await;
        assert_eq!(result, Err(error));
        let shown = format!("{result:?} {}", result.as_ref().unwrap_err());
        assert!(!shown.contains("navy"), "{shown}");
        assert_eq!(server.received(), []);
        server.inject(None);
        client(&config(&server, &server.url())).send(&mail("1")).await.unwrap();
    }
}

#[tokio::test]
async fn retry_after_a_lost_acknowledgement_sends_the_same_bytes() {
    let (server, result) = sent(Encryption::StartTls, SmtpFault::DropAfterMessage).await;
    assert!(matches!(result, Err(MailError::Transient(Cause::Connection { step: Step::Message, .. }))), "{result:?}");
    server.inject(None);
    client(&config(&server, &server.url())).send(&mail("1")).await.unwrap();
    let received = server.wait_for(2).await;
    assert_eq!(received[0].raw, received[1].raw);
}

#[tokio::test]
async fn accepted_mail_succeeds_even_if_quit_hangs() {
    let (server, result) = sent(Encryption::None, SmtpFault::HangAtQuit).await;
    assert_eq!((result, server.received().len()), (Ok(()), 1));
}

#[tokio::test]
async fn silent_server_times_out() {
    for encryption in [Encryption::None, Encryption::Implicit] {
        let server = SmtpServer::start(encryption).await;
        server.inject(Some(SmtpFault::Hang));
        let timeouts = Timeouts { total: Duration::from_millis(200), ..Timeouts::default() };
        let from = "no-reply@svc.example".parse().unwrap();
        let smtp = Smtp::with_timeouts(&config(&server, &server.url()), from, timeouts).unwrap();
        assert_eq!(smtp.send(&mail("1")).await, Err(MailError::Transient(Cause::Timeout)));
    }
}

#[tokio::test]
async fn server_that_is_not_smtp_fails_to_connect() {
    let (_server, result) = sent(Encryption::None, SmtpFault::NotSmtp).await;
    let reason = "the reply is not SMTP or is incomplete".to_owned();
    assert_eq!(result, Err(MailError::Transient(Cause::Connection { step: Step::Connect, reason })));
}

#[tokio::test]
async fn reply_injected_before_tls_is_rejected() {
    let (server, result) = sent(Encryption::StartTls, SmtpFault::Injected).await;
    assert!(matches!(result, Err(MailError::Transient(Cause::Connection { step: Step::Tls, .. }))), "{result:?}");
    assert_eq!(server.received(), []);
}
