//! Transactions that commit a change and its audit row together.

use diesel_async::{AsyncConnection, RunQueryDsl, TransactionManager};
use kernel::audit::{Actor, Event};
use kernel::error_chain;

use crate::caller_check::{Authorized, LockedCaller, revoked_caller_error};
use crate::{Connection, Error, Prepared, Store, audit, idempotency};

type Manager = <Connection as AsyncConnection>::TransactionManager;

const SET_SNAPSHOT: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY";

/// The outcome of a transaction. A change cannot commit without its audit event.
#[derive(Debug)]
pub enum Outcome<T> {
    /// A change, with its audit event.
    Changed(T, Event),
    /// A change, with its audit event, that can end the session, the token or the role of the actor. [`Authorized`]
    /// proves that the check of the caller precedes the change.
    ChangedAuthority(T, Event, Authorized),
    /// A no-op. Its writes, if any, are rolled back.
    Unchanged(T),
}

impl Store {
    /// Runs `work` in a transaction and commits its writes together with the audit row, if the actor is still
    /// authorized. An error rolls all of them back. `work` may borrow from its environment, and the caller may drop the
    /// future at any await.
    ///
    /// # Errors
    /// Returns the error of `work`, or [`Error`] if the transaction fails. If the actor lost the permission before the
    /// commit, returns [`Error::Caller`] instead, even if `work` fails or changes nothing.
    pub async fn transaction<T, E: From<Error>>(
        &self,
        actor: &Actor,
        work: impl AsyncFnOnce(&mut Connection) -> Result<Outcome<T>, E>,
    ) -> Result<T, E> {
        let run = async |connection: &mut Connection| self.run_work(connection, actor, LockedCaller::Wait, work).await;
        self.run_transaction(Some(actor), run).await
    }

