//! What this context asks of others.

use kernel::Time;
use store::outbox::Undelivered;

/// A mail to write: plain text, whatever it comes to look like.
#[derive(Clone, PartialEq, Eq)]
pub struct Letter {
    /// The same for the same mail, however often it is sent.
    pub id: String,
    pub to: String,
    pub date: Time,
    pub subject: String,
    pub heading: String,
    pub paragraphs: Vec<String>,
    /// What the reader is asked to do: a label and an address.
    pub action: Option<(String, String)>,
    /// Why they got it.
    pub footer: String,
}

/// Sends mail.
#[async_trait::async_trait]
pub trait Post: Send + Sync {
    /// Hands the letter to whoever carries it.
    ///
    /// # Errors
    /// Whether trying again may help.
    async fn send(&self, letter: Letter) -> Result<(), Undelivered>;
}

/// Without what it says, and to whom.
impl std::fmt::Debug for Letter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Letter").field("id", &self.id).finish_non_exhaustive()
    }
}
