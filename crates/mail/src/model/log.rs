//! The log of a project's mail, and its status (contract section 9).

use kernel::{MailId, Time};
use serde::Serialize;

kernel::words! {
    /// Whether a mail was received or sent.
    pub enum MailDirection {
        In = "in",
        Out = "out",
    } example Out
}

kernel::words! {
    /// The outcome of a mail.
    pub enum MailOutcome {
        /// The mail waits for the relay.
        Queued = "queued",
        /// The relay accepted the mail.
        Sent = "sent",
        /// The recipient's server accepted the mail.
        Delivered = "delivered",
        /// A recipient's server, or the relay, refused the mail.
        Bounced = "bounced",
        /// A recipient reported the mail as spam.
        Complained = "complained",
        /// A mail to a suppressed recipient, or a received mail that `email()` rejected.
        Rejected = "rejected",
        /// The mail was received.
        Received = "received",
    } example Delivered
}

impl MailOutcome {
    /// Returns the outcomes of a sent mail that this outcome replaces. Outcomes never go backwards.
    pub(crate) const fn predecessors(self) -> &'static [Self] {
        match self {
            Self::Delivered => &[Self::Queued, Self::Sent],
            Self::Bounced => &[Self::Queued, Self::Sent, Self::Delivered],
            Self::Complained => &[Self::Queued, Self::Sent, Self::Delivered, Self::Bounced],
            _ => &[Self::Queued],
        }
    }
}

/// The mail address of a project, with its limits and usage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "granted": true,
        "address": "site.acme.mail.svc.example",
        "from": "noreply@site.acme.mail.svc.example",
        "hourlyLimit": 50,
        "sentLastHour": 2,
        "sentLast24h": 17,
        "receivedLast24h": 4,
        "keepDays": 30,
    }))
)]
pub struct EmailStatus {
    pub granted: bool,
    /// The domain of the project's addresses: each local part at it reaches `email()`. While it is not granted, the domain
    /// that a grant would give; empty if the installation has no mail.
    pub address: String,
    /// The default sender.
    pub from: String,
    /// The number of calls of `send()` that the plan allows per hour.
    pub hourly_limit: u32,
    /// The calls of `send()` in the last hour. Refused calls do not count.
    pub sent_last_hour: i64,
    pub sent_last24h: i64,
    pub received_last24h: i64,
    /// The days for which the log is kept.
    pub keep_days: u32,
}

/// A mail in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "from": "noreply@site.acme.mail.svc.example",
        "to": ["ada@example.org"],
        "subject": "Welcome",
        "sizeBytes": 1024,
        "hasRaw": true,
    }))
)]
pub struct MailLogEntry {
    pub id: MailId,
    pub direction: MailDirection,
    /// The sender in the envelope; empty for the null sender.
    pub from: String,
    /// The recipients in the envelope; for a received mail, only those of this project.
    pub to: Vec<String>,
    /// The decoded subject, without control characters.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub subject: Option<String>,
    pub outcome: MailOutcome,
    /// The reason for the outcome, such as the reply of a server.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub detail: Option<String>,
    /// The length of the raw message.
    pub size_bytes: i64,
    /// The SPF result of a received mail (RFC 7208 section 2.6), in lower case.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub spf: Option<String>,
    /// Whether the raw message can be downloaded.
    pub has_raw: bool,
    pub created_at: Time,
}
