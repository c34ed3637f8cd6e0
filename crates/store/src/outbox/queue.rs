//! The statements of a pass.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text, Timestamptz};
use diesel_async::RunQueryDsl;
use kernel::Time;
use kernel::seal::Sealed;
use uuid::Uuid;

use super::{Message, place};
use crate::schema::outbox;
use crate::{Cached, Connection, Result, Store};

/// A row that was taken for delivery.
#[derive(QueryableByName)]
#[diesel(table_name = outbox)]
pub(super) struct Taken {
    id: Uuid,
    key: String,
    payload: Vec<u8>,
    key_id: String,
    attempts: i32,
    created_at: Time,
    give_up_at: Time,
}

/// One attempt at a row: what becomes of it is written while it is the newest attempt, and the row is there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) id: Uuid,
    pub(super) number: i32,
    pub(super) give_up_at: Time,
}

#[derive(Debug, Clone, Copy, QueryableByName)]
pub(super) struct Counts {
    #[diesel(sql_type = BigInt)]
    pub(super) waiting: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) dead: i64,
}

// An array, and not `IN (SELECT …)`: that may be run for each row of the outer table, and then takes more than `LIMIT`.
const TAKE: &str = "UPDATE store.outbox SET attempts = attempts + 1, due_at = $1 WHERE id = ANY (ARRAY(
         SELECT id FROM store.outbox WHERE topic = $2 AND dead_at IS NULL AND due_at <= $3
         ORDER BY due_at, id LIMIT $4 FOR UPDATE SKIP LOCKED))
     RETURNING id, key, payload, key_id, attempts, created_at, give_up_at";

const COUNT: &str = "SELECT count(*) FILTER (WHERE dead_at IS NULL) AS waiting,
         count(*) FILTER (WHERE dead_at IS NOT NULL) AS dead
     FROM store.outbox WHERE topic = $1";

/// Takes up to `limit` messages that are due; nobody else is given them until `until`.
pub(super) async fn take(
    connection: &mut Connection,
    topic: &str,
    limit: usize,
    now: Time,
    until: Time,
) -> Result<Vec<Taken>> {
    let query = diesel::sql_query(TAKE)
        .bind::<Timestamptz, _>(until)
        .bind::<Text, _>(topic)
        .bind::<Timestamptz, _>(now)
        .bind::<BigInt, _>(i64::try_from(limit).unwrap_or(i64::MAX));
    Ok(Cached(query).load(connection).await?)
}

pub(super) async fn count(connection: &mut Connection, topic: &str) -> Result<Counts> {
    Ok(Cached(diesel::sql_query(COUNT).bind::<Text, _>(topic)).get_result(connection).await?)
}

impl Taken {
    pub(super) fn attempt(&self) -> Attempt {
        Attempt { id: self.id, number: self.attempts, give_up_at: self.give_up_at }
    }

    /// The message, or why it cannot be read.
    pub(super) fn open(self, store: &Store) -> std::result::Result<Message, String> {
        let sealed = Sealed { key_id: self.key_id, bytes: self.payload };
        let opened = store.keys().open(place(&self.id.to_string()), &sealed);
        let payload = opened.map_err(|error| format!("the payload: {error}"))?;
        let payload = serde_json::from_slice(&payload).map_err(|_| "the payload is no JSON".to_owned())?;
        let Self { id, key, attempts, created_at, .. } = self;
        Ok(Message { id, key, payload, attempts, created_at })
    }
}

/// The row of an attempt, as a filter.
macro_rules! newest {
    ($attempt:expr) => {
        outbox::table
            .filter(outbox::id.eq($attempt.id))
            .filter(outbox::attempts.eq($attempt.number))
            .filter(outbox::dead_at.is_null())
    };
}

/// Each answers whether the attempt was still the newest; otherwise nothing was written.
impl Attempt {
    pub(super) async fn remove(self, connection: &mut Connection) -> Result<bool> {
        Ok(diesel::delete(newest!(self)).execute(connection).await? == 1)
    }

    pub(super) async fn postpone(self, connection: &mut Connection, due_at: Time, reason: &str) -> Result<bool> {
        let change = (outbox::due_at.eq(due_at), outbox::last_error.eq(reason));
        Ok(Cached(diesel::update(newest!(self)).set(change)).execute(connection).await? == 1)
    }

    pub(super) async fn bury(self, connection: &mut Connection, at: Time, reason: &str) -> Result<bool> {
        let change = (outbox::dead_at.eq(at), outbox::last_error.eq(reason));
        Ok(Cached(diesel::update(newest!(self)).set(change)).execute(connection).await? == 1)
    }
}
