//! The events of the relay's service.

use serde::{Deserialize, Serialize};

/// An event about a sent mail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryEvent {
    pub kind: DeliveryEventKind,
    pub recipients: Vec<EventRecipient>,
}

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryEventKind {
    /// The recipient's server accepted the mail.
    Delivered,
    /// The recipient's server refused the mail. A temporary refusal does not change the outcome.
    Bounced { permanent: bool },
    /// The recipients reported the mail as spam.
    Complained,
}

/// A recipient of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecipient {
    pub address: String,
    /// The report of the recipient's server.
    pub detail: Option<String>,
}
