//! The ports of the organization context.

use kernel::Time;
use store::outbox::DeliveryError;

/// The content of a mail, as plain text without layout.
#[derive(Clone, PartialEq, Eq)]
pub struct MailMessage {
    /// A stable id: each attempt to send the mail uses the same one.
    pub id: String,
    pub to: String,
    pub date: Time,
    pub subject: String,
    pub heading: String,
    pub paragraphs: Vec<String>,
    /// The button of the mail: its label and address.
    pub action: Option<(String, String)>,
    /// The reason why the recipient gets the mail.
    pub footer: String,
}

/// Sends mail.
#[async_trait::async_trait]
pub trait Mailer: Send + Sync {
    /// Sends a mail. Returns false if the mail server refused the recipient or the mail permanently: a retry would be
    /// refused again.
    async fn send(&self, mail: MailMessage) -> Result<bool, DeliveryError>;
}

/// The derived implementation would show the content and the recipient.
impl std::fmt::Debug for MailMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MailMessage").field("id", &self.id).finish_non_exhaustive()
    }
}
