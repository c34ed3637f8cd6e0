//! The statements of sagas.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use kernel::{OrgId, Time, UserId};
use serde_json::Value;
use uuid::Uuid;

use super::{NewSaga, Saga, SagaState, Step, StepState};
use crate::schema::{saga_steps, sagas};
use crate::{Connection, Prepared, Result};

/// The lease of a runner, in seconds: longer than the timeout of a step.
pub(super) const LEASE_SECONDS: i64 = 15;

/// The time after which an unfinished saga counts as stuck, in seconds.
const STUCK_SECONDS: i64 = 3600;

#[derive(Insertable)]
#[diesel(table_name = sagas)]
struct NewRow<'a> {
    id: Uuid,
    kind: &'a str,
    key: &'a str,
    org_id: OrgId,
    user_id: Option<UserId>,
    input: &'a Value,
    state: SagaState,
    attempts: i32,
    next_attempt_at: Time,
    lease: i32,
    is_abandoned: bool,
    created_at: Time,
}

#[derive(QueryableByName)]
#[diesel(table_name = sagas)]
struct ClaimedRow {
    id: Uuid,
    key: String,
    org_id: OrgId,
    user_id: Option<UserId>,
    input: Value,
    attempts: i32,
    lease: i32,
    refusal: Option<Value>,
    is_abandoned: bool,
    created_at: Time,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = saga_steps)]
struct StepRow {
    name: String,
    key: String,
    state: StepState,
    attempts: i32,
    response: Option<Value>,
    unanswered_at: Option<Time>,
}

/// The progress of a saga.
#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = sagas)]
pub(super) struct Progress {
    pub(super) state: SagaState,
    pub(super) step: Option<String>,
    pub(super) lease_until: Option<Time>,
    pub(super) refusal: Option<Value>,
}

#[derive(Debug, Clone, Copy, QueryableByName)]
pub(super) struct Counts {
    #[diesel(sql_type = BigInt)]
    pub(super) running: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) stuck: i64,
}

/// A change of the row of a saga, by its runner.
#[derive(Default, AsChangeset)]
#[diesel(table_name = sagas)]
pub(super) struct Change<'a> {
    pub(super) state: Option<SagaState>,
    pub(super) step: Option<&'a str>,
    pub(super) attempts: Option<i32>,
    pub(super) next_attempt_at: Option<Time>,
    /// `Some(None)` ends the lease.
    pub(super) lease_until: Option<Option<Time>>,
    pub(super) last_error: Option<&'a str>,
    pub(super) refusal: Option<&'a Value>,
    pub(super) finished_at: Option<Time>,
}

const CLAIM: &str = "\
    UPDATE store.sagas SET state = 'running', lease = lease + 1, lease_until = $2, next_attempt_at = $2 \
    WHERE id = $1 AND finished_at IS NULL AND (lease_until IS NULL OR lease_until <= $3) \
    RETURNING id, key, org_id, user_id, input, attempts, lease, refusal, is_abandoned, created_at";

const START_STEP: &str = "\
    INSERT INTO store.saga_steps AS s (saga_id, name, key, state, attempts, started_at, unanswered_at) \
    VALUES ($1, $2, $3, 'started', 1, $4, $4) \
    ON CONFLICT (saga_id, name) DO UPDATE SET attempts = s.attempts + 1, unanswered_at = $4 \
    RETURNING key, attempts";

const COUNT: &str = "\
    SELECT count(*) AS running, count(*) FILTER (WHERE created_at <= $2) AS stuck FROM store.sagas \
    WHERE kind = $1 AND finished_at IS NULL";

/// Inserts a saga. Returns false if the object has an unfinished one.
pub(super) async fn insert(tx: &mut Connection, id: Uuid, new: &NewSaga<'_>, now: Time) -> Result<bool> {
    let row = NewRow {
        id,
        kind: new.kind,
        key: new.key,
        org_id: new.org,
        user_id: new.user,
        input: &new.input,
        state: SagaState::Waiting,
        attempts: 0,
        // The process that starts the saga also runs it. The background job takes over only if that process died.
        next_attempt_at: now.plus_seconds(LEASE_SECONDS),
        lease: 0,
        is_abandoned: false,
        created_at: now,
    };
    Ok(diesel::insert_into(sagas::table).values(row).on_conflict_do_nothing().execute(tx).await? == 1)
}

/// Returns the unfinished saga of an object.
///
/// # Errors
/// Returns an error if the statement fails.
pub async fn find_open(connection: &mut Connection, kind: &str, key: &str) -> Result<Option<Uuid>> {
    let open = sagas::kind.eq(kind).and(sagas::key.eq(key)).and(sagas::finished_at.is_null());
    Ok(sagas::table.filter(open).select(sagas::id).first(connection).await.optional()?)
}

/// Returns the id and the input of the oldest unfinished saga of this kind that belongs to an organization.
///
/// # Errors
/// Returns an error if the statement fails.
pub async fn find_open_of_org(connection: &mut Connection, kind: &str, org: OrgId) -> Result<Option<(Uuid, Value)>> {
    let open = sagas::kind.eq(kind).and(sagas::org_id.eq(org)).and(sagas::finished_at.is_null());
    let oldest = sagas::table.filter(open).order((sagas::created_at, sagas::id));
    Ok(oldest.select((sagas::id, sagas::input)).first(connection).await.optional()?)
}

