//! The part `email`, the mail that workers send, and the mail that the mail node receives.
//!
//! **Sending.** A node submits a mail under an id that it created. The control plane stores and queues the mail, so a
//! repeated submission has no further effect.
//!
//! **Receiving.** The mail node ([`RecipientRequest`]) stores a mail in its own queue, answers the client, and then
//! hands over one copy for each project: first the bytes, then an [`InboundMail`] under the same id. Both are safe to
//! repeat.
//!
//! **Delivery to workers.** The home node of a project claims the mail that is due, runs `email()`, and reports the
//! result. If it reports nothing before its lease ends, the mail is due again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use validator::Validate;

use crate::bounded;
use crate::desired::DesiredPart;

/// The mail address of a project: worker code sees it as `env.email`. The context `resources` owns this part, and
/// removes it when the grant is revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Email {
    /// The domain of the project's addresses.
    pub domain: String,
}

impl DesiredPart for Email {
    const NAME: &'static str = "email";
}

/// A mail that worker code sends. The control plane validates it, so its texts can have any content here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MailSubmission {
    /// an id that starts with mail_; the node created it for this call
    #[cfg_attr(feature = "openapi", schema(max_length = 64), validate(length(max = 64)))]
    pub id: String,
    /// an id that starts with prj_
    #[cfg_attr(feature = "openapi", schema(max_length = 64), validate(length(max = 64)))]
    pub project: String,
    pub mail: OutgoingMail,
}

/// The argument of `env.email.send`. Each list has at most 1,000 elements.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutgoingMail {
    /// The sender, with an optional display name; null for the project's default sender.
    pub from: Option<String>,
    pub reply_to: Option<String>,
    #[serde(deserialize_with = "bounded::list")]
    pub to: Vec<String>,
    #[serde(deserialize_with = "bounded::list")]
    pub cc: Vec<String>,
    #[serde(deserialize_with = "bounded::list")]
    pub bcc: Vec<String>,
    pub subject: String,
    pub text: Option<String>,
    pub html: Option<String>,
    #[serde(deserialize_with = "bounded::texts")]
    pub headers: BTreeMap<String, String>,
    #[serde(deserialize_with = "bounded::list")]
    pub attachments: Vec<MailAttachment>,
}

/// An attachment of an outgoing mail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MailAttachment {
    pub filename: String,
    pub content_type: String,
    /// The content in base64 (RFC 4648 section 4).
    pub content: String,
}

/// The response to a submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum MailSubmitted {
    /// The mail is stored and queued.
    Queued,
    Refused(RefusedMail),
}

/// The reason why a mail is not sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefusedMail {
    pub code: MailRefusal,
    /// Describes the reason to the developer of the worker.
    pub message: String,
}

/// The code of a refused mail, which worker code sees as the `code` of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MailRefusal {
    /// The project has already sent as many mails in the last hour as its plan allows.
    RateLimited,
    /// The project stores as much sent mail as its plan allows.
    MailboxFull,
    /// A recipient is on the project's suppression list.
    Suppressed,
    /// A recipient is not a valid address, or the number of recipients is 0 or too large.
    InvalidRecipient,
    /// The sender is not an address at the project's domain.
    InvalidSender,
    /// Another field is invalid.
    InvalidMessage,
    /// The assembled mail is larger than 10 MiB.
    TooLarge,
    /// The project has no mail address, is suspended, or is at another node.
    NotGranted,
}

/// A request of the mail node for the project of a recipient.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecipientRequest {
    /// The domain of the recipient's address, in lower case and in its ASCII form.
    #[cfg_attr(feature = "openapi", schema(max_length = 255), validate(length(max = 255)))]
    pub domain: String,
}

/// The response to a [`RecipientRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum Recipient {
    /// All addresses at the domain belong to this project: an id that starts with prj_.
    Project(String),
    /// A project has the domain, but it stores as much received mail as its plan allows.
    Full,
    /// The domain is below the platform's mail domain, but no project has it.
    Unknown,
    /// The platform does not receive mail for the domain.
    Foreign,
}

