//! Mail that worker code sends.

use std::collections::BTreeMap;

use kernel::{MailId, ProjectId};

/// A mail that a node submits for a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// The id of the mail, which the node created.
    pub id: MailId,
    pub project: ProjectId,
    pub mail: OutgoingMail,
}

/// A mail as the worker code wrote it, so its texts are not validated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutgoingMail {
    /// The sender: `address` or `name <address>`. `None` for the project's default sender.
    pub from: Option<String>,
    pub reply_to: Option<String>,
    pub to: Vec<String>,
    pub cc: Vec<String>,
    pub bcc: Vec<String>,
    pub subject: String,
    pub text: Option<String>,
    pub html: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub attachments: Vec<Attachment>,
}

/// An attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    pub filename: String,
    pub content_type: String,
    /// The content in base64 (RFC 4648 section 4).
    pub content: String,
}

/// The reason why a worker's mail is refused. The message is for the developer of the worker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the project sent {limit} mails in the last hour, the limit of its plan; send the mail later")]
    RateLimited { limit: u32 },
    #[error("the project stores {limit} bytes of sent mail, its limit; the oldest mail is deleted first")]
    MailboxFull { limit: u64 },
    #[error("{0}")]
    Suppressed(String),
    #[error("{0}")]
    InvalidRecipient(String),
    #[error("from must be an address at {domain}, optionally with a display name")]
    InvalidSender { domain: String },
    #[error("{0}")]
    InvalidMessage(String),
    #[error("the assembled mail has {size} bytes; the limit is {limit}")]
    TooLarge { size: usize, limit: usize },
    #[error("the project may not send mail: email is disabled, or the project is suspended or at another node")]
    NotGranted,
}
