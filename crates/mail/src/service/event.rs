//! Events of the relay's service: deliveries, bounces and complaints.

use kernel::Time;
use serde::Deserialize as _;
use serde_json::json;
use store::{Connection, Error};

use super::{MAX_DETAIL_CHARS, Mail, Result, one_line};
use crate::address::suppression_key;
use crate::metrics;
use crate::model::{DeliveryEvent, DeliveryEventKind, EventRecipient, MailOutcome, SuppressionReason};
use crate::repository::{
    MessageRecord, MessageRepository as _, NotificationRepository as _, PendingNotification, SuppressionRecord,
    SuppressionRepository as _,
};

/// The maximum length of a notification's id and of a relay's id, in bytes.
const MAX_ID_BYTES: usize = 256;

/// The maximum length of an address that can be suppressed (RFC 5321 section 4.5.3.1).
const MAX_ADDRESS_BYTES: usize = 320;

/// How long an event waits for a mail with its relay id, in seconds.
const PENDING_SECONDS: i64 = 24 * 3600;

impl Mail {
    /// Applies an event once per notification id. If no mail has the relay's id, the event is stored for a day and
    /// applied when a mail gets this id: the relay's response may not be recorded yet.
    ///
    /// # Errors
    /// Returns [`crate::MailError::Store`]. In this case the notification is not recorded, and the service can send it
    /// again.
    pub async fn apply_event(&self, notification: &str, relay_id: &str, event: &DeliveryEvent) -> Result<()> {
        let is_id = |id: &str| id.len() <= MAX_ID_BYTES && !id.contains('\0');
        if !is_id(notification) || !is_id(relay_id) {
            return Ok(());
        }
        let now = self.store.clock_rng().now();
        let apply = async |tx: &mut Connection| {
            if !tx.notification_insert(notification, relay_id, now).await? {
                return Ok("repeated");
            }
            if apply(tx, relay_id, event, now).await? {
                return Ok("applied");
            }
            tx.notification_set_pending(notification, &json!(event)).await?;
            Ok::<_, Error>("early")
        };
        metrics::event(self.store.transaction_unaudited(apply).await?);
        Ok(())
    }

    /// Applies the events that arrived before the relay's response was stored, and discards those that are a day old.
    /// The events of each id of the relay have their own transaction, which locks only the mails with this id.
    ///
    /// # Errors
    /// Returns [`crate::MailError::Store`] after it has applied all other events.
    pub async fn apply_pending_events(&self) -> Result<()> {
        let now = self.store.clock_rng().now();
        let relay_ids = self.store.connection().await?.notification_list_pending().await?;
        let mut applied = Ok(());
        for relay_id in &relay_ids {
            let apply = async |tx: &mut Connection| apply_pending(tx, relay_id, now).await;
            applied = self.store.transaction_unaudited(apply).await.and(applied);
        }
        self.store.connection().await?.notification_expire(now.plus_seconds(-PENDING_SECONDS)).await?;
        Ok(applied?)
    }
}

/// Applies the stored events about this id of the relay.
pub(super) async fn apply_pending(tx: &mut Connection, relay_id: &str, now: Time) -> store::Result<()> {
    let pending = tx.notification_lock_pending(relay_id).await?;
    let mut applied = Vec::with_capacity(pending.len());
    for PendingNotification { id, event } in pending {
        let event = DeliveryEvent::deserialize(event.unwrap_or_default()).map_err(Error::inconsistent)?;
        apply(tx, relay_id, &event, now).await?;
        applied.push(id);
    }
    if applied.is_empty() { Ok(()) } else { tx.notification_clear(&applied).await }
}

/// Applies an event. Returns false if no mail has the relay id.
async fn apply(tx: &mut Connection, relay_id: &str, event: &DeliveryEvent, now: Time) -> store::Result<bool> {
    let mut mails = tx.message_lock_by_relay_id(relay_id).await?;
    let key = |address: &str| one_line(&suppression_key(address), MAX_ADDRESS_BYTES);
    let recipients =
        event.recipients.iter().map(|EventRecipient { address, detail }| (key(address), detail.as_deref()));
    let mut recipients: Vec<(String, Option<&str>)> = recipients.collect();
    // Concurrent events must lock the suppressions in the same order.
    recipients.sort();
    for (address, detail) in recipients {
        let Some(mail) = find(&mut mails, &address) else { continue };
        let before = mail.clone();
        change(mail, event.kind, &address, detail);
        if *mail != before {
            tx.message_set_outcome(mail.id, &[before.outcome], mail.outcome, mail.detail.as_deref()).await?;
        }
        let reason = match event.kind {
            DeliveryEventKind::Bounced { permanent: true } => SuppressionReason::Bounce,
            DeliveryEventKind::Complained => SuppressionReason::Complaint,
            DeliveryEventKind::Delivered | DeliveryEventKind::Bounced { permanent: false } => continue,
        };
        let detail = detail.map(|detail| one_line(detail, MAX_DETAIL_CHARS));
        let suppression = SuppressionRecord { address, reason, detail, created_at: now };
        tx.suppression_put(mail.project, &suppression).await?;
    }
    Ok(!mails.is_empty())
}

/// Returns the mail to this recipient. If the relay gave several mails the same id, returns the newest one to the
/// recipient.
fn find<'a>(mails: &'a mut [MessageRecord], address: &str) -> Option<&'a mut MessageRecord> {
    let is_recipient = |mail: &MessageRecord| mail.recipients.iter().any(|it| suppression_key(it) == address);
    match mails.iter().position(is_recipient) {
        Some(at) => mails.get_mut(at),
        None if mails.len() == 1 => mails.first_mut(),
        None => None,
    }
}

/// Changes the outcome and the detail of a mail. An outcome never goes backwards.
fn change(mail: &mut MessageRecord, kind: DeliveryEventKind, address: &str, detail: Option<&str>) {
    let (outcome, default) = match kind {
        DeliveryEventKind::Delivered => (Some(MailOutcome::Delivered), None),
        DeliveryEventKind::Bounced { permanent: true } => (Some(MailOutcome::Bounced), Some("bounced")),
        DeliveryEventKind::Bounced { permanent: false } => (None, Some("bounced temporarily")),
        DeliveryEventKind::Complained => (Some(MailOutcome::Complained), Some("reported as spam")),
    };
    if let Some(outcome) = outcome {
        if outcome.predecessors().contains(&mail.outcome) {
            mail.outcome = outcome;
        } else if mail.outcome != outcome {
            return;
        }
    }
    if let Some(default) = default {
        let added = format!("{address}: {}", detail.unwrap_or(default));
        let detail = mail.detail.iter().map(String::as_str).chain([&*added]).collect::<Vec<_>>().join("; ");
        mail.detail = Some(one_line(&detail, MAX_DETAIL_CHARS));
    }
}
