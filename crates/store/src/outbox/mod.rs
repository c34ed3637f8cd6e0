//! The outbox: side effects outside Postgres, such as mails. The transaction that causes an effect writes it as a
//! message, which is delivered after the commit and then removed.
//!
//! [`Store::enqueue`] writes a message in the caller's transaction; a rollback discards it. An outbox worker
//! ([`Store::spawn_outbox_worker`]) claims the due messages of its topic in one statement, which moves their due time
//! to the end of a lease, and renews the lease during a delivery. So no transaction and no row lock is open during a
//! delivery, and the messages of a killed process are due again when their lease ends.
//!
//! **At least once.** If a process dies after a delivery and before it records the delivery, the message is delivered
//! again after the lease: one duplicate for each such crash. The same happens if, at that point, a process cannot reach
//! Postgres for the rest of its lease while another process can. [`Message::id`] is the same in every attempt, so
//! receivers can recognise a duplicate. Derive the key of the effect at the receiver from this id, such as a mail's
//! `Message-ID` or an idempotency key.
//!
//! **Fenced.** A claim increments the attempt number. The result of an attempt is written only while its number is the
//! latest. So a stale worker changes nothing, and neither does a worker whose message was withdrawn.
//!
//! **Fair.** The organizations of a topic take turns ([`Store::enqueue_for`]). A claim considers at most 64 of them, and
//! begins after the last organization that the worker has served. It prefers the organizations with the fewest
//! deliveries in progress in its process. A topic can limit the deliveries of an organization
//! ([`OutboxHandler::max_concurrency_per_tenant`]).
//!
//! Payloads are sealed, since they may contain a token. Topics and keys are not.

mod delivery;
mod metrics;
mod operator;
mod queue;
mod worker;

use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{OrgId, Time, error_chain};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use crate::pool::OUTBOX_CHANNEL;
use crate::schema::outbox;
use crate::{Connection, Error, Result, SealedColumn, Store, notify};

pub(crate) use delivery::sanitize;
pub use operator::{Filter, QueuedMessage, Retry};
pub use queue::Counts;
pub use worker::{LEASE, OutboxWorker};

/// The column of the payloads.
pub(crate) const PAYLOAD: SealedColumn =
    SealedColumn { table: "store.outbox", column: "payload", row_key: &[("id", "uuid")] };

/// An outbox message.
#[derive(Clone, PartialEq)]
pub struct Message {
    /// The same in every attempt, so that the receiver can recognise a duplicate.
    pub id: Uuid,
    /// The object that the message is about, such as an invite's id.
    pub key: String,
    /// The enqueued value.
    pub payload: Value,
    /// The number of this attempt, from 1.
    pub attempts: i32,
    /// The time at which the message was enqueued.
    pub created_at: Time,
    /// The time of the first failed attempt, since it was enqueued or since the retry of a dead letter.
    pub failing_since: Option<Time>,
    /// The receiver's response, which [`OutboxHandler::deliver`] can set for [`OutboxHandler::on_delivered`].
    pub response: OnceLock<Value>,
}

/// A delivery error. Operators read the text, and it is stored unsealed, so it must not contain a secret or a contact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// Another attempt may succeed: the receiver is unreachable, slow or busy.
    #[error("{0}")]
    Transient(String),
    /// No attempt will succeed: the receiver rejected the message.
    #[error("{0}")]
    Permanent(String),
}

impl DeliveryError {
    /// Returns a transient error with the text of an error and its causes.
    #[must_use]
    pub fn transient(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::Transient(error_chain(error).to_string())
    }
}

/// Delivers the messages of one topic.
#[async_trait]
pub trait OutboxHandler: Send + Sync {
    /// Returns the topic.
    fn topic(&self) -> &'static str;

    /// Returns the number of messages that one process delivers concurrently.
    fn max_concurrency(&self) -> usize {
        8
    }

    /// Returns the number of messages of one organization that one process delivers concurrently. By default, it can be
    /// [`Self::max_concurrency`]: if one organization has all deliveries, the next message of another one waits until one
    /// of them ends.
    fn max_concurrency_per_tenant(&self) -> usize {
        usize::MAX
    }

    /// Returns the timeout of a delivery.
    fn timeout(&self) -> Duration {
        delivery::DEFAULT_TIMEOUT
    }

    /// Delivers a message, outside any transaction, within [`Self::timeout`]. A timeout counts as
    /// [`DeliveryError::Transient`].
    ///
    /// # Errors
    /// Returns an error if the message was not delivered, as far as the handler knows.
    async fn deliver(&self, message: &Message) -> std::result::Result<(), DeliveryError>;

    /// Records the delivery in the transaction that removes the message. The transaction may roll back and run again,
    /// and it rolls back if the message was withdrawn. So this method must only write to `tx`, and must succeed even if
    /// the rows that it would update no longer exist.
    ///
    /// # Errors
    /// After an [`Error::Unavailable`], the worker calls the method again until shortly before the lease ends. After
    /// that, and after any other error, the message becomes a dead letter and is not delivered again automatically.
    async fn on_delivered(&self, _: &mut Connection, _: &Message, _: Time) -> Result<()> {
        Ok(())
    }

    /// Records, in the transaction that makes the message a dead letter, that the message was not delivered: because
    /// its receiver rejected it, or because the retry period is over. Nothing else ends the work of which the message
    /// is a part. If an operator retries the dead letter, [`Self::deliver`] gets the message again. It must then not
    /// deliver a message whose effect this method has given up.
    ///
    /// Not called for a message whose payload cannot be opened, because no delivery was attempted, and not for one that
    /// was delivered. The rules of [`Self::on_delivered`] apply.
    ///
    /// # Errors
    /// After an [`Error::Unavailable`], the worker calls the method again until shortly before the lease ends, and then
    /// again after another attempt to deliver the message. After any other error, the message becomes a dead letter
    /// without the writes of this method.
    async fn on_dead_letter(&self, _: &mut Connection, _: &Message, _: Time) -> Result<()> {
        Ok(())
    }
}

