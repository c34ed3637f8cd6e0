//! Errors of sending a mail.

use std::error::Error as _;

use lettre::transport::smtp;

/// The reason why a mail was not sent. It contains no address, no credential, and no text of the server's replies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MailError {
    /// A retry may succeed: the server is unreachable or busy, or an operator must correct a configuration.
    #[error("failed to send the mail: {0}")]
    Transient(Cause),
    /// A retry of this mail to this recipient cannot succeed.
    #[error("the mail cannot be sent: {0}")]
    Permanent(Cause),
}

/// The cause of a [`MailError`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The recipient's address is invalid or not supported.
    #[error("the recipient's address is invalid")]
    Address,
    /// The message id is invalid.
    #[error("the message id is invalid")]
    MessageId,
    /// The connection failed or broke, or TLS or the session could not be set up.
    #[error("{step}: {reason}")]
    Connection {
        /// The step that failed.
        step: Step,
        /// The message of the operating system or the library.
        reason: String,
    },
    /// The server replied with an error.
    #[error("{step}: the server replied {code}{}", enhanced.as_ref().map(|it| format!(" {it}")).unwrap_or_default())]
    Reply {
        /// The step that failed.
        step: Step,
        /// The reply code (RFC 5321 section 4.2).
        code: u16,
        /// The enhanced status code (RFC 3463), if the reply has one.
        enhanced: Option<String>,
    },
    /// The delivery exceeded its timeout.
    #[error("timed out")]
    Timeout,
}

/// A step of an SMTP session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The connection up to the reply to EHLO. For `smtps`, it includes the TLS handshake.
    Connect,
    /// STARTTLS.
    Tls,
    /// AUTH.
    Auth,
    /// MAIL FROM.
    Sender,
    /// RCPT TO.
    Recipient,
    /// DATA and the message itself.
    Message,
}

impl Cause {
    /// Returns whether the session continues after this error: the server replied, or nothing was sent.
    pub(super) const fn is_recoverable(&self) -> bool {
        !matches!(self, Self::Connection { .. } | Self::Timeout)
    }
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
    /// Returns the cause.
    pub(super) const fn cause(&self) -> &Cause {
        let (Self::Transient(cause) | Self::Permanent(cause)) = self;
        cause
    }

    /// Classifies an error of lettre at this step.
    pub(super) fn at(at: Step, error: &smtp::Error) -> Self {
        let Some(code) = error.status().map(u16::from) else {
            return Self::Transient(Cause::Connection { step: at, reason: describe(error) });
        };
        let enhanced = error.source().and_then(|text| enhanced(&text.to_string()));
        let cause = Cause::Reply { step: at, code, enhanced };
        if is_permanent(at, code) { Self::Permanent(cause) } else { Self::Transient(cause) }
    }
}

/// Returns whether a reply is a permanent error. Only errors about the recipient or the message are permanent. An
/// operator can correct other errors, such as a rejected client or sender, or 530, 535 and 538, which require
/// authentication (RFC 4954 section 6). 552 for a recipient is not permanent: it means "too many recipients" (RFC 5321
/// section 4.5.3.1.10).
fn is_permanent(at: Step, code: u16) -> bool {
    match (at, code) {
        (_, 530 | 535 | 538) | (Step::Recipient, 552) => false,
        (Step::Recipient | Step::Message, 500..=599) => true,
        _ => false,
    }
}

/// Describes an error without the text of the server.
fn describe(error: &smtp::Error) -> String {
    if error.is_response() {
        return "the reply is not SMTP or is incomplete".to_owned();
    }
    // The innermost source is the most specific. The outer errors repeat it.
    let innermost = std::iter::successors(error.source(), |&error| error.source()).last();
    innermost.map_or_else(|| error.to_string(), ToString::to_string)
}

/// Returns the enhanced status code at the beginning of a reply.
fn enhanced(text: &str) -> Option<String> {
    let code = text.split_ascii_whitespace().next()?;
    let parts: Vec<&str> = code.split('.').collect();
    let numbers = parts.iter().all(|part| (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit()));
    (parts.len() == 3 && numbers).then(|| code.to_owned())
}
