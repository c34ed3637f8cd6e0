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
    /// Returns the outcomes that this outcome can replace. The outcome of a sent mail never goes backwards.
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
        "receivedBytes": 81_920,
        "sentBytes": 70_006,
        "maxBytes": 1_073_741_824,
    }))
)]
pub struct EmailStatus {
    pub granted: bool,
    /// The domain of the project's addresses: `email()` receives the mail for each local part at it. If email is not
    /// granted, the domain that a grant would give. Empty if the installation has no mail.
    pub address: String,
    /// The default sender.
    pub from: String,
    /// The maximum number of calls of `send()` per hour on the organization's plan.
    pub hourly_limit: u32,
    /// The number of calls of `send()` in the last hour, without refused calls.
    pub sent_last_hour: i64,
    pub sent_last24h: i64,
    /// The number of mails that were received in the last 24 hours. At most 100,000 are counted.
    pub received_last24h: i64,
    /// The number of days for which the log is kept.
    pub keep_days: u32,
    /// The bytes of the stored received mail. At `maxBytes`, other mail is refused.
    pub received_bytes: i64,
    /// The bytes of the stored sent mail. `send()` fails if another mail would exceed `maxBytes`.
    pub sent_bytes: i64,
    /// The bytes of received mail, and of sent mail, that the project may store. A mail counts as at least 4 KiB, plus
    /// its recipients and its subject.
    pub max_bytes: u64,
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
    /// The length of the raw message in bytes.
    pub size_bytes: i64,
    /// The SPF result of a received mail (RFC 7208 section 2.6), in lower case.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub spf: Option<String>,
    /// Whether the raw message can be downloaded.
    pub has_raw: bool,
    pub created_at: Time,
}