impl Message {
    /// Parses the payload as the enqueued type.
    ///
    /// # Errors
    /// Returns [`DeliveryError::Permanent`] for a payload of another type. The error omits serde's message, which may
    /// quote the payload.
    pub fn parse<T: DeserializeOwned>(&self) -> std::result::Result<T, DeliveryError> {
        T::deserialize(&self.payload)
            .map_err(|_| DeliveryError::Permanent("the payload does not have the topic's type".to_owned()))
    }

    /// Like [`Self::parse`], for [`OutboxHandler::on_delivered`] and [`OutboxHandler::on_dead_letter`].
    ///
    /// # Errors
    /// Returns [`Error::Inconsistent`] for a payload of another type.
    pub fn parse_delivered<T: DeserializeOwned>(&self) -> Result<T> {
        self.parse().map_err(|error| Error::inconsistent(format!("{error:?}")))
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id)
            .field("key", &self.key)
            .field("attempts", &self.attempts)
            .field("created_at", &self.created_at)
            .finish_non_exhaustive()
    }
}

#[derive(Insertable)]
#[diesel(table_name = outbox)]
struct NewRow<'a> {
    id: Uuid,
    topic: &'a str,
    tenant_id: Uuid,
    key: &'a str,
    payload: Vec<u8>,
    key_id: String,
    attempts: i32,
    next_attempt_at: Time,
    created_at: Time,
}

impl Store {
    /// Enqueues a message, which is delivered only if the transaction commits. `key` names the object that the message
    /// is about, such as an invite's id. [`withdraw`] finds messages by their key, and operators see it.
    ///
    /// # Errors
    /// Returns an error if Postgres fails, no sealing key is configured, or the payload cannot be serialised as JSON.
    pub async fn enqueue(
        &self,
        tx: &mut Connection,
        topic: &str,
        key: &str,
        payload: &(impl Serialize + Sync),
    ) -> Result<()> {
        self.insert(tx, topic, Uuid::nil(), key, payload, None).await
    }

    /// Enqueues a message of an organization. The organizations of a topic take turns, so that one with many messages does
    /// not delay the others. See [`Store::enqueue`].
    ///
    /// # Errors
    /// Returns the errors of [`Store::enqueue`].
    pub async fn enqueue_for(
        &self,
        tx: &mut Connection,
        topic: &str,
        org: OrgId,
        key: &str,
        payload: &(impl Serialize + Sync),
    ) -> Result<()> {
        self.insert(tx, topic, org.as_uuid(), key, payload, None).await
    }

    /// Enqueues a message of an organization that is due at `due`, or immediately if `due` is in the past. Add delays to
    /// [`Store::corrected_now`]. See [`Store::enqueue_for`].
    ///
    /// # Errors
    /// Returns the errors of [`Store::enqueue`].
    pub async fn enqueue_for_at(
        &self,
        tx: &mut Connection,
        topic: &str,
        org: OrgId,
        key: &str,
        payload: &(impl Serialize + Sync),
        due: Time,
    ) -> Result<()> {
        self.insert(tx, topic, org.as_uuid(), key, payload, Some(due)).await
    }

    async fn insert(
        &self,
        tx: &mut Connection,
        topic: &str,
        tenant_id: Uuid,
        key: &str,
        payload: &(impl Serialize + Sync),
        due: Option<Time>,
    ) -> Result<()> {
        // Corrected, because other processes deliver the messages of one whose clock is wrong.
        let now = self.corrected_now(tx).await?;
        let next_attempt_at = due.map_or(now, |due| due.max(now));
        let id: Uuid = self.clock_rng().id_at(now);
        let payload = serde_json::to_vec(payload).map_err(Error::inconsistent)?;
        let sealed = self.seal(PAYLOAD.associated_data(&id.to_string()), &payload)?;
        let row = NewRow {
            id,
            topic,
            tenant_id,
            key,
            payload: sealed.bytes,
            key_id: sealed.key_id,
            attempts: 0,
            next_attempt_at,
            created_at: now,
        };
        diesel::insert_into(outbox::table).values(row).execute(tx).await?;
        notify(tx, OUTBOX_CHANNEL, topic).await
    }
}

/// Deletes all messages about `key`, including dead letters, and returns their number. A delivery in progress may still
/// arrive, but is not recorded.
pub async fn withdraw(tx: &mut Connection, topic: &str, key: &str) -> Result<u64> {
    let queued = outbox::table.filter(outbox::topic.eq(topic)).filter(outbox::key.eq(key));
    Ok(diesel::delete(queued).execute(tx).await? as u64)
}

/// Like [`withdraw`], but only deletes messages that no worker has ever claimed. So no deleted message was or will be
/// delivered.
pub async fn withdraw_unattempted(tx: &mut Connection, topic: &str, key: &str) -> Result<u64> {
    let queued = outbox::table.filter(outbox::topic.eq(topic)).filter(outbox::key.eq(key));
    Ok(diesel::delete(queued.filter(outbox::attempts.eq(0))).execute(tx).await? as u64)
}

/// Like [`withdraw`], but only deletes dead letters.
pub async fn withdraw_dead_letters(tx: &mut Connection, topic: &str, key: &str) -> Result<u64> {
    let queued = outbox::table.filter(outbox::topic.eq(topic)).filter(outbox::key.eq(key));
    Ok(diesel::delete(queued.filter(outbox::dead_lettered_at.is_not_null())).execute(tx).await? as u64)
}
