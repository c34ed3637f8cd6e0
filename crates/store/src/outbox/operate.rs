//! An operator's look at the outbox, and the two things to be done about a message. Payloads stay sealed.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::Time;
use kernel::audit::{Actor, Event};
use serde_json::json;
use uuid::Uuid;

use super::PATIENCE;
use crate::pool::OUTBOX_CHANNEL;
use crate::schema::outbox;
use crate::{Cached, Connection, Error, Outcome, Result, Store, notify};

/// A message as it stands in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = outbox)]
pub struct Letter {
    /// The message's id.
    pub id: Uuid,
    /// Who delivers it.
    pub topic: String,
    /// What it is about.
    pub key: String,
    /// How often delivering it was begun.
    pub attempts: i32,
    /// When it is next taken; while it is being delivered, when that is taken to have failed.
    pub due_at: Time,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// Since when it is given up.
    pub dead_at: Option<Time>,
    /// When it was enqueued.
    pub created_at: Time,
}

/// Which messages to list.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Those alone that were given up.
    pub dead: bool,
    /// Those alone of this topic.
    pub topic: Option<String>,
}

/// Which dead messages to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// This one.
    One(Uuid),
    /// All there are.
    All,
}

impl Filter {
    /// A list holds the oldest so many.
    pub const LIMIT: i64 = 1000;
}

impl Store {
    /// What is queued, oldest first, up to [`Filter::LIMIT`].
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn outbox_list(&self, filter: &Filter) -> Result<Vec<Letter>> {
        let mut query = outbox::table.select(Letter::as_select()).order(outbox::id).limit(Filter::LIMIT).into_boxed();
        if filter.dead {
            query = query.filter(outbox::dead_at.is_not_null());
        }
        if let Some(topic) = &filter.topic {
            query = query.filter(outbox::topic.eq(topic));
        }
        Ok(query.load(&mut *self.connection().await?).await?)
    }

    /// Has what was given up tried again, now and for as long as a new message. Answers how many there were; what is not
    /// dead is tried again by itself, and is none.
    ///
    /// # Errors
    /// When Postgres does not take it.
    pub async fn outbox_retry(&self, actor: &Actor, which: Retry) -> Result<usize> {
        let work = async |tx: &mut Connection| {
            let now = self.world().now();
            let change = (
                outbox::dead_at.eq(None::<Time>),
                outbox::due_at.eq(now),
                outbox::give_up_at.eq(now.plus_seconds(PATIENCE)),
            );
            let dead = outbox::table.filter(outbox::dead_at.is_not_null());
            let (retried, target) = match which {
                Retry::One(id) => {
                    let one = diesel::update(dead.filter(outbox::id.eq(id))).set(change);
                    (Cached(one).execute(tx).await?, id.to_string())
                }
                Retry::All => (Cached(diesel::update(dead).set(change)).execute(tx).await?, "dead".to_owned()),
            };
            if retried == 0 {
                return Ok::<_, Error>(Outcome::Unchanged(0));
            }
            notify(tx, OUTBOX_CHANNEL, "").await?;
            let event = Event { name: "outbox.retry", org: None, target, data: json!({ "messages": retried }) };
            Ok(Outcome::Changed(retried, event))
        };
        self.transaction(actor, work).await
    }

    /// Removes a message, dead or not; what is being delivered at this moment may still arrive. Answers whether it was
    /// there.
    ///
    /// # Errors
    /// When Postgres does not take it.
    pub async fn outbox_drop(&self, actor: &Actor, id: Uuid) -> Result<bool> {
        let work = async |tx: &mut Connection| {
            let one = diesel::delete(outbox::table.find(id)).returning((outbox::topic, outbox::key));
            let Some((topic, key)) = one.get_result::<(String, String)>(tx).await.optional()? else {
                return Ok::<_, Error>(Outcome::Unchanged(false));
            };
            let data = json!({ "topic": topic, "key": key });
            Ok(Outcome::Changed(true, Event { name: "outbox.drop", org: None, target: id.to_string(), data }))
        };
        self.transaction(actor, work).await
    }
}
