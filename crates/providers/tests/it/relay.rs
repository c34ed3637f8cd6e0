//! Submission of complete messages: replies for each recipient, and the bytes that arrive.

use std::time::Duration;

use providers::{Cause, Envelope, RefusedRecipient, Relay, RelayError, Relayed, Step, Timeouts};
use sandbox::{Encryption, SmtpFault, SmtpServer};

use crate::mail::config;

const MESSAGE: &[u8] = b"Subject: x\r\n\r\nbody\r\n";

fn relay(server: &SmtpServer) -> Relay {
    Relay::new(&config(server, &server.url()), "mail.svc.example").unwrap()
}

fn envelope(to: &[&str]) -> Envelope {
    let to = to.iter().map(|&address| address.to_owned()).collect();
    Envelope { from: "noreply@app.acme.svc.example".to_owned(), to }
}

async fn send(server: &SmtpServer, to: &[&str]) -> Result<Relayed, RelayError> {
    relay(server).send(&envelope(to), MESSAGE).await
}

fn permanent(reply: &str) -> Result<Relayed, RelayError> {
    Err(RelayError::Permanent(reply.to_owned()))
}

#[tokio::test]
async fn accepted_message_has_the_id_of_the_final_reply() {
    for encryption in [Encryption::None, Encryption::StartTls, Encryption::Implicit] {
        let server = SmtpServer::start(encryption).await;
        let relayed = send(&server, &["ada@navy.example", "grace@navy.example"]).await.unwrap();
        let received = server.wait_for(1).await;
        assert_eq!(relayed, Relayed { id: Some(received[0].id.clone()), refused: Vec::new() });
        assert_eq!(received[0].from, "noreply@app.acme.svc.example");
        assert_eq!(received[0].to, ["ada@navy.example", "grace@navy.example"]);
    }
}

#[tokio::test]
async fn null_sender_is_sent() {
    let server = SmtpServer::start(Encryption::None).await;
    let envelope = Envelope { from: String::new(), ..envelope(&["ada@navy.example"]) };
    relay(&server).send(&envelope, MESSAGE).await.unwrap();
    assert_eq!(server.wait_for(1).await[0].from, "");
}

#[tokio::test]
async fn refused_recipients_do_not_stop_the_others() {
    let server = SmtpServer::start(Encryption::None).await;
    let to = ["refuse@navy.example", "ada@navy.example", "not an address", "grace@müller.example"];
    let relayed = send(&server, &to).await.unwrap();
    let refused = |address: &str, reply: &str| RefusedRecipient { address: address.into(), reply: reply.into() };
    assert_eq!(
        relayed.refused,
        [
            refused("refuse@navy.example", "550 5.1.1 <refuse@navy.example>: user unknown"),
            refused("not an address", "the address is invalid"),
        ]
    );
    assert_eq!(server.wait_for(1).await[0].to, ["ada@navy.example", "grace@xn--mller-kva.example"]);
}

#[tokio::test]
async fn message_without_an_accepted_recipient_is_refused() {
    let server = SmtpServer::start(Encryption::None).await;
    let to = ["refuse@navy.example", "refuse@army.example"];
    assert_eq!(send(&server, &to).await, permanent("550 5.1.1 <refuse@navy.example>: user unknown"));
    assert_eq!(send(&server, &[]).await, permanent("the message has no recipient"));
    assert_eq!(server.received(), []);
}

/// A retry sends the message to all recipients, so none may have received it before.
#[tokio::test]
async fn transient_refusal_of_one_recipient_sends_nothing() {
    let server = SmtpServer::start(Encryption::None).await;
    let cause = Cause::Reply { step: Step::Recipient, code: 451, enhanced: Some("4.7.1".to_owned()) };
    for to in [&["defer@navy.example"][..], &["ada@navy.example", "defer@navy.example", "refuse@navy.example"]] {
        assert_eq!(send(&server, to).await, Err(RelayError::Transient(cause.clone())));
    }
    assert_eq!(server.received(), []);
}

#[tokio::test]
async fn replies_to_other_steps_are_classified() {
    let server = SmtpServer::start(Encryption::None).await;
    let reply = |step, code, enhanced: &str| {
        Err(RelayError::Transient(Cause::Reply { step, code, enhanced: Some(enhanced.to_owned()) }))
    };
    for (fault, expected) in [
        (SmtpFault::Sender("550 5.7.1 Not you"), reply(Step::Sender, 550, "5.7.1")),
        (SmtpFault::Sender("452 4.3.1 Full"), reply(Step::Sender, 452, "4.3.1")),
        (SmtpFault::Message("451 4.3.0 Disk"), reply(Step::Message, 451, "4.3.0")),
        (
            SmtpFault::Message("554-5.7.1 Spam\r\n554 5.7.1 and \u{7}more\tof it"),
            permanent("554 5.7.1 Spam and more of it"),
        ),
    ] {
        server.inject(Some(fault));
        assert_eq!(send(&server, &["ada@navy.example"]).await, expected, "{fault:?}");
    }
    assert_eq!(server.received(), []);
}

