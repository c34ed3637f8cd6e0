//! The unit of work: domain rows and the audit row in one commit.

use diesel_async::{AsyncConnection, RunQueryDsl, TransactionManager};
use kernel::audit::{Actor, Event};

use crate::{Cached, Connection, Error, Store, audit, once};

type Manager = <Connection as AsyncConnection>::TransactionManager;

const ONE_MOMENT: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY";

/// How a unit of work ended. There is no way to commit a change without saying what the audit log is to tell of it.
#[derive(Debug)]
pub enum Outcome<T> {
    /// Something changed: its one audit event.
    Changed(T, Event),
    /// Everything already was as asked for. Whatever was written all the same is rolled back.
    Unchanged(T),
}

impl Store {
    /// Runs `work` in one transaction and commits what it did together with its audit row; an error rolls all of it
    /// back. `work` may borrow, and may be abandoned at any await.
    ///
    /// # Errors
    /// Whatever `work` answers, or [`Error`] when Postgres does not take the transaction.
    pub async fn transaction<T, E: From<Error>>(
        &self,
        actor: &Actor,
        work: impl AsyncFnOnce(&mut Connection) -> Result<Outcome<T>, E>,
    ) -> Result<T, E> {
        self.unit(async |connection| self.perform(connection, actor, work).await).await
    }

    /// Runs `work` in one transaction without an audit row: for what was observed, which is no operation of anybody's.
    ///
    /// # Errors
    /// Whatever `work` answers, or [`Error`] when Postgres does not take the transaction.
    pub async fn observe<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&mut Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        self.unit(async |connection| work(connection).await.map(Ended::Commit)).await
    }

    /// Runs `work`, which only reads, so that all its statements see the database as of one moment.
    ///
    /// # Errors
    /// Whatever `work` answers, or [`Error`] when Postgres does not take the transaction.
    pub async fn snapshot<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&mut Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        self.unit(async |connection| {
            Cached(diesel::sql_query(ONE_MOMENT)).execute(connection).await.map_err(Error::from)?;
            work(connection).await.map(Ended::RollBack)
        })
        .await
    }

    /// Runs `work` in a transaction, which ends as it says.
    async fn unit<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&mut Connection) -> Result<Ended<T>, E>,
    ) -> Result<T, E> {
        let mut lease = self.connection().await?;
        let connection: &mut Connection = &mut lease;
        begin(connection).await?;
        match work(connection).await {
            Ok(Ended::Commit(value)) => {
                commit(connection).await?;
                Ok(value)
            }
            Ok(Ended::RollBack(value)) => {
                roll_back(connection).await;
                Ok(value)
            }
            Err(failure) => {
                roll_back(connection).await;
                Err(failure)
            }
        }
    }

    async fn perform<T, E: From<Error>>(
        &self,
        connection: &mut Connection,
        actor: &Actor,
        work: impl AsyncFnOnce(&mut Connection) -> Result<Outcome<T>, E>,
    ) -> Result<Ended<T>, E> {
        match work(connection).await? {
            Outcome::Unchanged(value) => Ok(Ended::RollBack(value)),
            Outcome::Changed(value, event) => {
                audit::append(connection, self.world(), actor, &event).await?;
                if let Some(once) = actor.once {
                    once::commit(connection, once).await?;
                }
                Ok(Ended::Commit(value))
            }
        }
    }
}

/// What is left to do with a transaction.
enum Ended<T> {
    Commit(T),
    RollBack(T),
}

/// Whoever begins a transaction with this commits without an audit row: what is noted must be no operation of anybody.
#[expect(clippy::disallowed_methods, reason = "this is the one place that begins transactions")]
pub(crate) async fn begin(connection: &mut Connection) -> Result<(), Error> {
    Ok(Manager::begin_transaction(connection).await?)
}

pub(crate) async fn commit(connection: &mut Connection) -> Result<(), Error> {
    Ok(Manager::commit_transaction(connection).await?)
}

pub(crate) async fn roll_back(connection: &mut Connection) {
    if let Err(error) = Manager::rollback_transaction(connection).await {
        // The lease closes the connection, which rolls back as well.
        tracing::debug!(%error, "a rollback could not be sent");
    }
}
