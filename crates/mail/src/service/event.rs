//! Events of the relay's service: deliveries, bounces and complaints.

use kernel::Time;
use serde::Deserialize as _;
use serde_json::json;
use store::{Connection, Error};

use super::{MAX_DETAIL_CHARS, Mail, Result, one_line};
use crate::address::suppression_key;
use crate::metrics;
use crate::model::{DeliveryEvent, DeliveryEventKind, MailOutcome, SuppressionReason};
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
    /// Applies an event once per notification id. The recipients that no mail with the relay's id has are stored for a
    /// day, and applied when such a mail gets this id: the relay's response may not be recorded yet.
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
            let Some(rest) = apply(tx, relay_id, event.clone(), false, now).await? else {
                return Ok("applied");
            };
            tx.notification_set_pending(notification, &json!(rest)).await?;
            Ok::<_, Error>("early")
        };
        metrics::event(self.store.transaction_unaudited(apply).await?);
        Ok(())
    }

    /// Applies the events that arrived before the relay's response was stored, and ends those that are a day old. The
    /// events of each id of the relay have their own transaction, which locks only the mails with this id.
    ///
    /// # Errors
    /// Returns [`crate::MailError::Store`] after it has applied all other events.
    pub async fn apply_pending_events(&self) -> Result<()> {
        let now = self.store.clock_rng().now();
        let expired = now.plus_seconds(-PENDING_SECONDS);
        let mut applied = Ok(());
        for before in [None, Some(expired)] {
            let relay_ids = self.store.connection().await?.notification_list_pending(before).await?;
            for relay_id in &relay_ids {
                let apply = async |tx: &mut Connection| apply_pending(tx, relay_id, before, now).await;
                applied = self.store.transaction_unaudited(apply).await.and(applied);
            }
        }
        self.store.connection().await?.notification_expire(expired).await?;
        Ok(applied?)
    }
}

/// Applies the stored events about this id of the relay: all of them, or those that expire because they were received
/// before a time.
pub(super) async fn apply_pending(
    tx: &mut Connection,
    relay_id: &str,
    expire_before: Option<Time>,
    now: Time,
) -> store::Result<()> {
    let pending = tx.notification_lock_pending(relay_id, expire_before).await?;
    let mut ended = Vec::with_capacity(pending.len());
    for PendingNotification { id, event } in pending {
        let event = DeliveryEvent::deserialize(event).map_err(Error::inconsistent)?;
        let count = event.recipients.len();
        let rest = apply(tx, relay_id, event, expire_before.is_some(), now).await?;
        match rest.filter(|_| expire_before.is_none()) {
            Some(rest) if rest.recipients.len() < count => tx.notification_set_pending(&id, &json!(rest)).await?,
            // No part of the event was applied.
            Some(_) => {}
            None => ended.push(id),
        }
    }
    if ended.is_empty() {
        return Ok(());
    }
    tx.notification_clear(&ended).await?;
    // A purge of the last mail with the id has kept these notifications, because their events were stored.
    tx.notification_purge(&[relay_id.to_owned()]).await
}

/// Applies an event. Returns the part of it that belongs to no mail: the event with only the recipients that no mail
/// with the relay's id has. They can belong to a mail that gets the same id later. When the event expires, they belong
/// to the only mail with the id: a server may have forwarded it to another address. An event without recipients always
/// belongs to the only mail.
async fn apply(
    tx: &mut Connection,
    relay_id: &str,
    event: DeliveryEvent,
    is_expired: bool,
    now: Time,
) -> store::Result<Option<DeliveryEvent>> {
    let DeliveryEvent { kind, recipients } = event;
    let mut mails = tx.message_lock_by_relay_id(relay_id).await?;
    if recipients.is_empty() {
        let [mail] = &mut mails[..] else { return Ok(Some(DeliveryEvent { kind, recipients })) };
        change(tx, mail, kind, None).await?;
        return Ok(None);
    }
    let key = |address: &str| one_line(&suppression_key(address), MAX_ADDRESS_BYTES);
    let mut recipients: Vec<_> = recipients.into_iter().map(|recipient| (key(&recipient.address), recipient)).collect();
    // Concurrent events must lock the suppressions in the same order.
    recipients.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut rest = Vec::new();
    for (address, recipient) in recipients {
        let Some(mail) = find(&mut mails, &address, is_expired) else {
            rest.push(recipient);
            continue;
        };
        let detail = recipient.detail.as_deref();
        change(tx, mail, kind, Some((&address, detail))).await?;
        let reason = match kind {
            DeliveryEventKind::Bounced { permanent: true } => SuppressionReason::Bounce,
            DeliveryEventKind::Complained => SuppressionReason::Complaint,
            DeliveryEventKind::Delivered | DeliveryEventKind::Bounced { permanent: false } => continue,
        };
        let detail = detail.map(|detail| one_line(detail, MAX_DETAIL_CHARS));
        let suppression = SuppressionRecord { address, reason, detail, created_at: now };
        tx.suppression_put(mail.project, &suppression).await?;
    }
    Ok((!rest.is_empty()).then_some(DeliveryEvent { kind, recipients: rest }))
}

/// Returns the mail to this recipient. If the relay gave several mails the same id, returns the newest one to the
/// recipient.
fn find<'a>(mails: &'a mut [MessageRecord], address: &str, is_expired: bool) -> Option<&'a mut MessageRecord> {
    let is_recipient = |mail: &MessageRecord| mail.recipients.iter().any(|it| suppression_key(it) == address);
    match mails.iter().position(is_recipient) {
        Some(at) => mails.get_mut(at),
        None if is_expired && mails.len() == 1 => mails.first_mut(),
        None => None,
    }
}

/// Changes the outcome and the detail of a mail. An outcome never goes backwards.
async fn change(
    tx: &mut Connection,
    mail: &mut MessageRecord,
    kind: DeliveryEventKind,
    recipient: Option<(&str, Option<&str>)>,
) -> store::Result<()> {
    let before = mail.outcome;
    let (outcome, default) = match kind {
        DeliveryEventKind::Delivered => (Some(MailOutcome::Delivered), None),
        DeliveryEventKind::Bounced { permanent: true } => (Some(MailOutcome::Bounced), Some("bounced")),
        DeliveryEventKind::Bounced { permanent: false } => (None, Some("bounced temporarily")),
        DeliveryEventKind::Complained => (Some(MailOutcome::Complained), Some("reported as spam")),
    };
    if let Some(outcome) = outcome {
        if outcome.predecessors().contains(&mail.outcome) {
            mail.outcome = outcome;
        } else if mail.outcome != outcome || default.is_none() {
            return Ok(());
        }
    }
    if let Some(default) = default {
        let added = recipient
            .map_or(default.to_owned(), |(address, detail)| format!("{address}: {}", detail.unwrap_or(default)));
        let detail = mail.detail.iter().map(String::as_str).chain([&*added]).collect::<Vec<_>>().join("; ");
        mail.detail = Some(one_line(&detail, MAX_DETAIL_CHARS));
    }
    tx.message_set_outcome(mail.id, &[before], mail.outcome, mail.detail.as_deref()).await
}