/// Returns the id and the input of the last saga of an object that completed after this time.
///
/// # Errors
/// Returns an error if the statement fails.
pub async fn find_completed(
    connection: &mut Connection,
    kind: &str,
    key: &str,
    after: Time,
) -> Result<Option<(Uuid, Value)>> {
    let of_object = sagas::kind.eq(kind).and(sagas::key.eq(key));
    let is_recent = sagas::state.eq(SagaState::Done).and(sagas::finished_at.gt(after).assume_not_null());
    let last = sagas::table.filter(of_object.and(is_recent)).order(sagas::finished_at.desc());
    Ok(last.select((sagas::id, sagas::input)).first(connection).await.optional()?)
}

/// Returns the progress of a saga.
pub(super) async fn progress(connection: &mut Connection, id: Uuid) -> Result<Option<Progress>> {
    Ok(sagas::table.find(id).select(Progress::as_select()).first(connection).await.optional()?)
}

/// Takes the lease of an unfinished saga, if it is free.
pub(super) async fn claim(connection: &mut Connection, id: Uuid, now: Time) -> Result<Option<Saga>> {
    let claim = diesel::sql_query(CLAIM)
        .bind::<SqlUuid, _>(id)
        .bind::<Timestamptz, _>(now.plus_seconds(LEASE_SECONDS))
        .bind::<Timestamptz, _>(now);
    let Some(row) = Prepared(claim).get_result::<ClaimedRow>(connection).await.optional()? else { return Ok(None) };
    let steps = saga_steps::table.filter(saga_steps::saga_id.eq(id)).select(StepRow::as_select());
    let steps: Vec<StepRow> = steps.load(connection).await?;
    let step = |StepRow { name, key, state, attempts, response, unanswered_at }| {
        let response = response.unwrap_or(Value::Null);
        Step { name, key, state, attempts, response, unanswered_at }
    };
    let ClaimedRow { id, key, org_id, user_id, input, attempts, lease, refusal, is_abandoned, created_at } = row;
    let steps = steps.into_iter().map(step).collect();
    Ok(Some(Saga {
        id,
        key,
        org: org_id,
        user: user_id,
        input,
        created_at,
        steps,
        lease,
        attempts,
        refusal,
        is_abandoned,
    }))
}

/// Returns the sagas of a kind whose next attempt is due.
pub(super) async fn due(connection: &mut Connection, kind: &str, now: Time, limit: i64) -> Result<Vec<Uuid>> {
    let due = sagas::kind.eq(kind).and(sagas::finished_at.is_null()).and(sagas::next_attempt_at.le(now));
    let due = sagas::table.filter(due).order(sagas::next_attempt_at).limit(limit);
    Ok(due.select(sagas::id).load(connection).await?)
}

pub(super) async fn count(connection: &mut Connection, kind: &str, now: Time) -> Result<Counts> {
    let count = diesel::sql_query(COUNT).bind::<Text, _>(kind).bind::<Timestamptz, _>(now.plus_seconds(-STUCK_SECONDS));
    Ok(Prepared(count).get_result(connection).await?)
}

/// Changes the row of a saga. Returns false if the runner's lease is not the latest; then nothing may be written.
pub(super) async fn change(tx: &mut Connection, saga: &Saga, change: &Change<'_>) -> Result<bool> {
    let ours = sagas::id.eq(saga.id).and(sagas::lease.eq(saga.lease)).and(sagas::finished_at.is_null());
    Ok(diesel::update(sagas::table.filter(ours)).set(change).execute(tx).await? == 1)
}

/// Records an attempt. Returns the key and the number of the attempt.
pub(super) async fn start_step(
    tx: &mut Connection,
    saga: &Saga,
    step: &str,
    new_key: &str,
    now: Time,
) -> Result<(String, i32)> {
    #[derive(QueryableByName)]
    struct Started {
        #[diesel(sql_type = Text)]
        key: String,
        #[diesel(sql_type = diesel::sql_types::Integer)]
        attempts: i32,
    }
    let start = diesel::sql_query(START_STEP)
        .bind::<SqlUuid, _>(saga.id)
        .bind::<Text, _>(step)
        .bind::<Text, _>(new_key)
        .bind::<Timestamptz, _>(now);
    let Started { key, attempts } = Prepared(start).get_result(tx).await?;
    Ok((key, attempts))
}

/// Ends a step.
pub(super) async fn end_step(
    tx: &mut Connection,
    saga: &Saga,
    step: &str,
    state: StepState,
    response: Option<&Value>,
    now: Time,
) -> Result<()> {
    let row = saga_steps::table.filter(saga_steps::saga_id.eq(saga.id).and(saga_steps::name.eq(step)));
    let end = (saga_steps::state.eq(state), saga_steps::finished_at.eq(now));
    // A compensation keeps the response of the step.
    match response {
        Some(response) => {
            Prepared(diesel::update(row).set((end, saga_steps::response.eq(response)))).execute(tx).await?
        }
        None => Prepared(diesel::update(row).set(end)).execute(tx).await?,
    };
    Ok(())
}

/// Records that the current attempt of a step had no effect. `unanswered_at` is that of the earlier attempts.
pub(super) async fn end_attempt(
    tx: &mut Connection,
    saga: &Saga,
    step: &str,
    unanswered_at: Option<Time>,
) -> Result<()> {
    let row = saga_steps::table.filter(saga_steps::saga_id.eq(saga.id).and(saga_steps::name.eq(step)));
    Prepared(diesel::update(row).set(saga_steps::unanswered_at.eq(unanswered_at))).execute(tx).await?;
    Ok(())
}

/// Gives a step a new key.
pub(super) async fn replace_key(tx: &mut Connection, saga: &Saga, step: &str, key: &str) -> Result<()> {
    let row = saga_steps::table.filter(saga_steps::saga_id.eq(saga.id).and(saga_steps::name.eq(step)));
    Prepared(diesel::update(row).set(saga_steps::key.eq(key))).execute(tx).await?;
    Ok(())
}
