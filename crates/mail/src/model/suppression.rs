//! Suppressed recipients.

use kernel::Time;
use serde::Serialize;

kernel::words! {
    /// The reason why a recipient is suppressed.
    pub enum SuppressionReason {
        /// A mail to the recipient bounced permanently.
        Bounce = "bounce",
        /// The recipient reported a mail as spam.
        Complaint = "complaint",
    } example Bounce
}

/// A recipient that the project may not send to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({ "address": "ada@example.org", "detail": "550 5.1.1 user unknown" }))
)]
pub struct Suppression {
    /// The address, in lower case.
    pub address: String,
    pub reason: SuppressionReason,
    /// The report of the recipient's server.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub detail: Option<String>,
    pub created_at: Time,
}
