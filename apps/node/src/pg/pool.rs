//! The connections of a project.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use super::SMALL_BYTES;
use super::call::{Call, execute};
use super::connection::Connection;
use super::error::{DatabaseError, Failure, Result};
use super::limits::Limits;
use super::metrics::CallMetrics;
use super::output::{Chunks, Output};
use super::statement::Statement;
use super::wire::MAX_RESULT_BYTES;
use crate::database::registry::Connection as Access;
use crate::database::server::Credentials;
use crate::memory::{Memory, OwnerMemory, Reservation};

/// The state that the pools of all projects share.
pub(super) struct Shared {
    /// The memory of large arguments.
    arguments: Memory,
    /// The memory of large rows.
    rows: Memory,
    metrics: CallMetrics,
    /// The runtime of the calls. They outlive a request.
    runtime: Handle,
}

impl Shared {
    /// Creates the shared state. Must be called within the runtime that executes the calls.
    pub fn new(metrics: CallMetrics) -> Self {
        Self { arguments: super::memory(), rows: super::memory(), metrics, runtime: Handle::current() }
    }
}

/// The connections of a project. They are opened when they are needed.
pub struct Pool {
    project: String,
    access: watch::Receiver<Access>,
    limits: Limits,
    slots: Arc<Semaphore>,
    idle: Mutex<Vec<Idle>>,
    shared: Arc<Shared>,
}

/// A connection that no call uses.
struct Idle {
    connection: Connection,
    generation: u64,
    since: Instant,
}

/// A connection that a call uses.
struct CheckedOut {
    connection: Connection,
    generation: u64,
    /// Whether an earlier call used the connection. The server may have closed it since.
    is_reused: bool,
}

impl Pool {
    /// Creates the pool of a project. Must be called within the runtime that executes its calls.
    #[must_use]
    pub fn new(project: &str, access: watch::Receiver<Access>, limits: Limits, metrics: CallMetrics) -> Arc<Self> {
        Self::shared(project, access, limits, Arc::new(Shared::new(metrics)))
    }

    /// Creates a pool that shares the limits on memory with other pools.
    pub(super) fn shared(
        project: &str,
        access: watch::Receiver<Access>,
        limits: Limits,
        shared: Arc<Shared>,
    ) -> Arc<Self> {
        let pool = Arc::new(Self {
            project: project.to_owned(),
            access: access.clone(),
            limits,
            slots: Arc::new(Semaphore::new(limits.connections)),
            idle: Mutex::default(),
            shared,
        });
        pool.shared.runtime.spawn(close_unused(Arc::downgrade(&pool), access, limits.idle));
        pool
    }

    /// Waits for the memory of arguments. The reservation must be held until the call has ended.
    ///
    /// # Errors
    /// Returns [`DatabaseError::Busy`] if the owner has too many large calls.
    pub async fn reserve(&self, owner: &str, bytes: usize) -> Result<Option<Reservation>> {
        if bytes <= SMALL_BYTES {
            return Ok(None);
        }
        let arguments = self.shared.arguments.of(owner);
        let reserved = timeout(self.limits.wait, arguments.reserve(bytes)).await;
        reserved.ok().and_then(std::result::Result::ok).map(Some).ok_or(DatabaseError::NO_MEMORY)
    }

    /// Reserves the memory of parsed statements, until the reservation is dropped. Does not wait: calls that hold the
    /// memory of their bodies would wait for each other.
    fn reserve_parsed(&self, call: &Call) -> Result<Option<Reservation>> {
        let bytes = Statement::parsed_bytes(&call.body)?;
        if bytes <= SMALL_BYTES {
            return Ok(None);
        }
        let arguments = self.shared.arguments.of(&call.owner);
        if call.body.len() + bytes > arguments.owner_bytes() {
            return Err(DatabaseError::InvalidArgument(
                "The statements have too many parameters and array elements for one call.".to_owned(),
            ));
        }
        arguments.try_reserve(bytes).map(Some).map_err(|_| DatabaseError::NO_MEMORY)
    }

    /// Begins a call. It is canceled when the chunks of its result are dropped.
    pub fn call(self: &Arc<Self>, call: Call) -> Chunks {
        let (output, chunks) = Output::new(MAX_RESULT_BYTES);
        self.shared.runtime.spawn(Arc::clone(self).serve(call, output));
        chunks
    }

    /// Executes a call and ends its result. Concurrently makes the connection ready for the next call.
    async fn serve(self: Arc<Self>, call: Call, mut output: Output) {
        let receiver = output.receiver();
        let prepared = async {
            let memory = self.reserve_parsed(&call)?;
            let statements = call.statements()?;
            Ok((memory, statements, self.wait_for_slot().await?))
        };
        let prepared = tokio::select! {
            prepared = prepared => prepared,
            () = receiver.closed() => return,
        };
        let (result, rest, slot) = match prepared {
            Ok((memory, statements, slot)) => {
                let gone = receiver.closed();
                let (result, rest) = self.execute(&call, &statements, &mut output, gone).await;
                drop((statements, memory));
                (result, rest, Some(slot))
            }
            Err(error) => (Err(error), Rest::Nothing, None),
        };
        if !receiver.is_closed() {
            self.shared.metrics.count(call.mode, &result);
        }
        drop((receiver, call));
        let release = async {
            self.release(rest).await;
            drop(slot);
        };
        tokio::join!(output.finish(result), release);
    }