/// A received mail, as one project gets it. Its bytes are already uploaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InboundMail {
    /// an id that starts with prj_
    #[cfg_attr(feature = "openapi", schema(max_length = 64), validate(length(max = 64)))]
    pub project: String,
    /// The sender in the envelope; empty for the null sender.
    #[cfg_attr(feature = "openapi", schema(max_length = 512), validate(length(max = 512)))]
    pub from: String,
    /// The recipients in the envelope that belong to this project.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 100), validate(length(min = 1, max = 100)))]
    pub to: Vec<String>,
    /// The decoded subject, without control characters.
    #[cfg_attr(feature = "openapi", schema(max_length = 1000), validate(length(max = 1000)))]
    pub subject: Option<String>,
    /// The result of SPF (RFC 7208 section 2.6), in lower case.
    #[cfg_attr(feature = "openapi", schema(max_length = 16), validate(length(max = 16)))]
    pub spf: String,
    /// The length of the uploaded mail, in bytes.
    pub size_bytes: u64,
    /// The time at which the mail node accepted the mail (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(max_length = 64, example = "2026-11-21T09:00:00.000Z"))]
    #[cfg_attr(feature = "openapi", validate(length(max = 64)))]
    pub received_at: String,
}

/// A claim of received mail.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MailClaim {
    /// The ids of all mails that the node has claimed and not reported. Its other claims end.
    #[cfg_attr(feature = "openapi", schema(max_items = 1000), validate(length(max = 1000)))]
    pub in_progress: Vec<String>,
}

/// Mail that is due at a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MailDeliveries {
    pub deliveries: Vec<MailDelivery>,
}

/// A mail for the `email()` of a worker. The claim is valid for 5 minutes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MailDelivery {
    /// an id that starts with mail_
    pub id: String,
    /// an id that starts with prj_
    pub project: String,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// The sender in the envelope; empty for the null sender.
    pub from: String,
    pub to: Vec<String>,
    pub size_bytes: u64,
}

/// The result of an attempt to deliver a mail to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MailDelivered {
    /// The attempt's number. The result of an earlier attempt is ignored.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, example = 1))]
    pub attempt: u32,
    pub outcome: DeliveryOutcome,
    /// The reason of `rejected` and of `failed`.
    pub reason: Option<String>,
}

/// How an attempt to deliver a mail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeliveryOutcome {
    /// `email()` returned.
    Handled,
    /// `email()` called `setReject`.
    Rejected,
    /// The live deployment has no `email()`. The mail stays in the log.
    NoHandler,
    /// `email()` threw, took too long, or could not run. The mail is due again later.
    Failed,
}

/// How a worker handled a mail: an outcome with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DeliveryResult {
    Handled,
    Rejected(String),
    NoHandler,
    Failed(String),
}

impl MailDelivered {
    #[must_use]
    pub fn new(attempt: u32, result: DeliveryResult) -> Self {
        let (outcome, reason) = match result {
            DeliveryResult::Handled => (DeliveryOutcome::Handled, None),
            DeliveryResult::Rejected(reason) => (DeliveryOutcome::Rejected, Some(reason)),
            DeliveryResult::NoHandler => (DeliveryOutcome::NoHandler, None),
            DeliveryResult::Failed(reason) => (DeliveryOutcome::Failed, Some(reason)),
        };
        Self { attempt, outcome, reason }
    }

    /// Returns the outcome with its reason. A missing reason is empty.
    #[must_use]
    pub fn into_result(self) -> DeliveryResult {
        let reason = self.reason.unwrap_or_default();
        match self.outcome {
            DeliveryOutcome::Handled => DeliveryResult::Handled,
            DeliveryOutcome::Rejected => DeliveryResult::Rejected(reason),
            DeliveryOutcome::NoHandler => DeliveryResult::NoHandler,
            DeliveryOutcome::Failed => DeliveryResult::Failed(reason),
        }
    }
}
