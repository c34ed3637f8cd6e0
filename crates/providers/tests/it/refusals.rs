//! Servers that refuse, break off or are silent: what is tried again, and what is not.

use std::time::Duration;

use providers::{Cause, MailError, Smtp, Step, Timeouts};
use sandbox::{Encryption, SmtpFault, SmtpServer};

use crate::mail::{client, config, mail};

async fn sent(encryption: Encryption, trouble: SmtpFault) -> (SmtpServer, Result<(), MailError>) {
    let server = SmtpServer::start(encryption).await;
    server.inject(Some(trouble));
    let smtp = client(&config(&server, &server.url()));
    // As a server does it: from a task that may move.
    let result = tokio::spawn(async move { smtp.send(&mail("1")).await }).await.unwrap();
    (server, result)
}

#[tokio::test]
async fn a_refusal_is_final_when_it_is_about_this_mail() {
    let reply = |at, code, enhanced: Option<&str>| Cause::Reply { at, code, enhanced: enhanced.map(str::to_owned) };
    let (later, never) = (MailError::Later, MailError::Never);
    for (trouble, error) in [
        (
            SmtpFault::Recipient("550 5.1.1 <grace@navy.example>: no such user"),
            never(reply(Step::Recipient, 550, Some("5.1.1"))),
        ),
        (SmtpFault::Recipient("553 grace@navy.example is malformed"), never(reply(Step::Recipient, 553, None))),
        (SmtpFault::Recipient("451 4.7.1 Greylisted"), later(reply(Step::Recipient, 451, Some("4.7.1")))),
        (SmtpFault::Recipient("421 4.3.2 Going down"), later(reply(Step::Recipient, 421, Some("4.3.2")))),
        (SmtpFault::Recipient("552 Too many"), later(reply(Step::Recipient, 552, None))),
        (SmtpFault::Recipient("530 5.7.0 STARTTLS first"), later(reply(Step::Recipient, 530, Some("5.7.0")))),
        (SmtpFault::Sender("550 5.7.1 Not you"), later(reply(Step::Sender, 550, Some("5.7.1")))),
        (SmtpFault::Sender("452 4.3.1 Full"), later(reply(Step::Sender, 452, Some("4.3.1")))),
        (
            SmtpFault::Message("554-5.7.1 grace@navy.example\r\n554 5.7.1 wants no such thing"),
            never(reply(Step::Message, 554, Some("5.7.1"))),
        ),
        (SmtpFault::Message("451 4.3.0 Disk"), later(reply(Step::Message, 451, Some("4.3.0")))),
    ] {
        let (server, result) = sent(Encryption::None, trouble).await;
        assert_eq!(result, Err(error));
        let shown = format!("{result:?} {}", result.as_ref().unwrap_err());
        assert!(!shown.contains("navy"), "{shown}");
        assert_eq!(server.received(), []);
        server.inject(None);
        client(&config(&server, &server.url())).send(&mail("1")).await.unwrap();
    }
}

#[tokio::test]
async fn an_acknowledgement_that_is_lost() {
    let (server, result) = sent(Encryption::StartTls, SmtpFault::DropAfterMessage).await;
    assert!(matches!(result, Err(MailError::Later(Cause::Connection { at: Step::Message, .. }))), "{result:?}");
    server.inject(None);
    client(&config(&server, &server.url())).send(&mail("1")).await.unwrap();
    let received = server.wait_for(2).await;
    assert_eq!(received[0].raw, received[1].raw);
}

#[tokio::test]
async fn a_mail_that_was_taken_stays_taken() {
    let (server, result) = sent(Encryption::None, SmtpFault::HangAtQuit).await;
    assert_eq!((result, server.received().len()), (Ok(()), 1));
}

#[tokio::test]
async fn silence() {
    for encryption in [Encryption::None, Encryption::Implicit] {
        let server = SmtpServer::start(encryption).await;
        server.inject(Some(SmtpFault::Hang));
        let timeouts = Timeouts { whole: Duration::from_millis(200), ..Timeouts::default() };
        let from = "no-reply@svc.example".parse().unwrap();
        let smtp = Smtp::within(&config(&server, &server.url()), from, timeouts).unwrap();
        assert_eq!(smtp.send(&mail("1")).await, Err(MailError::Later(Cause::Timeout)));
    }
}

#[tokio::test]
async fn a_server_of_another_kind() {
    let (_server, result) = sent(Encryption::None, SmtpFault::NotSmtp).await;
    let what = "the answer is no SMTP, or broke off".to_owned();
    assert_eq!(result, Err(MailError::Later(Cause::Connection { at: Step::Connect, what })));
}

#[tokio::test]
async fn what_was_said_before_tls_does_not_count_behind_it() {
    let (server, result) = sent(Encryption::StartTls, SmtpFault::Injected).await;
    assert!(matches!(result, Err(MailError::Later(Cause::Connection { at: Step::Tls, .. }))), "{result:?}");
    assert_eq!(server.received(), []);
}
