//! What became of a mail that was not taken.

use std::error::Error as _;

use lettre::transport::smtp;

/// Why a mail is not on its way. Shows no address, no credential and no words of the server, which tend to repeat both.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MailError {
    /// Another time it may go: the server is away or busy, or its operator or ours has something to mend.
    #[error("the mail did not go this time: {0}")]
    Later(Cause),
    /// This mail to this recipient will never go.
    #[error("the mail cannot go: {0}")]
    Never(Cause),
}

/// What was in the way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The recipient's address is none, or none that mail is sent to.
    #[error("the recipient's address is malformed")]
    Address,
    /// The id that the mail was given is malformed.
    #[error("the message id is malformed")]
    MessageId,
    /// No connection, no trust in the certificate, no common ground, or the connection broke.
    #[error("at {at}: {what}")]
    Connection {
        /// How far the conversation came.
        at: Step,
        /// What happened, in the system's or the library's words.
        what: String,
    },
    /// The server refused.
    #[error("at {at}: the server answered {code}{}", enhanced.as_ref().map(|it| format!(" {it}")).unwrap_or_default())]
    Reply {
        /// How far the conversation came.
        at: Step,
        /// The reply code (RFC 5321 section 4.2).
        code: u16,
        /// The enhanced status code (RFC 3463), when there is one.
        enhanced: Option<String>,
    },
    /// It took too long in all.
    #[error("no answer in time")]
    Timeout,
}

/// A step of the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Up to the answer to EHLO; of `smtps` with the handshake.
    Connect,
    /// STARTTLS.
    Tls,
    /// AUTH.
    Auth,
    /// MAIL FROM.
    Sender,
    /// RCPT TO.
    Recipient,
    /// DATA, and the message.
    Message,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "connecting",
            Self::Tls => "STARTTLS",
            Self::Auth => "AUTH",
            Self::Sender => "MAIL FROM",
            Self::Recipient => "RCPT TO",
            Self::Message => "DATA",
        })
    }
}

impl MailError {
    /// What lettre's error means at this step.
    pub(super) fn at(at: Step, error: &smtp::Error) -> Self {
        let Some(code) = error.status().map(u16::from) else {
            return Self::Later(Cause::Connection { at, what: what(error) });
        };
        let enhanced = error.source().and_then(|text| enhanced(&text.to_string()));
        let cause = Cause::Reply { at, code, enhanced };
        if is_final(at, code) { Self::Never(cause) } else { Self::Later(cause) }
    }
}

/// Only what is said of the recipient or the message is; a server that will not have us at all, or not under this
/// sender, has an operator. So have 530, 535 and 538, which ask for authentication (RFC 4954 section 6), and 552 of a
/// recipient means "not so many" (RFC 5321 section 4.5.3.1.10).
fn is_final(at: Step, code: u16) -> bool {
    match (at, code) {
        (_, 530 | 535 | 538) | (Step::Recipient, 552) => false,
        (Step::Recipient | Step::Message, 500..=599) => true,
        _ => false,
    }
}

/// Never what the server said, but where it goes wrong below it.
fn what(error: &smtp::Error) -> String {
    if error.is_response() {
        return "the answer is no SMTP, or broke off".to_owned();
    }
    // The innermost cause is the one that says something: the others repeat it.
    let cause = std::iter::successors(error.source(), |&error| error.source()).last();
    cause.map_or_else(|| error.to_string(), ToString::to_string)
}

/// The enhanced status code that the reply begins with.
fn enhanced(text: &str) -> Option<String> {
    let code = text.split_ascii_whitespace().next()?;
    let parts: Vec<&str> = code.split('.').collect();
    let numbers = parts.iter().all(|part| (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit()));
    (parts.len() == 3 && numbers).then(|| code.to_owned())
}
