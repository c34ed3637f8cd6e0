//! Operator commands: list, retry and abandon sagas.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Timestamptz};
use diesel_async::RunQueryDsl;
use kernel::audit::{Actor, Event};
use kernel::{OrgId, Time};
use serde_json::{Value, json};
use uuid::Uuid;

use super::SagaState;
use crate::schema::sagas;
use crate::{Connection, Error, Outcome, Prepared, Result, Store};

const DAY_SECONDS: i64 = 24 * 3600;

/// How long a completed saga is kept, and one that was refused or abandoned, which may be the subject of a complaint.
const KEEP_DONE_SECONDS: i64 = 90 * DAY_SECONDS;
const KEEP_FAILED_SECONDS: i64 = 365 * DAY_SECONDS;

const PURGE: &str = "\
    DELETE FROM store.sagas WHERE id = ANY (ARRAY( \
        SELECT id FROM store.sagas WHERE finished_at <= $1 AND (state = 'done' OR finished_at <= $2) \
        LIMIT $3 FOR UPDATE SKIP LOCKED))";

/// A saga, for operators.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = sagas)]
pub struct SagaStatus {
    pub id: Uuid,
    pub kind: String,
    /// The object that the saga is about.
    pub key: String,
    pub org_id: OrgId,
    pub input: Value,
    pub state: SagaState,
    /// The current step; `None` before the first one.
    pub step: Option<String>,
    /// The failed attempts since the last finished step.
    pub attempts: i32,
    /// The time at which the saga continues; while it runs, the end of its lease.
    pub next_attempt_at: Time,
    /// The reason why the last attempt failed.
    pub last_error: Option<String>,
    pub created_at: Time,
    pub finished_at: Option<Time>,
}

/// Selects the sagas to list.
#[derive(Debug, Clone, Default)]
pub struct SagaFilter {
    /// Whether to select finished sagas, too.
    pub finished: bool,
    /// If set, selects only sagas of this kind.
    pub kind: Option<String>,
}

impl SagaFilter {
    /// The maximum length of a list.
    pub const MAX_SAGAS: i64 = 1000;
}

impl Store {
    /// Lists the oldest unfinished sagas or, with [`SagaFilter::finished`], the newest of all sagas. Returns at most
    /// [`SagaFilter::MAX_SAGAS`].
    ///
    /// # Errors
    /// Returns an error if the statement fails.
    pub async fn saga_list(&self, filter: &SagaFilter) -> Result<Vec<SagaStatus>> {
        let all = sagas::table.select(SagaStatus::as_select()).limit(SagaFilter::MAX_SAGAS);
        let mut query = if filter.finished {
            all.order(sagas::id.desc()).into_boxed()
        } else {
            all.filter(sagas::finished_at.is_null()).order(sagas::id.asc()).into_boxed()
        };
        if let Some(kind) = &filter.kind {
            query = query.filter(sagas::kind.eq(kind));
        }
        Ok(query.load(&mut *self.connection().await?).await?)
    }

    /// Returns a saga.
    ///
    /// # Errors
    /// Returns an error if the statement fails.
    pub async fn saga_find(&self, id: Uuid) -> Result<Option<SagaStatus>> {
        let query = sagas::table.find(id).select(SagaStatus::as_select());
        Ok(query.first(&mut *self.connection().await?).await.optional()?)
    }

    /// Lets the background job continue an unfinished saga now. Returns false if the saga does not exist, is finished,
    /// or is running.
    ///
    /// # Errors
    /// Returns an error if the statement fails.
    pub async fn saga_retry(&self, actor: &Actor, id: Uuid) -> Result<bool> {
        self.continue_idle_saga(actor, id, "saga.retry", false).await
    }

    /// Ends an unfinished saga: the background job undoes its started steps. Returns false if the saga does
    /// not exist, is finished, or is running.
    ///
    /// # Errors
    /// Returns an error if the statement fails.
    pub async fn saga_abandon(&self, actor: &Actor, id: Uuid) -> Result<bool> {
        self.continue_idle_saga(actor, id, "saga.abandon", true).await
    }

    /// Deletes sagas that finished long ago, with their steps: after 90 days, or after a year if the saga was refused or
    /// abandoned. Run it periodically.
    ///
    /// # Errors
    /// Returns an error if a statement fails. The batches before it stay deleted.
    pub async fn saga_purge(&self) -> Result<()> {
        let now = self.clock_rng().now();
        loop {
            let purge = diesel::sql_query(PURGE)
                .bind::<Timestamptz, _>(now.plus_seconds(-KEEP_DONE_SECONDS))
                .bind::<Timestamptz, _>(now.plus_seconds(-KEEP_FAILED_SECONDS))
                .bind::<BigInt, _>(crate::BATCH_SIZE);
            if !crate::is_full_batch(Prepared(purge).execute(&mut *self.connection().await?).await?) {
                return Ok(());
            }
        }
    }

    async fn continue_idle_saga(&self, actor: &Actor, id: Uuid, event: &'static str, abandon: bool) -> Result<bool> {
        let work = async |tx: &mut Connection| {
            let now = self.corrected_now(tx).await?;
            let is_idle = sagas::lease_until.is_null().or(sagas::lease_until.le(now)).assume_not_null();
            let idle = sagas::table.filter(sagas::id.eq(id).and(sagas::finished_at.is_null()).and(is_idle));
            let update = diesel::update(idle)
                .set((
                    sagas::next_attempt_at.eq(now),
                    sagas::attempts.eq(0),
                    sagas::is_abandoned.eq(sagas::is_abandoned.or(abandon.into_sql::<Bool>())),
                ))
                .returning((sagas::kind, sagas::key));
            let Some((kind, key)) = Prepared(update).get_result::<(String, String)>(tx).await.optional()? else {
                return Ok::<_, Error>(Outcome::Unchanged(false));
            };
            Ok(Outcome::Changed(true, Event::of_platform(event, id, json!({ "kind": kind, "key": key }))))
        };
        self.transaction(actor, work).await
    }
}
