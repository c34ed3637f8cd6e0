//! Transactions that commit a change and its audit row together.

use diesel_async::{AsyncConnection, RunQueryDsl, TransactionManager};
use kernel::audit::{Actor, Event};

use crate::{Connection, Error, Prepared, Store, audit, idempotency};

type Manager = <Connection as AsyncConnection>::TransactionManager;

const SET_SNAPSHOT: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY";

/// The outcome of a transaction. A change cannot commit without its audit event.
#[derive(Debug)]
pub enum Outcome<T> {
    /// A change, with its audit event.
    Changed(T, Event),
    /// A no-op. Its writes, if any, are rolled back.
    Unchanged(T),
}

impl Store {
    /// Runs `work` in a transaction and commits its writes together with the audit row. An error rolls all of them
    /// back. `work` may borrow, and the caller may drop the future at any await.
    ///
    /// # Errors
    /// Returns the error of `work`, or [`Error`] if the transaction fails.
    pub async fn transaction<T, E: From<Error>>(
        &self,
        actor: &Actor,
        work: impl AsyncFnOnce(&mut Connection) -> Result<Outcome<T>, E>,
    ) -> Result<T, E> {
        self.run_transaction(async |connection| self.run_audited(connection, actor, work).await).await
    }

    /// Runs `work` in a transaction without an audit row, for observed state, which is not an operation of an actor.
    ///
    /// # Errors
    /// Returns the error of `work`, or [`Error`] if the transaction fails.
    pub async fn transaction_unaudited<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&mut Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        self.run_transaction(async |connection| work(connection).await.map(End::Commit)).await
    }

    /// Runs `work`, which only reads, so that all its statements see the same snapshot.
    ///
    /// # Errors
    /// Returns the error of `work`, or [`Error`] if the transaction fails.
    pub async fn snapshot<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&mut Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        self.run_transaction(async |connection| {
            Prepared(diesel::sql_query(SET_SNAPSHOT)).execute(connection).await.map_err(Error::from)?;
            work(connection).await.map(End::RollBack)
        })
        .await
    }

    /// Runs `work` in a transaction and ends the transaction as `work` requests.
    async fn run_transaction<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&mut Connection) -> Result<End<T>, E>,
    ) -> Result<T, E> {
        let mut pooled = self.connection().await?;
        let connection: &mut Connection = &mut pooled;
        begin(connection).await?;
        match work(connection).await {
            Ok(End::Commit(value)) => {
                commit(connection).await?;
                Ok(value)
            }
            Ok(End::RollBack(value)) => {
                roll_back(connection).await;
                Ok(value)
            }
            Err(error) => {
                roll_back(connection).await;
                Err(error)
            }
        }
    }

    async fn run_audited<T, E: From<Error>>(
        &self,
        connection: &mut Connection,
        actor: &Actor,
        work: impl AsyncFnOnce(&mut Connection) -> Result<Outcome<T>, E>,
    ) -> Result<End<T>, E> {
        match work(connection).await? {
            Outcome::Unchanged(value) => Ok(End::RollBack(value)),
            Outcome::Changed(value, event) => {
                audit::append(connection, self.clock_rng(), actor, &event).await?;
                if let Some(claim) = actor.idempotency {
                    idempotency::commit(connection, claim).await?;
                }
                Ok(End::Commit(value))
            }
        }
    }
}

/// How to end a transaction.
enum End<T> {
    Commit(T),
    RollBack(T),
}

/// Begins a transaction that commits without an audit row: only for writes that are not operations of an actor.
#[expect(clippy::disallowed_methods, reason = "all transactions begin here")]
pub(crate) async fn begin(connection: &mut Connection) -> Result<(), Error> {
    Ok(Manager::begin_transaction(connection).await?)
}

pub(crate) async fn commit(connection: &mut Connection) -> Result<(), Error> {
    Ok(Manager::commit_transaction(connection).await?)
}

pub(crate) async fn roll_back(connection: &mut Connection) {
    if let Err(error) = Manager::rollback_transaction(connection).await {
        // The pooled connection is closed on drop, which also rolls back.
        tracing::debug!(%error, "failed to roll back");
    }
}
