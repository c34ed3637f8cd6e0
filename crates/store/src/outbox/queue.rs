//! The statements of an outbox worker.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use kernel::Time;
use kernel::seal::Sealed;
use uuid::Uuid;

use super::delivery::RETRY_PERIOD_SECONDS;
use super::worker::LEASE;
use super::{Message, PAYLOAD};
use crate::schema::outbox;
use crate::{BATCH_SIZE, Connection, Prepared, Result, Store, is_full_batch};

/// A claimed message.
#[derive(QueryableByName)]
#[diesel(table_name = outbox)]
pub(super) struct ClaimedMessage {
    id: Uuid,
    pub(super) tenant_id: Uuid,
    key: String,
    payload: Vec<u8>,
    key_id: String,
    attempts: i32,
    created_at: Time,
    failing_since: Option<Time>,
}

/// A row of the result of a claim. If no message was claimed, there is one row without a message, so that the next claim
/// continues after `last_visited`.
#[derive(QueryableByName)]
struct ClaimRow {
    #[diesel(embed)]
    message: Option<ClaimedMessage>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    last_visited: Option<Uuid>,
}

/// An attempt to deliver a message. Its result is written only while it is the latest attempt and the row exists.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) id: Uuid,
    pub(super) number: i32,
    /// The time of the first failed attempt.
    pub(super) failing_since: Option<Time>,
}

/// The numbers of messages of a topic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, QueryableByName)]
pub struct Counts {
    /// The messages that are due, in delivery or waiting for a retry, without those that were enqueued for a later time.
    #[diesel(sql_type = BigInt)]
    pub pending: i64,
    /// The dead letters.
    #[diesel(sql_type = BigInt)]
    pub dead: i64,
}

#[derive(QueryableByName)]
struct TopicCounts {
    #[diesel(sql_type = Text)]
    topic: String,
    #[diesel(embed)]
    counts: Counts,
}

// Tenants take turns: a message comes after those of tenants with fewer deliveries in progress, however long it waits.
// Equal tenants follow each other in the order of their ids, so that tenants with old messages cannot delay the others.
//
// `newest` reads the due messages through the index by time, newest first, and none that are not due. If there are
// fewer than 65, their tenants are all tenants with due messages. Otherwise, one tenant may have all of them, so
// `visited` also skips through the other index from tenant to tenant. It begins after the tenant $6, and at the end of
// the index it continues with the first tenant, up to $6. It ends after 64 tenants with due messages, or after 100
// tenants. `last` is the highest tenant that may follow. The row with position 0 is only the start.
//
// A claim considers at most 64 tenants, so that its cost does not depend on their number. `due` has more messages than
// one claim needs, because concurrent claims may have locked some. A message is claimed only if its tenant then has at
// most $7 deliveries in progress. A tenant near its limit has no spare ones.
//
// Because of its collation, only `newest` can use the index by time. Without statistics, Postgres may otherwise use it
// for `visited`, and read all messages for each tenant.
//
// Selects the ids with an array. Postgres may run `IN (SELECT …)` for each row of the outer table, and would then claim
// more than `LIMIT`.
const CLAIM: &str = "WITH RECURSIVE newest AS (
         SELECT tenant_id FROM store.outbox
         WHERE topic COLLATE \"C\" = $2 AND dead_lettered_at IS NULL AND next_attempt_at <= $3
         ORDER BY next_attempt_at DESC LIMIT 65),
     visited AS (
         SELECT $6 AS tenant_id, false AS is_due, 0 AS position, 0 AS due,
             'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid AS last
         WHERE (SELECT count(*) FROM newest) = 65
         UNION ALL
         SELECT next.tenant_id, next.is_due, v.position + 1, v.due + next.is_due::int, next.last
         FROM visited v CROSS JOIN LATERAL (
             (SELECT tenant_id, next_attempt_at <= $3 AS is_due, v.last FROM store.outbox
                 WHERE topic = $2 AND dead_lettered_at IS NULL AND tenant_id > v.tenant_id AND tenant_id <= v.last
                 ORDER BY tenant_id, next_attempt_at LIMIT 1)
             UNION ALL
             (SELECT tenant_id, next_attempt_at <= $3, $6 FROM store.outbox
                 WHERE topic = $2 AND dead_lettered_at IS NULL AND tenant_id <= $6 AND v.last > $6
                 ORDER BY tenant_id, next_attempt_at LIMIT 1)
             LIMIT 1) next
         WHERE v.position < 100 AND v.due < 64),
     tenants AS (
         SELECT tenant_id FROM (
             SELECT tenant_id FROM newest UNION SELECT tenant_id FROM visited WHERE is_due) found
         ORDER BY tenant_id <= $6, tenant_id LIMIT 64),
     due AS (
         SELECT m.id, t.tenant_id, m.number + (SELECT count(*) FROM unnest($5) busy WHERE busy = t.tenant_id) AS turn
         FROM tenants t CROSS JOIN LATERAL (
             SELECT id, row_number() OVER (ORDER BY next_attempt_at, id) AS number FROM store.outbox
             WHERE topic = $2 AND tenant_id = t.tenant_id AND dead_lettered_at IS NULL AND next_attempt_at <= $3
             ORDER BY next_attempt_at, id LIMIT $4 + 56) m
         ORDER BY turn, t.tenant_id <= $6, t.tenant_id LIMIT $4 + 56),
     claimed AS (
         UPDATE store.outbox SET attempts = attempts + 1, next_attempt_at = $1 WHERE id = ANY (ARRAY(
             SELECT o.id FROM due JOIN store.outbox o ON o.id = due.id
             WHERE due.turn <= $7 AND o.dead_lettered_at IS NULL AND o.next_attempt_at <= $3
             ORDER BY due.turn, due.tenant_id <= $6, due.tenant_id LIMIT $4 FOR UPDATE OF o SKIP LOCKED))
         RETURNING id, tenant_id, key, payload, key_id, attempts, created_at, failing_since)
     SELECT claimed.*, search.last_visited
     FROM (SELECT (SELECT tenant_id FROM visited ORDER BY position DESC LIMIT 1) AS last_visited) search
         LEFT JOIN claimed ON true";

