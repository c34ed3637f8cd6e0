//! Operator commands: list, retry and abandon sagas.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::audit::{Actor, Event};
use kernel::{OrgId, Time};
use serde_json::json;
use uuid::Uuid;

use super::SagaState;
use crate::schema::sagas;
use crate::{Connection, Error, Outcome, Prepared, Result, Store};

/// A saga, for operators.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = sagas)]
pub struct SagaStatus {
    pub id: Uuid,
    pub kind: String,
    /// The object that the saga is about.
    pub key: String,
    pub org_id: OrgId,
    pub state: SagaState,
    /// The current step; `None` before the first one.
    pub step: Option<String>,
    /// The failed attempts since the last finished step.
    pub attempts: i32,
    /// When it continues; while it runs, the end of its lease.
    pub next_attempt_at: Time,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    pub created_at: Time,
    pub finished_at: Option<Time>,
}

/// Selects the sagas to list.
#[derive(Debug, Clone, Default)]
pub struct SagaFilter {
    /// Whether to list finished sagas, too.
    pub finished: bool,
    /// Only sagas of this kind.
    pub kind: Option<String>,
}

impl SagaFilter {
    /// The maximum length of a list.
    pub const MAX_SAGAS: i64 = 1000;
}

impl Store {
    /// Lists the oldest unfinished sagas, or the newest of all, up to [`SagaFilter::MAX_SAGAS`].
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

    async fn continue_idle_saga(&self, actor: &Actor, id: Uuid, event: &'static str, abandon: bool) -> Result<bool> {
        let work = async |tx: &mut Connection| {
            let now = self.clock_rng().now();
            let is_idle = sagas::lease_until.is_null().or(sagas::lease_until.le(now)).assume_not_null();
            let idle = sagas::table.filter(sagas::id.eq(id).and(sagas::finished_at.is_null()).and(is_idle));
            let update = diesel::update(idle)
                .set((
                    sagas::next_attempt_at.eq(now),
                    sagas::attempts.eq(0),
                    sagas::is_abandoned.eq(sagas::is_abandoned.or(abandon.into_sql::<diesel::sql_types::Bool>())),
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
