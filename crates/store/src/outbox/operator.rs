//! Operator commands: list, retry and drop messages. Payloads stay sealed.

use diesel::prelude::*;
use diesel::sql_types::{Array, Bool, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use kernel::Time;
use kernel::audit::{Actor, Event};
use serde_json::json;
use uuid::Uuid;

use crate::pool::OUTBOX_CHANNEL;
use crate::schema::outbox;
use crate::{BATCH_SIZE, Connection, Error, Outcome, Result, Store, is_full_batch, notify};

/// A message in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = outbox)]
pub struct QueuedMessage {
    /// The message's id.
    pub id: Uuid,
    /// The topic, which selects the handler.
    pub topic: String,
    /// The object that the message is about.
    pub key: String,
    /// The number of started attempts.
    pub attempts: i32,
    /// The time at which the next attempt is due. During an attempt, the end of its lease.
    pub next_attempt_at: Time,
    /// The reason why the last attempt failed.
    pub last_error: Option<String>,
    /// The time at which the message became a dead letter.
    pub dead_lettered_at: Option<Time>,
    /// The time at which the message was enqueued.
    pub created_at: Time,
}

/// Selects the messages to list.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Whether to select only dead letters.
    pub dead: bool,
    /// If set, selects only messages of this topic.
    pub topic: Option<String>,
}

/// Selects the dead letters to retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The message with this id.
    One(Uuid),
    /// All dead letters.
    All,
}

impl Filter {
    /// The maximum length of a list.
    pub const MAX_MESSAGES: i64 = BATCH_SIZE;
}

const RETRY: &str = "UPDATE store.outbox SET dead_lettered_at = NULL, next_attempt_at = $2, failing_since = NULL \
    WHERE id = ANY ($1) AND dead_lettered_at IS NOT NULL";

const DROP: &str = "DELETE FROM store.outbox \
    WHERE id = ANY ($1) AND (dead_lettered_at IS NOT NULL OR NOT $2) RETURNING key";

#[derive(QueryableByName)]
struct Dropped {
    #[diesel(sql_type = Text)]
    key: String,
}

impl Store {
    /// Lists the oldest messages, up to [`Filter::MAX_MESSAGES`].
    pub async fn outbox_list(&self, filter: &Filter) -> Result<Vec<QueuedMessage>> {
        self.list_after(filter, Uuid::nil()).await
    }

    /// Makes dead letters due again, with a new retry period, and returns their number. Messages that are not dead
    /// letters do not count, because they are retried anyway. After an error, some of them may be due.
    pub async fn outbox_retry(&self, actor: &Actor, which: Retry) -> Result<usize> {
        match which {
            Retry::One(id) => self.retry_batch(actor, &[id], &id.to_string()).await,
            Retry::All => {
                let dead = Filter { dead: true, topic: None };
                self.in_batches(&dead, async |ids: &[Uuid]| self.retry_batch(actor, ids, "dead").await).await
            }
        }
    }

    /// Deletes a message and returns whether it existed. A delivery in progress may still arrive.
    pub async fn outbox_drop(&self, actor: &Actor, id: Uuid) -> Result<bool> {
        let work = async |tx: &mut Connection| {
            let one = diesel::delete(outbox::table.find(id)).returning((outbox::topic, outbox::key));
            let Some((topic, key)) = one.get_result::<(String, String)>(tx).await.optional()? else {
                return Ok::<_, Error>(Outcome::Unchanged(false));
            };
            let data = json!({ "topic": topic, "key": key });
            Ok(Outcome::Changed(true, Event::of_platform("outbox.drop", id, data)))
        };
        self.transaction(actor, work).await
    }

    /// Deletes all messages of a topic, or only its dead letters, and returns their number. After an error, some of them
    /// may be deleted.
    pub async fn outbox_drop_topic(&self, actor: &Actor, topic: &str, dead: bool) -> Result<usize> {
        let filter = Filter { dead, topic: Some(topic.to_owned()) };
        self.in_batches(&filter, async |ids: &[Uuid]| self.drop_batch(actor, (topic, dead), ids).await).await
    }

    async fn list_after(&self, filter: &Filter, after: Uuid) -> Result<Vec<QueuedMessage>> {
        let mut query =
            outbox::table.select(QueuedMessage::as_select()).order(outbox::id).limit(Filter::MAX_MESSAGES).into_boxed();
        query = query.filter(outbox::id.gt(after));
        if filter.dead {
            query = query.filter(outbox::dead_lettered_at.is_not_null());
        }
        if let Some(topic) = &filter.topic {
            query = query.filter(outbox::topic.eq(topic));
        }
        Ok(query.load(&mut *self.connection().await?).await?)
    }

    /// Changes the selected messages in batches, and returns the number of changed ones. One statement for all of them
    /// could exceed its timeout. Each batch begins after the last message of the previous one, so a message that becomes a
    /// dead letter again is not changed twice.
    async fn in_batches(&self, filter: &Filter, change: impl AsyncFn(&[Uuid]) -> Result<usize>) -> Result<usize> {
        let (mut changed, mut after) = (0, Uuid::nil());
        loop {
            let batch = self.list_after(filter, after).await?;
            let ids: Vec<Uuid> = batch.iter().map(|message| message.id).collect();
            changed += change(&ids).await?;
            match ids.last() {
                Some(last) if is_full_batch(ids.len()) => after = *last,
                _ => return Ok(changed),
            }
        }
    }

    async fn retry_batch(&self, actor: &Actor, ids: &[Uuid], target: &str) -> Result<usize> {
        let work = async |tx: &mut Connection| {
            let retry =
                diesel::sql_query(RETRY).bind::<Array<SqlUuid>, _>(ids).bind::<Timestamptz, _>(self.clock_rng().now());
            let retried = retry.execute(tx).await?;
            if retried == 0 {
                return Ok::<_, Error>(Outcome::Unchanged(0));
            }
            notify(tx, OUTBOX_CHANNEL, "").await?;
            let event = Event::of_platform("outbox.retry", target, json!({ "messages": retried }));
            Ok(Outcome::Changed(retried, event))
        };
        self.transaction(actor, work).await
    }

    async fn drop_batch(&self, actor: &Actor, (topic, dead): (&str, bool), ids: &[Uuid]) -> Result<usize> {
        let work = async |tx: &mut Connection| {
            let delete = diesel::sql_query(DROP).bind::<Array<SqlUuid>, _>(ids).bind::<Bool, _>(dead);
            let dropped: Vec<Dropped> = delete.load(tx).await?;
            let keys: Vec<String> = dropped.into_iter().map(|message| message.key).collect();
            if keys.is_empty() {
                return Ok::<_, Error>(Outcome::Unchanged(0));
            }
            let event = Event::of_platform("outbox.drop", topic, json!({ "topic": topic, "keys": keys }));
            Ok(Outcome::Changed(keys.len(), event))
        };
        self.transaction(actor, work).await
    }
}
