//! Starting sagas, and running those that are due.

use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use tokio::time::Instant;
use uuid::Uuid;

use super::runner::Runner;
use super::{NewSaga, SagaHandler, SagaResult, SagaState, metrics, queue};
use crate::{Connection, Error, Result, Store};

/// The interval at which a request polls a saga that another runner executes.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The timeout of one run of a background job. Sagas that are not finished by then continue in its next run.
const RESUME_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum number of sagas of a kind that one run of a background job continues, and how many of them concurrently.
const MAX_RESUMED: i64 = 64;
const MAX_CONCURRENCY: usize = 8;

impl Store {
    /// Writes a saga in the caller's transaction, and returns its id; `None` if the object has an unfinished saga of
    /// this kind. The caller runs it after the commit ([`Store::saga_run`]); otherwise a background job does after 15
    /// seconds.
    ///
    /// # Errors
    /// Returns an error if the statement fails.
    pub async fn saga_start(&self, tx: &mut Connection, new: &NewSaga<'_>) -> Result<Option<Uuid>> {
        let now = self.corrected_now(tx).await?;
        let id = self.clock_rng().id_at(now);
        Ok(queue::insert(tx, id, new, now).await?.then_some(id))
    }

    /// Runs a saga until its end, a failure, or `until`. If another runner executes the saga, waits for that runner.
    /// The future can be dropped at any point: the lease expires, and the saga continues.
    ///
    /// # Errors
    /// Returns an error if Postgres fails. The saga continues when the lease has expired.
    pub async fn saga_run(&self, handler: &dyn SagaHandler, id: Uuid, until: Instant) -> Result<SagaResult> {
        let mut joined = false;
        loop {
            let mut connection = self.connection().await?;
            let now = self.corrected_now(&mut connection).await?;
            let progress = queue::progress(&mut connection, id).await?;
            let progress = progress.ok_or_else(|| Error::inconsistent("there is no such saga"))?;
            if progress.state == SagaState::Done {
                return Ok(SagaResult::Done);
            }
            if let Some(refusal) = progress.refusal {
                return Ok(SagaResult::Refused(refusal));
            }
            let step = progress.step.unwrap_or_default();
            let is_leased = progress.lease_until.is_some_and(|lease_until| lease_until > now);
            // This call waited for another runner, whose attempt failed. Another attempt now would probably fail, too.
            if joined && !is_leased && progress.state == SagaState::Waiting {
                return Ok(SagaResult::Incomplete { step });
            }
            if !is_leased && let Some(saga) = queue::claim(&mut connection, id, now).await? {
                drop(connection);
                return Runner { store: self, handler, saga, until }.run().await;
            }
            drop(connection);
            joined = true;
            if Instant::now() + POLL_INTERVAL >= until {
                return Ok(SagaResult::Incomplete { step });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Continues the sagas of a kind that are due, and measures them. Several processes share the work.
    ///
    /// # Errors
    /// Returns an error if Postgres fails.
    pub async fn saga_resume(&self, handler: &dyn SagaHandler) -> Result<()> {
        let mut connection = self.connection().await?;
        let (kind, now) = (handler.kind(), self.corrected_now(&mut connection).await?);
        metrics::record_counts(kind, queue::count(&mut connection, kind, now).await?);
        let due = queue::due(&mut connection, kind, now, MAX_RESUMED).await?;
        drop(connection);
        let until = Instant::now() + RESUME_TIMEOUT;
        let mut result = Ok(());
        for ids in due.chunks(MAX_CONCURRENCY) {
            let resumed = join_all(ids.iter().map(|id| self.resume_one(handler, *id, until))).await;
            result = resumed.into_iter().fold(result, Result::and);
        }
        result
    }

    /// Continues a saga, if its lease is free.
    fn resume_one<'a>(&'a self, handler: &'a dyn SagaHandler, id: Uuid, until: Instant) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut connection = self.connection().await?;
            let now = self.corrected_now(&mut connection).await?;
            let claimed = queue::claim(&mut connection, id, now).await?;
            drop(connection);
            match claimed {
                Some(saga) => Runner { store: self, handler, saga, until }.run().await.map(drop),
                None => Ok(()),
            }
        })
    }
}