/// RFC 5321 section 4.1.1.10.
#[tokio::test]
async fn refused_session_ends_with_quit() {
    for (fault, to) in [
        (None, "refuse@navy.example"),
        (None, "defer@navy.example"),
        (Some(SmtpFault::Sender("550 5.7.1 Not you")), "ada@navy.example"),
        (Some(SmtpFault::Message("554 5.7.1 Spam")), "ada@navy.example"),
        (Some(SmtpFault::NoUtf8), "gräce@navy.example"),
    ] {
        let server = SmtpServer::start(Encryption::None).await;
        server.inject(fault);
        send(&server, &[to]).await.unwrap_err();
        server.wait_for_quits(1).await;
    }
    let server = SmtpServer::start_with_auth(Encryption::None, "svc", "hush").await;
    let url = server.url().replace("://", "://svc:wrong@");
    let relay = Relay::new(&config(&server, &url), "mail.svc.example").unwrap();
    relay.send(&envelope(&["ada@navy.example"]), MESSAGE).await.unwrap_err();
    server.wait_for_quits(1).await;
}

#[tokio::test]
async fn bytes_arrive_unchanged() {
    let server = SmtpServer::start(Encryption::None).await;
    let messages = [
        "Subject: dots\r\n\r\n.\r\n..\r\n.a\r\n\r\n.\r\n",
        ".\r\n",
        "Subject: no final line break\r\n\r\nx",
        "Subject: empty lines at the end\r\n\r\n\r\n\r\n",
        "Subject: 8 bit\r\n\r\nGr\u{fc}\u{df}e\r\n",
    ];
    for message in messages {
        relay(&server).send(&envelope(&["ada@navy.example"]), message.as_bytes()).await.unwrap();
    }
    for (received, message) in server.wait_for(messages.len()).await.iter().zip(messages) {
        let expected = format!("{}\r\n", message.strip_suffix("\r\n").unwrap_or(message));
        assert_eq!(String::from_utf8_lossy(&received.raw), expected);
    }
}

#[tokio::test]
async fn message_that_could_end_early_is_refused() {
    let server = SmtpServer::start(Encryption::None).await;
    for message in ["a\n.\nMAIL FROM:<x@y.example>\r\n", "a\r\n.\rb\r\n", "a\r\n\r", "a\r\n\0\r\n"] {
        let result = relay(&server).send(&envelope(&["ada@navy.example"]), message.as_bytes()).await;
        assert_eq!(result, permanent("the message has a line break other than CRLF, or NUL"), "{message:?}");
    }
    let injecting = Envelope { from: "a@b.example>\r\nRCPT TO:<c@d.example".to_owned(), ..envelope(&[]) };
    assert_eq!(relay(&server).send(&injecting, MESSAGE).await, permanent("the sender address is invalid"));
    assert_eq!(server.received(), []);
}

/// RFC 6531.
#[tokio::test]
async fn internationalized_message_needs_support_of_the_relay() {
    let server = SmtpServer::start(Encryption::None).await;
    let header = "Subject: Gr\u{fc}\u{df}e\r\n\r\nx\r\n";
    send(&server, &["gräce@navy.example"]).await.unwrap();
    relay(&server).send(&envelope(&["ada@navy.example"]), header.as_bytes()).await.unwrap();
    send(&server, &["ada@navy.example"]).await.unwrap();
    let received = server.wait_for(3).await;
    assert_eq!(received.iter().map(|mail| mail.utf8).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!((&*received[0].to[0], &*received[1].raw), ("gräce@navy.example", header.as_bytes()));
    server.inject(Some(SmtpFault::NoUtf8));
    let unsupported = permanent("the relay does not support SMTPUTF8");
    assert_eq!(send(&server, &["gräce@navy.example"]).await, unsupported);
    let result = relay(&server).send(&envelope(&["ada@navy.example"]), header.as_bytes()).await;
    assert_eq!(result, unsupported);
    assert_eq!(server.received().len(), 3);
}

/// The server may check the message for minutes, but the steps before it have a short timeout.
#[tokio::test]
async fn slow_final_reply_is_awaited() {
    let server = SmtpServer::start(Encryption::None).await;
    server.inject(Some(SmtpFault::WaitAfterMessage));
    let (relay, envelope) = (relay(&server), envelope(&["ada@navy.example"]));
    let reply = async {
        server.wait_for(1).await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(600)).await;
        tokio::time::resume();
        server.inject(None);
    };
    let (relayed, ()) = tokio::join!(relay.send(&envelope, MESSAGE), reply);
    assert_eq!(relayed.unwrap().id.as_ref(), Some(&server.received()[0].id));
    server.inject(Some(SmtpFault::Hang));
    let timeouts = Timeouts { before_message: Duration::from_millis(200), ..Timeouts::default() };
    let relay = Relay::with_timeouts(&config(&server, &server.url()), "svc.example", timeouts).unwrap();
    assert_eq!(relay.send(&envelope, MESSAGE).await, Err(RelayError::Transient(Cause::Timeout)));
}

#[tokio::test]
async fn lost_reply_is_transient_and_a_retry_sends_the_same_bytes() {
    let server = SmtpServer::start(Encryption::None).await;
    server.inject(Some(SmtpFault::DropAfterMessage));
    let result = send(&server, &["ada@navy.example"]).await;
    let is_lost = matches!(result, Err(RelayError::Transient(Cause::Connection { step: Step::Message, .. })));
    assert!(is_lost, "{result:?}");
    server.inject(Some(SmtpFault::HangAfterMessage));
    let reach_timeout = async {
        server.wait_for(2).await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(15 * 60)).await;
        tokio::time::resume();
    };
    let (result, ()) = tokio::join!(send(&server, &["ada@navy.example"]), reach_timeout);
    assert_eq!(result, Err(RelayError::Transient(Cause::Timeout)));
    server.inject(Some(SmtpFault::HangAtQuit));
    send(&server, &["ada@navy.example"]).await.unwrap();
    let received = server.wait_for(3).await;
    assert!(received.iter().all(|mail| mail.raw == MESSAGE));
}
