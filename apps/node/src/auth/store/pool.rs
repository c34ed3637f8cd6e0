//! The connections of app user auth to the databases of projects.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::{Result, StoreError, schema};
use crate::database::registry::{AuthAccess, Registry};

/// The largest number of connections of a project that serve visitors and worker code.
const MAX_CONNECTIONS: usize = 8;
/// The longest wait for a connection, which includes its opening.
const WAIT_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest time to open a connection, also after its caller gave up.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest wait for a statement. Postgres cancels it after [`STATEMENT_TIMEOUT`].
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(4);
/// The longest time of a statement that serves a visitor or worker code.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(3);
/// An unused connection is closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The pools of all projects, created at their first use.
pub struct Pools {
    /// `None` if the node has no databases.
    registry: Option<Registry>,
    runtime: Handle,
    pools: Mutex<HashMap<String, Arc<Pool>>>,
}

/// The connections of a project.
pub struct Pool {
    project: String,
    registry: Option<Registry>,
    /// The runtime of the connections. They outlive the thread of a request.
    runtime: Handle,
    slots: Arc<Semaphore>,
    idle: Mutex<Vec<Idle>>,
    /// The number of sessions that were created.
    sign_ins: AtomicU64,
}

/// A connection with the statements that it has prepared.
struct Connection {
    client: Client,
    generation: u64,
    statements: HashMap<&'static str, Statement>,
}

struct Idle {
    connection: Connection,
    since: Instant,
}

/// A connection in use, which returns to its pool when dropped.
pub struct Session {
    /// `None` only during the drop.
    connection: Option<Connection>,
    pool: Arc<Pool>,
    is_reused: bool,
    _slot: OwnedSemaphorePermit,
}

impl Pools {
    /// Creates the pools of the databases in the registry. Must be called within the runtime of the connections.
    pub fn new(registry: Option<Registry>) -> Self {
        Self { registry, runtime: Handle::current(), pools: Mutex::default() }
    }

    /// Returns the pool of a project.
    pub fn get(&self, project: &str) -> Arc<Pool> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(project) {
            return Arc::clone(pool);
        }
        let pool = Arc::new(Pool {
            project: project.to_owned(),
            registry: self.registry.clone(),
            runtime: self.runtime.clone(),
            slots: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            idle: Mutex::default(),
            sign_ins: AtomicU64::new(0),
        });
        self.runtime.spawn(close_unused(Arc::downgrade(&pool)));
        pools.insert(project.to_owned(), Arc::clone(&pool));
        pool
    }

    /// Drops the pools of the projects for which `is_enabled` returns false.
    pub fn retain(&self, is_enabled: impl Fn(&str) -> bool) {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner).retain(|project, _| is_enabled(project));
    }
}

impl Pool {
    /// Returns how the node reaches the database now.
    ///
    /// # Errors
    /// Returns [`StoreError::CLOSED`] while it does not.
    pub fn access(&self) -> Result<AuthAccess> {
        self.registry.as_ref().and_then(|registry| registry.auth(&self.project)).ok_or(StoreError::CLOSED)
    }

    /// Returns the number of sessions that were created since the start of the node.
    pub fn sign_ins(&self) -> u64 {
        self.sign_ins.load(Ordering::Relaxed)
    }

    pub fn count_sign_in(&self) {
        self.sign_ins.fetch_add(1, Ordering::Relaxed);
    }

    /// Executes one statement. If an idle connection turns out to be closed, executes it on another one.
    pub async fn query(
        self: &Arc<Self>,
        statement: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        loop {
            let mut session = self.session().await?;
            let result = session.query(statement, parameters).await;
            match result {
                Err(StoreError::Postgres(error)) if error.is_closed() && session.is_reused => {}
                result => return result,
            }
        }
    }

    /// Returns an idle connection, or a new one whose schema is the current one.
    pub async fn session(self: &Arc<Self>) -> Result<Session> {
        let wait = async {
            let slot = Arc::clone(&self.slots).acquire_owned().await.map_err(|_| StoreError::CLOSED)?;
            let access = self.access()?;
            match self.take_idle(access.generation) {
                Some(connection) => Ok(Session::new(connection, Arc::clone(self), true, slot)),
                None => self.open(access, slot).await,
            }
        };
        timeout(WAIT_TIMEOUT, wait).await.unwrap_or(Err(StoreError::BUSY))
    }

