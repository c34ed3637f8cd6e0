//! Effects outside Postgres, such as a mail: rows of the commit that causes them, delivered after it, then removed.
//!
//! [`Store::enqueue`] writes a message in the caller's transaction: rolled back, it was never there. A pass
//! ([`Store::deliver`]) takes what is due of its topic in one statement, which moves the row's due time to the end of a
//! lease; so neither a transaction nor a row lock is held while the world is spoken to, and what a killed process had
//! taken is due again once the lease is over.
//!
//! **At least once.** A process that dies between delivering a message and noting that it did delivers it again after
//! the lease: one duplicate for each such death. So does one that is cut off from Postgres at that point for the rest
//! of its lease, where another process is not. Receivers tell a duplicate by [`Message::id`], which is the same each
//! time: make from it what the receiver knows the effect by, such as a mail's `Message-ID` or an idempotency key.
//!
//! **Fenced.** Taking a message counts an attempt, and whatever becomes of that attempt is written only while it is the
//! newest: a straggler changes nothing. Nor does it once the message was withdrawn.
//!
//! Payloads are sealed, since they may hold a token; topics and keys are not.

mod delivery;
mod operate;
mod pass;
mod queue;

use async_trait::async_trait;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::Time;
use kernel::seal::Place;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use crate::pool::OUTBOX_CHANNEL;
use crate::schema::outbox;
use crate::{Connection, Error, Result, Store, notify};

pub use operate::{Filter, Letter, Retry};
pub use pass::Pass;

/// How long a message may go undelivered before it is given up, in seconds.
const PATIENCE: i64 = 72 * 3600;

/// What is to be delivered.
#[derive(Clone, PartialEq)]
pub struct Message {
    /// The same at every attempt: what a duplicate is recognised by.
    pub id: Uuid,
    /// What it is about.
    pub key: String,
    /// What was enqueued.
    pub payload: Value,
    /// How often delivering it was begun, this time included.
    pub attempts: i32,
    /// When it was enqueued.
    pub created_at: Time,
}

/// Why a message was not delivered. Operators read the text, and it is stored unsealed: no secret and no contact in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Undelivered {
    /// Another attempt may succeed: the receiver is away, slow, busy.
    #[error("{0}")]
    Later(String),
    /// No attempt will succeed: the receiver refused it.
    #[error("{0}")]
    Never(String),
}

/// What delivers the messages of one topic.
#[async_trait]
pub trait Deliver: Send + Sync {
    /// The topic.
    fn topic(&self) -> &'static str;

    /// How many messages one process delivers at once.
    fn at_once(&self) -> usize {
        8
    }

    /// Delivers a message, outside any transaction. Cut off after 45 seconds, which counts as [`Undelivered::Later`].
    ///
    /// # Errors
    /// When it was not delivered, as far as one can tell.
    async fn deliver(&self, message: &Message) -> std::result::Result<(), Undelivered>;

    /// Notes that the message was delivered, in the transaction that removes it: both or neither. May be called again
    /// after it was rolled back, and is rolled back when the message turns out to be withdrawn; so it does nothing but
    /// write to `tx`, and whatever it would write to may be gone.
    ///
    /// # Errors
    /// When Postgres does not take it. It is tried again while Postgres is away; other failures bury the message, which
    /// is not delivered again.
    async fn delivered(&self, tx: &mut Connection, message: &Message, at: Time) -> Result<()>;
}

impl Message {
    /// The payload as the type that was enqueued.
    ///
    /// # Errors
    /// [`Undelivered::Never`] when it is none. Says no more than that: what serde says may quote the payload.
    pub fn parse<T: DeserializeOwned>(&self) -> std::result::Result<T, Undelivered> {
        T::deserialize(&self.payload)
            .map_err(|_| Undelivered::Never("the payload is not of the topic's type".to_owned()))
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
    key: &'a str,
    payload: Vec<u8>,
    key_id: String,
    attempts: i32,
    due_at: Time,
    give_up_at: Time,
    created_at: Time,
}

impl Store {
    /// Has a message delivered when, and if, the transaction commits. `key` says what it is about, such as an invite's
    /// id: what [`withdraw`] finds it by, and what operators see.
    ///
    /// # Errors
    /// When Postgres does not take it, there is no key to seal it with, or the payload has no JSON.
    pub async fn enqueue(
        &self,
        tx: &mut Connection,
        topic: &str,
        key: &str,
        payload: &(impl Serialize + Sync),
    ) -> Result<()> {
        let now = self.world().now();
        let id: Uuid = self.world().id_at(now);
        let payload = serde_json::to_vec(payload).map_err(Error::inconsistent)?;
        let sealed = self.seal(place(&id.to_string()), &payload)?;
        let row = NewRow {
            id,
            topic,
            key,
            payload: sealed.bytes,
            key_id: sealed.key_id,
            attempts: 0,
            due_at: now,
            give_up_at: now.plus_seconds(PATIENCE),
            created_at: now,
        };
        diesel::insert_into(outbox::table).values(row).execute(tx).await?;
        notify(tx, OUTBOX_CHANNEL, topic).await
    }
}

/// Drops whatever is queued about `key`, dead or alive. What is being delivered at this moment may still arrive, and
/// nothing will be noted of it. Answers how many there were.
///
/// # Errors
/// When Postgres does not take the statement.
pub async fn withdraw(tx: &mut Connection, topic: &str, key: &str) -> Result<u64> {
    let queued = outbox::table.filter(outbox::topic.eq(topic)).filter(outbox::key.eq(key));
    Ok(diesel::delete(queued).execute(tx).await? as u64)
}

/// Where a payload is sealed for.
fn place(row: &str) -> Place<'_> {
    Place { table: "store.outbox", row, field: "payload" }
}
