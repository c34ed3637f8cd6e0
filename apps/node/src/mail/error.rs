//! The errors of `env.email`.

use protocol::{MailRefusal, RefusedMail};

/// Why `send` failed. The mail is not sent, except that after [`SendError::Unavailable`] it may have been queued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The control plane refused the mail.
    #[error("{}", .0.message)]
    Refused(RefusedMail),
    /// The mail does not have the shape of [`protocol::OutgoingMail`].
    #[error("{0}")]
    InvalidMessage(&'static str),
    /// The mail exceeds the limit of a submission, so it would also exceed the 10 MiB of an assembled mail.
    #[error("The mail is too large. The limit is 10 MiB, with its attachments.")]
    TooLarge,
    /// Other mails of the project are being sent, or other large mails need the memory of the owner or of the node.
    #[error("Too many mails are being sent. Try again later.")]
    Busy,
    /// The control plane did not confirm the mail in time.
    #[error("The mail service does not respond. The mail may have been queued. Try again later.")]
    Unavailable,
}

impl SendError {
    /// Returns the `code` that worker code sees.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Refused(refused) => match refused.code {
                MailRefusal::RateLimited => "rate_limited",
                MailRefusal::MailboxFull => "mailbox_full",
                MailRefusal::Suppressed => "suppressed",
                MailRefusal::InvalidRecipient => "invalid_recipient",
                MailRefusal::InvalidSender => "invalid_sender",
                MailRefusal::InvalidMessage => "invalid_message",
                MailRefusal::TooLarge => "too_large",
                MailRefusal::NotGranted => "not_granted",
            },
            Self::InvalidMessage(_) => "invalid_message",
            Self::TooLarge => "too_large",
            Self::Busy | Self::Unavailable => "unavailable",
        }
    }
}
