//! The webhook that receives the messages of the relay's notification service.

use std::sync::Arc;

use webhooks::sns::{SnsMessage, SnsTopic};

use super::Mail;
use crate::error::HookError;
use crate::metrics;
use crate::notification;
use crate::ports::NotificationService;

/// Receives the messages of the notification service. Cheap to clone.
#[derive(Clone)]
pub struct MailHook {
    mail: Mail,
    /// `None` if no topic is configured.
    source: Option<NotificationSource>,
}

/// The topic whose messages are accepted, and the service that sends them.
#[derive(Clone)]
pub struct NotificationSource {
    pub topic: SnsTopic,
    pub service: Arc<dyn NotificationService>,
}

impl MailHook {
    /// Creates the hook.
    #[must_use]
    pub const fn new(mail: Mail, source: Option<NotificationSource>) -> Self {
        Self { mail, source }
    }

    /// Applies a message. The checks that need no network connection come first. A message is applied once, even if it
    /// is delivered several times. Messages of unknown types are ignored.
    ///
    /// # Errors
    /// Returns [`HookError`]. In this case the message is not recorded, and can be delivered again.
    pub async fn receive(&self, body: &[u8]) -> Result<(), HookError> {
        let received = self.receive_authentic(body).await;
        match &received {
            // Only count this error, because anyone can send such a request, and a log line for each could fill the
            // log.
            Err(HookError::Malformed(_)) => metrics::event("malformed"),
            Err(HookError::NotAuthentic(_)) => metrics::event("not_authentic"),
            Err(HookError::Unavailable(error)) => {
                metrics::event("unavailable");
                tracing::warn!(error = %error, "failed to reach the notification service");
            }
            _ => {}
        }
        received
    }

    async fn receive_authentic(&self, body: &[u8]) -> Result<(), HookError> {
        let NotificationSource { topic, service } = self.source.as_ref().ok_or(HookError::Off)?;
        let message = topic.read(body)?;
        let now = self.mail.store.clock_rng().now();
        let certificate = service.certificate(message.certificate_url(), now).await?;
        match message.verify(&certificate, now.unix_seconds())? {
            SnsMessage::Notification { id, message } => match notification::parse(&message) {
                Some((relay_id, event)) => Ok(self.mail.apply_event(&id, &relay_id, &event).await?),
                None => {
                    metrics::event("unknown");
                    Ok(())
                }
            },
            // Confirm at each delivery of this message, because repeated confirmations have no effect.
            SnsMessage::SubscriptionConfirmation { subscribe_url, .. } => {
                service.confirm(&subscribe_url).await?;
                tracing::info!("confirmed the subscription to the notification service");
                Ok(())
            }
            SnsMessage::UnsubscribeConfirmation => {
                tracing::warn!("the notification service ended the subscription: outcomes of mail are not reported");
                Ok(())
            }
        }
    }
}
