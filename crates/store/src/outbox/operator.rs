//! Operator commands: list, retry and drop messages. Payloads stay sealed.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::Time;
use kernel::audit::{Actor, Event};
use serde_json::json;
use uuid::Uuid;

use crate::pool::OUTBOX_CHANNEL;
use crate::schema::outbox;
use crate::{Connection, Error, Outcome, Prepared, Result, Store, notify};

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
    pub const MAX_MESSAGES: i64 = 1000;
}

impl Store {
    /// Lists the oldest messages, up to [`Filter::MAX_MESSAGES`].
    pub async fn outbox_list(&self, filter: &Filter) -> Result<Vec<QueuedMessage>> {
        let mut query =
            outbox::table.select(QueuedMessage::as_select()).order(outbox::id).limit(Filter::MAX_MESSAGES).into_boxed();
        if filter.dead {
            query = query.filter(outbox::dead_lettered_at.is_not_null());
        }
        if let Some(topic) = &filter.topic {
            query = query.filter(outbox::topic.eq(topic));
        }
        Ok(query.load(&mut *self.connection().await?).await?)
    }

    /// Makes dead letters due again, with a new retry period, and returns their number. Messages that are not dead
    /// letters do not count, because they are retried anyway.
    pub async fn outbox_retry(&self, actor: &Actor, which: Retry) -> Result<usize> {
        let work = async |tx: &mut Connection| {
            let now = self.clock_rng().now();
            let change = (
                outbox::dead_lettered_at.eq(None::<Time>),
                outbox::next_attempt_at.eq(now),
                outbox::failing_since.eq(None::<Time>),
            );
            let dead = outbox::table.filter(outbox::dead_lettered_at.is_not_null());
            let (retried, target) = match which {
                Retry::One(id) => {
                    let one = diesel::update(dead.filter(outbox::id.eq(id))).set(change);
                    (Prepared(one).execute(tx).await?, id.to_string())
                }
                Retry::All => (Prepared(diesel::update(dead).set(change)).execute(tx).await?, "dead".to_owned()),
            };
            if retried == 0 {
                return Ok::<_, Error>(Outcome::Unchanged(0));
            }
            notify(tx, OUTBOX_CHANNEL, "").await?;
            let event = Event::of_platform("outbox.retry", target, json!({ "messages": retried }));
            Ok(Outcome::Changed(retried, event))
        };
        self.transaction(actor, work).await
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
}
