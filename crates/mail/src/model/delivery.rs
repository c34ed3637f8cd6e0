//! Received mail, and its delivery to workers.

use kernel::{MailId, ProjectId, Time};

/// A mail that the mail node received, as one project gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInboundMail {
    /// The id, which the mail node created.
    pub id: MailId,
    pub project: ProjectId,
    /// The sender in the envelope; empty for the null sender.
    pub from: String,
    /// The recipients that belong to the project.
    pub to: Vec<String>,
    /// The decoded subject.
    pub subject: Option<String>,
    /// The SPF result, in lower case.
    pub spf: String,
    pub size_bytes: u64,
    pub received_at: Time,
}

/// The owner of a recipient's domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecipientOwner {
    /// All addresses at the domain belong to this project.
    Project(ProjectId),
    /// A project has the domain, but its mailbox is full: it stores as much received mail as its plan allows.
    Full,
    /// The domain is the platform's, but no project has it.
    Unknown,
    /// The platform does not receive mail for the domain.
    Foreign,
}

/// A received mail that a node has claimed for one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedMail {
    pub id: MailId,
    pub project: ProjectId,
    /// The number of this attempt, from 1.
    pub attempt: i32,
    pub from: String,
    pub to: Vec<String>,
    pub size_bytes: i64,
}

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryResult {
    /// `email()` returned.
    Handled,
    /// `email()` called `setReject` with this reason.
    Rejected(String),
    /// The live deployment has no `email()`.
    NoHandler,
    /// `email()` failed. The mail is due again later.
    Failed(String),
}
