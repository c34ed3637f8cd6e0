//! The ports that other contexts and the relay implement.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use kernel::{NamedProject, NodeId, OrgId, Time};
use store::Connection;
use url::Url;
use webhooks::sns::SnsCertificate;

/// The relay: the SMTP server that delivers mail to other domains.
#[async_trait]
pub trait Relay: Send + Sync {
    /// Submits a message for these recipients. `Ok` means that the relay accepted it for at least one of them.
    ///
    /// # Errors
    /// Returns an error if the relay refused the message for all recipients, or if it is unknown whether the relay
    /// accepted it.
    async fn send(&self, envelope: &Envelope, message: &[u8]) -> Result<Relayed, RelayError>;
}

/// The envelope of a message (RFC 5321 section 2.3.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    pub from: String,
    pub to: Vec<String>,
}

/// The response of the relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relayed {
    /// The relay's id of the message: the last word of the final reply.
    pub id: Option<String>,
    /// The recipients that the relay refused permanently.
    pub refused: Vec<RefusedRecipient>,
}

/// A recipient that the relay refused permanently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRecipient {
    pub address: String,
    /// The relay's reply.
    pub reply: String,
}

/// The reason why the relay did not accept a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RelayError {
    /// Another attempt may succeed.
    #[error("{0}")]
    Transient(String),
    /// The relay refused the message, or all recipients.
    #[error("{0}")]
    Permanent(String),
}

/// The service that sends notifications about relayed mail (Amazon SNS).
#[async_trait]
pub trait NotificationService: Send + Sync {
    /// Returns the certificate at this URL, which the implementation may cache.
    async fn certificate(&self, url: &Url, now: Time) -> Result<Arc<SnsCertificate>, ServiceUnavailable>;

    /// Confirms a subscription. Safe to repeat.
    async fn confirm(&self, url: &Url) -> Result<(), ServiceUnavailable>;
}

/// The notification service did not respond as expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ServiceUnavailable(pub String);

/// Access to organizations.
#[async_trait]
pub trait Organizations: Send + Sync {
    /// Raises a notification in the caller's transaction, which has locked the mailbox. Does not lock the organization's
    /// row, which must not be locked after a mailbox.
    async fn raise(&self, tx: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()>;
}

/// The notifications that this context raises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A mail of the project was refused because of the plan's hourly limit. Raised at most once an hour for each
    /// project.
    EmailLimit { project: NamedProject, per_hour: u32 },
}

/// The wake-ups of nodes. They carry no state.
#[async_trait]
pub trait Nodes: Send + Sync {
    /// Wakes the waiting claims of a node when the transaction commits.
    async fn wake(&self, tx: &mut Connection, node: NodeId) -> store::Result<()>;

    /// Returns a future that completes at the first wake-up of the node after this call.
    fn next_wake_up(&self, node: NodeId) -> BoxFuture<'static, ()>;
}

/// The implementations of the ports that the service needs.
#[derive(Clone)]
pub struct Ports {
    pub organizations: Arc<dyn Organizations>,
    pub nodes: Arc<dyn Nodes>,
}