    async fn wait_for_slot(&self) -> Result<OwnedSemaphorePermit> {
        let slot = Arc::clone(&self.slots).acquire_owned();
        tokio::select! {
            slot = timeout(self.limits.wait, slot) => {
                slot.ok().and_then(std::result::Result::ok).ok_or(DatabaseError::NO_CONNECTION)
            }
            () = self.changed(|access| matches!(access, Access::Closed)) => Err(DatabaseError::CLOSED),
        }
    }

    async fn execute(
        &self,
        call: &Call,
        statements: &[Statement<'_>],
        output: &mut Output,
        gone: impl Future<Output = ()>,
    ) -> (Result<()>, Rest) {
        tokio::pin!(gone);
        loop {
            let checked_out = tokio::select! {
                checked_out = self.check_out(&call.owner) => checked_out,
                () = &mut gone => return (Err(DatabaseError::LOST), Rest::Nothing),
            };
            let CheckedOut { mut connection, generation, is_reused } = match checked_out {
                Ok(checked_out) => checked_out,
                Err(error) => return (Err(error), Rest::Nothing),
            };
            let executed = tokio::select! {
                executed = execute(&mut connection, call.mode, statements, output, self.limits) => executed,
                () = &mut gone => Err(Failure::Abandoned),
                () = self.changed(|access| !is_open_as(access, generation)) => Err(Failure::Fatal(DatabaseError::LOST)),
            };
            let was_lost = match &executed {
                Err(Failure::Broken(_)) => true,
                Err(Failure::Server(error)) => error.is_fatal,
                _ => false,
            };
            if was_lost && is_reused && !connection.has_begun() {
                continue;
            }
            return self.settle(executed, connection, generation);
        }
    }

    /// Returns the result of a call, and the remaining work on its connection.
    fn settle(
        &self,
        executed: std::result::Result<(), Failure>,
        connection: Connection,
        generation: u64,
    ) -> (Result<()>, Rest) {
        match executed {
            Ok(()) => (Ok(()), Rest::Reset(connection, generation)),
            Err(Failure::Call(error)) => (Err(error), Rest::Reset(connection, generation)),
            Err(Failure::Server(error)) if !error.is_fatal => (Err(error.into()), Rest::Reset(connection, generation)),
            Err(Failure::Fatal(error)) => (Err(error), Rest::Abort(connection)),
            Err(Failure::Abandoned) => (Err(DatabaseError::LOST), Rest::Abort(connection)),
            Err(failure @ (Failure::Server(_) | Failure::Broken(_))) => {
                tracing::warn!(project = self.project, error = %failure, "a session of env.db was lost");
                (Err(DatabaseError::LOST), Rest::Abort(connection))
            }
        }
    }

    async fn release(&self, rest: Rest) {
        match rest {
            Rest::Nothing => {}
            Rest::Abort(connection) => connection.abort().await,
            Rest::Reset(mut connection, generation) => {
                if connection.reset().await {
                    // If the access changes later, the connection is closed again.
                    let access = self.access.borrow();
                    if is_open_as(&access, generation) {
                        self.idle().push(Idle { connection, generation, since: Instant::now() });
                    }
                }
            }
        }
    }

    /// Takes the connection that was used last, or opens one. Its large rows use the memory of the owner.
    async fn check_out(&self, owner: &str) -> Result<CheckedOut> {
        let (generation, credentials) = match &*self.access.borrow() {
            Access::Open { generation, credentials } => (*generation, Arc::clone(credentials)),
            Access::Closed => return Err(DatabaseError::CLOSED),
        };
        let rows = self.shared.rows.of(owner);
        while let Some(mut idle) = self.take_idle() {
            if idle.generation == generation && idle.connection.is_open() {
                idle.connection.set_memory(rows);
                return Ok(CheckedOut { connection: idle.connection, generation, is_reused: true });
            }
        }
        let connection = tokio::select! {
            opened = self.open(&credentials, rows) => opened?,
            () = self.changed(|access| !is_open_as(access, generation)) => return Err(DatabaseError::CLOSED),
        };
        Ok(CheckedOut { connection, generation, is_reused: false })
    }

    async fn open(&self, credentials: &Credentials, rows: OwnerMemory) -> Result<Connection> {
        Connection::open(credentials, rows).await.map_err(|failure| {
            tracing::warn!(project = self.project, error = %failure, "failed to connect to the database of a project");
            DatabaseError::FAILED
        })
    }

    fn take_idle(&self) -> Option<Idle> {
        self.idle().pop()
    }

    /// Closes connections that were unused for too long, or that were opened with an earlier access.
    fn close_unused(&self) {
        let max = self.limits.idle;
        let access = self.access.borrow();
        self.idle().retain(|idle| idle.since.elapsed() < max && is_open_as(&access, idle.generation));
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether no call uses the pool and no connection could be reused. The caller must hold exactly one
    /// reference.
    pub(super) fn is_unused(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1 && self.idle().is_empty()
    }

    /// Waits until `is` returns true for the access to the database, or until the node stops.
    async fn changed(&self, is: impl Fn(&Access) -> bool) {
        let _ = self.access.clone().wait_for(is).await;
    }
}

/// The remaining work on the connection of a call.
enum Rest {
    Nothing,
    /// Another call may use it after a reset.
    Reset(Connection, u64),
    Abort(Connection),
}

fn is_open_as(access: &Access, expected: u64) -> bool {
    matches!(access, Access::Open { generation, .. } if *generation == expected)
}

async fn close_unused(pool: Weak<Pool>, mut access: watch::Receiver<Access>, idle: Duration) {
    loop {
        tokio::select! {
            changed = access.changed() => if changed.is_err() { return },
            () = sleep(idle / 4) => {}
        }
        let Some(pool) = pool.upgrade() else { return };
        pool.close_unused();
    }
}
