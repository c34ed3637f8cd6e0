//! Group commit: concurrent changes of one row share a transaction.
//!
//! Without it, each change waits for the lock of the row, which the previous one holds until its commit is on disk. Here
//! the first change begins a transaction and passes it on to the changes that wait. The last one commits for all. Each
//! change has its own savepoint, audit row and check of the caller, and its caller gets the result after the commit.
//!
//! The transaction keeps the locks of each caller's rows, in the order of the changes. To prevent deadlocks with
//! transactions that lock the rows of several callers, such as one that ends all sessions of a user, only the first change
//! waits for these locks. Another change whose caller's rows are locked runs in its own transaction.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kernel::audit::Actor;
use kernel::error_chain;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::caller_check::{LockedCaller, revoked_caller_error};
use crate::transaction::{End, begin, commit, try_roll_back};
use crate::{Connection, Error, Outcome, PooledConnection, Store};

/// The largest number of changes that commit together, so that the first one does not wait long.
const MAX_MEMBERS: usize = 16;

/// The changes in progress, by the row that they change. `K` identifies the row.
pub struct GroupCommit<K: Eq + Hash + Clone> {
    /// The waiting changes of each row that a change is in progress for.
    waiting: Mutex<HashMap<K, VecDeque<oneshot::Sender<Turn<K>>>>>,
}

/// The right to change the row, with the transaction of the changes before. If it is dropped, the transaction is rolled
/// back and the next change begins another one.
struct Turn<K: Eq + Hash + Clone> {
    group: Group,
    key: TurnKey<K>,
}

/// A transaction and the changes that wait for its commit.
#[derive(Default)]
struct Group {
    connection: Option<PooledConnection>,
    members: Vec<oneshot::Sender<Committed>>,
}

/// The result of a commit, or the message of its error.
type Committed = Result<(), String>;

/// Passes the right on when it is dropped.
struct TurnKey<K: Eq + Hash + Clone> {
    changes: Arc<GroupCommit<K>>,
    key: K,
}

impl Store {
    /// Runs `work` like [`Store::transaction`], together with concurrent changes of the same row. `work` must lock the
    /// row first. It runs again in its own transaction if another change of the group ends early.
    ///
    /// # Errors
    /// Returns the errors of [`Store::transaction`], and [`Error::Unavailable`] if the changes before take too long.
    pub async fn grouped_transaction<K, T, E>(
        &self,
        changes: &Arc<GroupCommit<K>>,
        key: K,
        actor: &Actor,
        work: impl AsyncFn(&mut Connection) -> Result<Outcome<T>, E>,
    ) -> Result<T, E>
    where
        K: Eq + Hash + Clone + Send + 'static,
        E: From<Error>,
    {
        let Turn { mut group, key } = changes.turn(key, self.lock_timeout()).await?;
        let (connection, result) = match group.connection.take() {
            None => {
                let mut connection = self.connection().await?;
                begin(&mut connection).await?;
                match self.run_work(&mut connection, actor, LockedCaller::Wait, &work).await {
                    Ok(End::Commit(value)) => (connection, Ok(value)),
                    ended => return self.end(&mut connection, Some(actor), ended).await,
                }
            }
            Some(mut connection) => {
                // A savepoint. It fails if the connection was lost during the change before.
                if begin(&mut connection).await.is_err() {
                    drop((connection, group, key));
                    return self.transaction(actor, work).await;
                }
                let ended = self.run_work(&mut connection, actor, LockedCaller::Skip, &work).await;
                if matches!(ended, Ok(End::Unauthorized)) {
                    // Repeats this change in its own transaction. After a failed rollback, the others are repeated as well.
                    if try_roll_back(&mut connection).await.is_ok() {
                        group.connection = Some(connection);
                        Turn { group, key }.pass_on();
                    } else {
                        drop((connection, group, key));
                    }
                    return self.transaction(actor, work).await;
                }
                let result = self.end_savepoint(&mut connection, actor, ended).await?;
                (connection, result)
            }
        };
        let (member, committed) = oneshot::channel();
        group.members.push(member);
        group.connection = Some(connection);
        Turn { group, key }.pass_on();
        match committed.await {
            Ok(Ok(())) => result,
            Ok(Err(message)) => Err(Error::Unavailable(message.into()).into()),
            // Another change ended early, before the commit.
            Err(_) => self.transaction(actor, work).await,
        }
    }