    /// Runs `work` in a transaction without an audit row, for writes that no actor causes, such as observed state.
    ///
    /// # Errors
    /// Returns the error of `work`, or [`Error`] if the transaction fails.
    pub async fn transaction_unaudited<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&mut Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        self.run_transaction(None, async |connection| work(connection).await.map(End::Commit)).await
    }

    /// Runs `work` in a transaction without an audit row, for writes that a user causes but that are not operations.
    /// Commits them if the actor is still authorized.
    ///
    /// # Errors
    /// As [`Self::transaction`].
    pub async fn transaction_unaudited_as<T, E: From<Error>>(
        &self,
        actor: &Actor,
        work: impl AsyncFnOnce(&mut Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        let run = async |connection: &mut Connection| {
            let value = work(connection).await?;
            self.authorize(connection, actor).await?;
            Ok(End::Commit(value))
        };
        self.run_transaction(Some(actor), run).await
    }

    /// Runs `work`, which must only read, so that all its statements see the same snapshot.
    ///
    /// # Errors
    /// Returns the error of `work`, or [`Error`] if the transaction fails.
    pub async fn snapshot<T, E: From<Error>>(
        &self,
        work: impl AsyncFnOnce(&mut Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        self.run_transaction(None, async |connection| {
            Prepared(diesel::sql_query(SET_SNAPSHOT)).execute(connection).await.map_err(Error::from)?;
            work(connection).await.map(End::RollBack)
        })
        .await
    }

    /// Runs `work` in a transaction and ends the transaction as `work` requests. After a rollback, checks whether
    /// `actor` lost the permission.
    async fn run_transaction<T, E: From<Error>>(
        &self,
        actor: Option<&Actor>,
        work: impl AsyncFnOnce(&mut Connection) -> Result<End<T>, E>,
    ) -> Result<T, E> {
        let mut pooled = self.connection().await?;
        let connection: &mut Connection = &mut pooled;
        begin(connection).await?;
        let result = work(connection).await;
        self.end(connection, actor, result).await
    }

    /// Ends a transaction. After a rollback, checks whether `actor` lost the permission.
    pub(crate) async fn end<T, E: From<Error>>(
        &self,
        connection: &mut Connection,
        actor: Option<&Actor>,
        result: Result<End<T>, E>,
    ) -> Result<T, E> {
        let result = match result {
            Ok(End::Commit(value)) => {
                commit(connection).await?;
                return Ok(value);
            }
            Ok(End::RollBack(value)) => Ok(value),
            Ok(End::Unauthorized) => Err(revoked_caller_error().into()),
            Err(error) => Err(error),
        };
        roll_back(connection).await;
        match actor {
            Some(actor) => self.check_rolled_back(connection, actor, result).await?,
            None => result,
        }
    }

    /// Returns the result of work that was rolled back, or the rejection if its actor lost the permission.
    ///
    /// # Errors
    /// Returns an error if the check fails: that of the work, if it failed too.
    pub(crate) async fn check_rolled_back<T, E: From<Error>>(
        &self,
        connection: &mut Connection,
        actor: &Actor,
        result: Result<T, E>,
    ) -> Result<Result<T, E>, E> {
        match self.require_caller(connection, actor).await {
            Ok(()) => Ok(result),
            Err(rejected @ Error::Caller(_)) => Ok(Err(rejected.into())),
            Err(error) => Err(result.err().unwrap_or_else(|| error.into())),
        }
    }

    /// Runs the work of a change, and appends its audit row.
    pub(crate) async fn run_work<T, E: From<Error>>(
        &self,
        connection: &mut Connection,
        actor: &Actor,
        locked_caller: LockedCaller,
        work: impl AsyncFnOnce(&mut Connection) -> Result<Outcome<T>, E>,
    ) -> Result<End<T>, E> {
        let outcome = work(connection).await?;
        Ok(self.append_audit(connection, actor, locked_caller, outcome).await?)
    }

    /// Appends the audit row of a change, and marks the idempotency key as committed.
    async fn append_audit<T>(
        &self,
        connection: &mut Connection,
        actor: &Actor,
        locked_caller: LockedCaller,
        outcome: Outcome<T>,
    ) -> Result<End<T>, Error> {
        let (value, event, check) = match outcome {
            Outcome::Unchanged(value) => return Ok(End::RollBack(value)),
            Outcome::ChangedAuthority(value, event, Authorized { .. }) => (value, event, None),
            Outcome::Changed(value, event) => (value, event, self.caller_check(actor)),
        };
        match check {
            None => audit::append(connection, self.clock_rng(), actor, &event).await?,
            Some((check, parameters)) => {
                let check = (check, parameters, locked_caller);
                if !audit::append_authorized(connection, self.clock_rng(), actor, &event, check).await? {
                    return Ok(End::Unauthorized);
                }
            }
        }
        if let Some(claim) = actor.idempotency {
            idempotency::commit(connection, claim).await?;
        }
        Ok(End::Commit(value))
    }
}

/// The way to end a transaction.
pub(crate) enum End<T> {
    Commit(T),
    RollBack(T),
    /// Rolls back, because the check did not authorize the caller.
    Unauthorized,
}

/// Begins a transaction. It commits without an audit row, so code outside this file must use it only for writes that
/// are not operations of an actor.
#[expect(clippy::disallowed_methods, reason = "all transactions begin here")]
pub(crate) async fn begin(connection: &mut Connection) -> Result<(), Error> {
    Ok(Manager::begin_transaction(connection).await?)
}

pub(crate) async fn commit(connection: &mut Connection) -> Result<(), Error> {
    Ok(Manager::commit_transaction(connection).await?)
}

pub(crate) async fn roll_back(connection: &mut Connection) {
    if let Err(error) = try_roll_back(connection).await {
        // The pooled connection is closed on drop, which also rolls back.
        tracing::debug!(error = %error_chain(&error), "failed to roll back");
    }
}

/// Rolls back the transaction, or the savepoint within one.
pub(crate) async fn try_roll_back(connection: &mut Connection) -> Result<(), Error> {
    Ok(Manager::rollback_transaction(connection).await?)
}