// A message without an attempt that is not due waits for its time, not for its receiver.
const COUNT: &str = "SELECT topic,
         count(*) FILTER (WHERE dead_lettered_at IS NULL AND (attempts > 0 OR next_attempt_at <= $1)) AS pending,
         count(*) FILTER (WHERE dead_lettered_at IS NOT NULL) AS dead
     FROM store.outbox GROUP BY topic";

const PURGE_UNATTEMPTED: &str = "DELETE FROM store.outbox WHERE id = ANY (ARRAY(
         SELECT id FROM store.outbox WHERE topic = $1 AND attempts = 0 AND next_attempt_at <= $2
         LIMIT $3 FOR UPDATE SKIP LOCKED))";

/// Claims up to `limit` due messages, with a lease that begins at `now`. No other worker can claim them before its end.
/// `busy` contains the tenant of each delivery in progress. With the claimed messages, no tenant has more than
/// `tenant_limit` deliveries in progress. The search for tenants begins after `last_tenant`. Also returns the tenant at
/// which this search ended, if it was necessary.
pub(super) async fn claim(
    connection: &mut Connection,
    topic: &str,
    limit: usize,
    tenant_limit: usize,
    busy: &[Uuid],
    last_tenant: Uuid,
    now: Time,
) -> Result<(Vec<ClaimedMessage>, Option<Uuid>)> {
    let query = diesel::sql_query(CLAIM)
        .bind::<Timestamptz, _>(now.plus_seconds(LEASE.as_secs().cast_signed()))
        .bind::<Text, _>(topic)
        .bind::<Timestamptz, _>(now)
        .bind::<BigInt, _>(i64::try_from(limit).unwrap_or(i64::MAX))
        .bind::<Array<SqlUuid>, _>(busy)
        .bind::<SqlUuid, _>(last_tenant)
        .bind::<BigInt, _>(i64::try_from(tenant_limit).unwrap_or(i64::MAX));
    // Planned for each claim: a cached plan from when the table was empty would read the whole table for each tenant.
    let rows: Vec<ClaimRow> = query.load(connection).await?;
    let last_visited = rows.iter().find_map(|row| row.last_visited);
    Ok((rows.into_iter().filter_map(|row| row.message).collect(), last_visited))
}