    /// Ends the savepoint of a change. Returns its result, which its caller gets after the commit.
    ///
    /// # Errors
    /// Returns an error if the transaction must not be committed, because a statement of this function failed. Postgres
    /// would roll back such a transaction, and still report the success of the command `COMMIT`.
    async fn end_savepoint<T, E: From<Error>>(
        &self,
        connection: &mut Connection,
        actor: &Actor,
        ended: Result<End<T>, E>,
    ) -> Result<Result<T, E>, E> {
        let result = match ended {
            Ok(End::Commit(value)) => {
                commit(connection).await?;
                return Ok(Ok(value));
            }
            Ok(End::RollBack(value)) => Ok(value),
            Ok(End::Unauthorized) => Err(revoked_caller_error().into()),
            Err(error) => Err(error),
        };
        if let Err(error) = try_roll_back(connection).await {
            return Err(result.err().unwrap_or_else(|| error.into()));
        }
        self.check_rolled_back(connection, actor, result).await
    }
}

impl<K: Eq + Hash + Clone> fmt::Debug for GroupCommit<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCommit").finish_non_exhaustive()
    }
}

impl<K: Eq + Hash + Clone> Default for GroupCommit<K> {
    fn default() -> Self {
        Self { waiting: Mutex::default() }
    }
}

impl<K: Eq + Hash + Clone + Send + 'static> GroupCommit<K> {
    /// Waits for the changes before.
    async fn turn(self: &Arc<Self>, key: K, turn_timeout: Duration) -> Result<Turn<K>, Error> {
        let receiver = match self.waiting().entry(key.clone()) {
            Entry::Vacant(row) => {
                row.insert(VecDeque::new());
                let key = TurnKey { changes: Arc::clone(self), key };
                return Ok(Turn { group: Group::default(), key });
            }
            Entry::Occupied(mut row) => {
                let (sender, receiver) = oneshot::channel();
                row.get_mut().push_back(sender);
                receiver
            }
        };
        match timeout(turn_timeout, receiver).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(Error::Unavailable("the changes before took too long".into())),
        }
    }
}

impl<K: Eq + Hash + Clone> GroupCommit<K> {
    fn waiting(&self) -> MutexGuard<'_, HashMap<K, VecDeque<oneshot::Sender<Turn<K>>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the first waiting change of a row.
    fn next(&self, key: &K) -> Option<oneshot::Sender<Turn<K>>> {
        self.waiting().get_mut(key).and_then(VecDeque::pop_front)
    }
}

impl<K: Eq + Hash + Clone + Send + 'static> Turn<K> {
    /// Passes the transaction to the next change that waits, or commits it.
    fn pass_on(mut self) {
        while self.group.members.len() < MAX_MEMBERS {
            let Some(next) = self.key.changes.next(&self.key.key) else { break };
            // The next change may have given up.
            match next.send(self) {
                Ok(()) => return,
                Err(turn) => self = turn,
            }
        }
        // In a task, because the caller of one change may give up, and the others still need the result.
        tokio::spawn(self.commit());
    }

    async fn commit(self) {
        let Self { group: Group { connection, members }, key } = self;
        let Some(mut connection) = connection else { return };
        let mut result = CommitResult { members, result: Err("the commit was interrupted".to_owned()) };
        result.result = commit(&mut connection).await.map_err(|error| error_chain(&error).to_string());
        drop((connection, key));
    }
}

/// Sends the result of a commit to its changes when it is dropped. A commit ends early with the thread that runs it. Its
/// changes may be committed, so they must not be repeated.
struct CommitResult {
    members: Vec<oneshot::Sender<Committed>>,
    result: Committed,
}

impl Drop for CommitResult {
    fn drop(&mut self) {
        for member in self.members.drain(..) {
            // A change whose caller gave up needs no result.
            let _ = member.send(self.result.clone());
        }
    }
}

impl<K: Eq + Hash + Clone> Drop for TurnKey<K> {
    fn drop(&mut self) {
        let mut waiting = self.changes.waiting();
        let Entry::Occupied(mut row) = waiting.entry(self.key.clone()) else { return };
        let next = std::iter::from_fn(|| row.get_mut().pop_front()).find(|next| !next.is_closed());
        let Some(next) = next else {
            row.remove();
            return;
        };
        drop(waiting);
        let key = Self { changes: Arc::clone(&self.changes), key: self.key.clone() };
        // A change that has given up in the meantime drops the turn, which passes it on.
        let _ = next.send(Turn { group: Group::default(), key });
    }
}