    /// Opens a connection in a task, which continues if the caller gives up: it holds the slot until then, and the
    /// connection then returns to the pool. So callers that give up cause no further connections.
    async fn open(self: &Arc<Self>, access: AuthAccess, slot: OwnedSemaphorePermit) -> Result<Session> {
        let pool = Arc::clone(self);
        let open = async move {
            let mut client = connect(&access, STATEMENT_TIMEOUT).await?;
            schema::prepare(&mut client, &access).await?;
            let connection = Connection { client, generation: access.generation, statements: HashMap::new() };
            Ok(Session::new(connection, pool, false, slot))
        };
        let open = async { timeout(OPEN_TIMEOUT, open).await.unwrap_or(Err(StoreError::TIMED_OUT)) };
        self.runtime.spawn(open).await.unwrap_or(Err(StoreError::CLOSED))
    }

    fn take_idle(&self, generation: u64) -> Option<Connection> {
        let mut idle = self.idle();
        idle.retain(|idle| idle.connection.is_usable(generation));
        idle.pop().map(|idle| idle.connection)
    }

    fn close_unused(&self) {
        let generation = self.access().map(|access| access.generation).ok();
        self.idle().retain(|idle| {
            idle.since.elapsed() < IDLE_TIMEOUT && generation.is_some_and(|it| idle.connection.is_usable(it))
        });
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    fn is_usable(&self, generation: u64) -> bool {
        self.generation == generation && !self.client.is_closed()
    }
}

impl Session {
    const fn new(connection: Connection, pool: Arc<Pool>, is_reused: bool, slot: OwnedSemaphorePermit) -> Self {
        Self { connection: Some(connection), pool, is_reused, _slot: slot }
    }

    /// Executes a statement, which is prepared once per connection.
    pub async fn query(&mut self, statement: &'static str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let execute = async {
            let prepared = match self.connection().statements.get(statement) {
                Some(prepared) => prepared.clone(),
                None => {
                    let prepared = self.prepare(statement).await?;
                    self.connection_mut().statements.insert(statement, prepared.clone());
                    prepared
                }
            };
            Ok(self.connection().client.query(&prepared, parameters).await?)
        };
        timeout(RESPONSE_TIMEOUT, execute).await.unwrap_or(Err(StoreError::TIMED_OUT))
    }

    #[expect(clippy::expect_used, reason = "only drop takes the connection")]
    fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("a connection")
    }

    #[expect(clippy::expect_used, reason = "only drop takes the connection")]
    fn connection_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("a connection")
    }
}

impl Deref for Session {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.connection().client
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.connection_mut().client
    }
}

impl Drop for Session {
    /// Returns the connection to the pool. If a transaction was dropped on it, its rollback is sent before the next
    /// statement.
    fn drop(&mut self) {
        let connection = self.connection.take().filter(|connection| !connection.client.is_closed());
        self.pool.idle().extend(connection.map(|connection| Idle { connection, since: Instant::now() }));
    }
}

/// Opens a connection. The project can change the defaults of its database, so the session sets everything that matters.
pub async fn connect(access: &AuthAccess, statement_timeout: Duration) -> Result<Client> {
    let options = format!(
        "-c search_path=pg_catalog -c role=none -c default_transaction_read_only=off \
         -c default_transaction_isolation=read\\ committed -c synchronous_commit=on -c jit=off -c vacuum_cost_delay=0 \
         -c statement_timeout={} -c lock_timeout=2s -c idle_in_transaction_session_timeout=10s \
         -c client_min_messages=warning",
        statement_timeout.as_millis()
    );
    Ok(access.credentials.connect_with(&options).await?)
}

async fn close_unused(pool: Weak<Pool>) {
    loop {
        sleep(IDLE_TIMEOUT / 4).await;
        let Some(pool) = pool.upgrade() else { return };
        pool.close_unused();
    }
}
