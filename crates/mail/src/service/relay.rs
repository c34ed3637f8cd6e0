//! Hands queued mail to the relay, from the outbox.
//!
//! If the relay's response is lost, the next attempt sends the same bytes with the same Message-ID.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::{MailId, Time};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::outbox::{DeliveryError, Message, OutboxHandler};
use store::{Connection, Error};

use super::event::apply_pending;
use super::{MAX_DETAIL_CHARS, Mail, one_line};
use crate::error::MailError;
use crate::model::MailOutcome;
use crate::ports::{Envelope, RefusedRecipient, Relay, RelayError, Relayed};
use crate::repository::{MessageRecord, MessageRepository as _};

pub(super) const RELAY_TOPIC: &str = "mail.relay";

/// The time after the first failed attempt at which a mail that the relay has not accepted counts as bounced, in
/// seconds. It is shorter than the time for which the outbox retries, so the outbox message of such a mail does not
/// become a dead letter.
const RELAY_PERIOD_SECONDS: i64 = 48 * 3600;

/// The timeout of an attempt: up to 15 minutes for the relay, which may check a large message before it replies, and
/// the rest for reading the message. An attempt must not end before the relay's reply, because the next one would send
/// a message again that the relay has accepted. Only a stop of the server ends it earlier, after the 25 seconds that
/// the outbox worker waits.
const TIMEOUT: Duration = Duration::from_secs(17 * 60);

/// The detail of a mail whose outbox message became a dead letter, because the mail store was unavailable for all
/// attempts.
const NOT_SENT: &str = "the service could not send the mail";

/// The maximum length of a relay's id, in bytes. A longer text is not an id.
const MAX_RELAY_ID_BYTES: usize = 256;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RelayMessage {
    pub(super) mail: MailId,
}

/// The result of handing a mail to the relay, which the handler passes to the transaction that records the delivery.
#[derive(Debug, Serialize, Deserialize)]
struct RelayResult {
    relay_id: Option<String>,
    /// The reason for a bounce. `None` if the relay accepted the mail for all recipients.
    bounce: Option<String>,
}

/// The outbox handler that hands queued mail to the relay. Only processes that relay mail need one.
pub struct MailRelay {
    mail: Mail,
    relay: Arc<dyn Relay>,
}

impl MailRelay {
    /// Creates the handler.
    #[must_use]
    pub const fn new(mail: Mail, relay: Arc<dyn Relay>) -> Self {
        Self { mail, relay }
    }

    /// Returns the mail if it still waits for the relay. Returns `None` if it was purged, or if another attempt has
    /// relayed it.
    async fn queued(&self, id: MailId) -> store::Result<Option<MessageRecord>> {
        let found = self.mail.store.connection().await?.message_find(id).await?;
        Ok(found.filter(|record| record.outcome == MailOutcome::Queued))
    }

    async fn relay(&self, record: MessageRecord, failing_since: Option<Time>) -> Result<RelayResult, DeliveryError> {
        let message = match self.mail.raws.read(record.project, record.id).await {
            Ok(message) => message,
            Err(MailError::NoRawMessage) => {
                tracing::error!(mail = %record.id, "the mail store does not have a queued message");
                let bounce = Some("the message is no longer stored".to_owned());
                return Ok(RelayResult { relay_id: None, bounce });
            }
            Err(error) => return Err(DeliveryError::transient(&error)),
        };
        let envelope = Envelope { from: record.sender, to: record.recipients };
        match self.relay.send(&envelope, &message).await {
            Ok(Relayed { id, refused }) => {
                let relay_id = id.filter(|id| id.len() <= MAX_RELAY_ID_BYTES && !id.contains(char::is_control));
                Ok(RelayResult { relay_id, bounce: describe(&refused) })
            }
            Err(RelayError::Permanent(reply)) => Ok(RelayResult { relay_id: None, bounce: Some(reply) }),
            Err(RelayError::Transient(reason)) => {
                if !self.mail.store.has_elapsed(failing_since, RELAY_PERIOD_SECONDS) {
                    return Err(DeliveryError::Transient(reason));
                }
                let bounce = format!("the mail could not be relayed within 48 hours: {reason}");
                Ok(RelayResult { relay_id: None, bounce: Some(bounce) })
            }
        }
    }
}

#[async_trait]
impl OutboxHandler for MailRelay {
    fn topic(&self) -> &'static str {
        RELAY_TOPIC
    }

    fn max_concurrency_per_tenant(&self) -> usize {
        // The relay may take minutes for each mail of an organization. Other mails must not wait for it.
        self.max_concurrency() / 2
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }

    async fn deliver(&self, message: &Message) -> Result<(), DeliveryError> {
        let RelayMessage { mail } = message.parse()?;
        let Some(record) = self.queued(mail).await.map_err(|error| DeliveryError::transient(&error))? else {
            return Ok(());
        };
        let result = self.relay(record, message.failing_since).await?;
        // Each attempt has its own `Message`, so its response is not set yet.
        let _ = message.response.set(json!(result));
        Ok(())
    }

    async fn on_delivered(&self, tx: &mut Connection, message: &Message, at: Time) -> store::Result<()> {
        let RelayMessage { mail } = message.parse_delivered()?;
        let Some(response) = message.response.get() else { return Ok(()) };
        let RelayResult { relay_id, bounce } = RelayResult::deserialize(response).map_err(Error::inconsistent)?;
        let (outcome, detail) = match bounce {
            Some(detail) => (MailOutcome::Bounced, Some(one_line(&detail, MAX_DETAIL_CHARS))),
            None => (MailOutcome::Sent, None),
        };
        tx.message_set_outcome(mail, &[MailOutcome::Queued], outcome, detail.as_deref()).await?;
        if let Some(relay_id) = relay_id {
            tx.message_set_relay_id(mail, &relay_id).await?;
            apply_pending(tx, &relay_id, None, at).await?;
        }
        Ok(())
    }

    /// Ends the mail, so that the project learns that it was not sent. A retry of the dead letter does not send it.
    async fn on_dead_letter(&self, tx: &mut Connection, message: &Message, _: Time) -> store::Result<()> {
        let RelayMessage { mail } = message.parse_delivered()?;
        tx.message_set_outcome(mail, &[MailOutcome::Queued], MailOutcome::Bounced, Some(NOT_SENT)).await
    }
}

/// Returns the replies for the refused recipients.
fn describe(refused: &[RefusedRecipient]) -> Option<String> {
    let replies = refused.iter().map(|RefusedRecipient { address, reply }| format!("{address}: {reply}"));
    let replies: Vec<String> = replies.collect();
    (!replies.is_empty()).then(|| replies.join("; "))
}