impl Store {
    /// Counts the messages of each topic that has some.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn outbox_counts(&self) -> Result<BTreeMap<String, Counts>> {
        let query = diesel::sql_query(COUNT).bind::<Timestamptz, _>(self.clock_rng().now());
        let topics: Vec<TopicCounts> = Prepared(query).load(&mut *self.connection().await?).await?;
        Ok(topics.into_iter().map(|TopicCounts { topic, counts }| (topic, counts)).collect())
    }

    /// Deletes the messages of a topic that no worker has claimed within the retry period after they were due. A server
    /// without a worker for the topic calls it, in case no other server has one.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn outbox_purge_unattempted(&self, topic: &str) -> Result<()> {
        let due = self.clock_rng().now().plus_seconds(-RETRY_PERIOD_SECONDS);
        loop {
            let purge = diesel::sql_query(PURGE_UNATTEMPTED)
                .bind::<Text, _>(topic)
                .bind::<Timestamptz, _>(due)
                .bind::<BigInt, _>(BATCH_SIZE);
            if !is_full_batch(Prepared(purge).execute(&mut *self.connection().await?).await?) {
                return Ok(());
            }
        }
    }
}

impl ClaimedMessage {
    pub(super) fn attempt(&self) -> Attempt {
        Attempt { id: self.id, number: self.attempts, failing_since: self.failing_since }
    }

    /// Opens the message, or returns why it cannot be read.
    pub(super) fn open(self, store: &Store) -> std::result::Result<Message, String> {
        let sealed = Sealed { key_id: self.key_id, bytes: self.payload };
        let opened = store.keys().open(PAYLOAD.associated_data(&self.id.to_string()), &sealed);
        let payload = opened.map_err(|error| format!("cannot open the payload: {error}"))?;
        let payload = serde_json::from_slice(&payload).map_err(|_| "the payload is not JSON".to_owned())?;
        let Self { id, key, attempts, created_at, failing_since, .. } = self;
        Ok(Message { id, key, payload, attempts, created_at, failing_since, response: OnceLock::new() })
    }
}

/// Builds the filter for the row of an attempt that is still the latest.
macro_rules! latest {
    ($attempt:expr) => {
        outbox::table
            .filter(outbox::id.eq($attempt.id))
            .filter(outbox::attempts.eq($attempt.number))
            .filter(outbox::dead_lettered_at.is_null())
    };
}

/// Each method returns whether the attempt was still the latest. If not, it wrote nothing.
impl Attempt {
    /// Extends the lease.
    pub(super) async fn renew(self, connection: &mut Connection, until: Time) -> Result<bool> {
        let change = outbox::next_attempt_at.eq(until);
        Ok(Prepared(diesel::update(latest!(self)).set(change)).execute(connection).await? == 1)
    }

    pub(super) async fn remove(self, connection: &mut Connection) -> Result<bool> {
        Ok(diesel::delete(latest!(self)).execute(connection).await? == 1)
    }

    pub(super) async fn schedule_retry(
        self,
        connection: &mut Connection,
        failed_at: Time,
        next_attempt_at: Time,
        reason: &str,
    ) -> Result<bool> {
        let failing_since = self.failing_since.unwrap_or(failed_at);
        let change = (
            outbox::failing_since.eq(failing_since),
            outbox::next_attempt_at.eq(next_attempt_at),
            outbox::last_error.eq(reason),
        );
        Ok(Prepared(diesel::update(latest!(self)).set(change)).execute(connection).await? == 1)
    }

    pub(super) async fn dead_letter(self, connection: &mut Connection, at: Time, reason: &str) -> Result<bool> {
        let change = (outbox::dead_lettered_at.eq(at), outbox::last_error.eq(reason));
        Ok(Prepared(diesel::update(latest!(self)).set(change)).execute(connection).await? == 1)
    }
}
