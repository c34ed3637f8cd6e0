//! The pool, and its connections, which never return to it in the middle of a transaction.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use diesel_async::pooled_connection::deadpool::Object;
use diesel_async::{AsyncConnection, TransactionManager as _};
use kernel::ClockRng;
use kernel::seal::Keys;

use crate::caller_check::FindCallerCheck;
use crate::clock_check::ClockCheck;
use crate::config::InvalidUrl;
use crate::connect::Connector;
use crate::instrument::{InFlight, StatementInstrumentation};
use crate::per_thread_pools::PerThreadPools;
use crate::{Config, Connection, Error, Listener, PoolStatus, Result};

/// The `NOTIFY` channel of outbox messages. The payload is the topic; an empty payload means all topics.
pub(crate) const OUTBOX_CHANNEL: &str = "outbox";

/// The database of this process: its pool, the clock and RNG for ids and times, and the sealing keys. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pools: Arc<PerThreadPools>,
    connector: Connector,
    clock_rng: ClockRng,
    clock_check: ClockCheck,
    keys: Keys,
    lock_timeout: Duration,
    find_caller_check: FindCallerCheck,
    outbox_listener: Arc<Mutex<Weak<Listener>>>,
}

impl Store {
    /// Creates the pool, which opens connections on demand.
    ///
    /// # Errors
    /// Returns [`InvalidUrl`] if the address is invalid.
    pub fn new(config: &Config, clock_rng: ClockRng) -> std::result::Result<Self, InvalidUrl> {
        let connector = Connector::new(config.parse_url()?)?;
        let pools = PerThreadPools::new(config, &connector)?;
        let keys = config.keys.clone();
        Ok(Self {
            pools: Arc::new(pools),
            connector,
            clock_rng,
            clock_check: ClockCheck::new(config.system_clock.clone()),
            keys,
            lock_timeout: config.timeouts.lock,
            find_caller_check: |_, _| None,
            outbox_listener: Arc::default(),
        })
    }

    /// Makes every transaction of a user check the caller again. Without this, the program that embeds the contexts
    /// must check its callers.
    #[must_use]
    pub fn with_caller_checks(self, find: FindCallerCheck) -> Self {
        Self { find_caller_check: find, ..self }
    }

    /// Gives this thread connections that no other thread uses. The thread must run its own runtime and serve requests
    /// until it ends. Its runtime then reads the responses from Postgres that the thread waits for.
    pub fn bind_pool_to_thread(&self) {
        self.pools.bind_to_thread();
    }

    /// Returns the number of pools that serve requests. Each has its own queue.
    #[must_use]
    pub fn pool_count(&self) -> usize {
        self.pools.count()
    }

    /// Returns the index of this thread's pool.
    #[must_use]
    pub fn pool_index() -> usize {
        PerThreadPools::index()
    }

    /// Returns the clock and RNG for ids and times.
    #[must_use]
    pub fn clock_rng(&self) -> &ClockRng {
        &self.clock_rng
    }

    /// Returns a connection for reads. Writes use [`Store::transaction`].
    ///
    /// # Errors
    /// Returns [`Error::Unavailable`] if no connection is free in time, or Postgres is unreachable.
    pub async fn connection(&self) -> Result<PooledConnection> {
        let started = Instant::now();
        let object = self.pools.current().get().await;
        self.pools.record_wait(started.elapsed());
        let mut object = object.map_err(|error| Error::Unavailable(error.into()))?;
        let in_flight = InFlight::default();
        object.set_instrumentation(StatementInstrumentation::new(in_flight.clone()));
        Ok(PooledConnection { object: Some(object), in_flight, connector: self.connector.clone() })
    }

    /// Runs a statement that reads a few rows by key and takes no locks. The statements of a server thread share a
    /// connection, so that a slow one delays the others.
    ///
    /// # Errors
    /// Returns [`Error::Unavailable`] if too many statements wait or Postgres is unreachable, and the error of the
    /// statement.
    pub async fn lookup<T>(&self, statement: impl AsyncFnOnce(&Connection) -> Result<T>) -> Result<T> {
        match self.pools.lookups() {
            Some(lookups) => lookups.run(statement, |wait| self.pools.record_lookup_wait(wait)).await,
            None => statement(&*self.connection().await?).await,
        }
    }

    /// Returns the shortest wait of a request for a connection, of the waits that ended since the last call, including
    /// those that failed. It is long only if every request had to wait. Returns `None` if no wait ended.
    #[must_use]
    pub fn take_shortest_wait(&self) -> Option<Duration> {
        self.pools.take_shortest_wait()
    }

    /// Returns the mean duration of the successful lookups since the last mean, with their waits. Returns `None` for
    /// fewer than ten, and if threads share the pool.
    #[must_use]
    pub fn take_mean_lookup(&self) -> Option<Duration> {
        self.pools.take_mean_lookup()
    }

    /// Returns the usage of the pool.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        self.pools.status()
    }

    pub(crate) fn find_caller_check(&self) -> FindCallerCheck {
        self.find_caller_check
    }

    pub(crate) fn clock_check(&self) -> &ClockCheck {
        &self.clock_check
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) fn lock_timeout(&self) -> Duration {
        self.lock_timeout
    }

    /// Returns the listener for outbox messages. All outbox workers of this process share it; it ends with the last
    /// one.
    pub(crate) fn outbox_listener(&self) -> Arc<Listener> {
        let mut shared = self.outbox_listener.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let listener = Arc::new(self.listen(OUTBOX_CHANNEL));
            *shared = Arc::downgrade(&listener);
            listener
        })
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.connector
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("pool", &self.status()).finish_non_exhaustive()
    }
}

/// A connection from the pool.
///
/// A request can be dropped at any await. Its connection may then have an open transaction with row locks, or a running
/// statement that blocks the next user. deadpool would put such a connection back into the pool; this type closes it
/// immediately.
pub struct PooledConnection {
    object: Option<Object<Connection>>,
    in_flight: InFlight,
    connector: Connector,
}

impl std::ops::Deref for PooledConnection {
    type Target = Connection;

    #[expect(clippy::expect_used, reason = "only drop takes the object")]
    fn deref(&self) -> &Connection {
        self.object.as_ref().expect("present until drop")
    }
}

impl std::ops::DerefMut for PooledConnection {
    #[expect(clippy::expect_used, reason = "only drop takes the object")]
    fn deref_mut(&mut self) -> &mut Connection {
        self.object.as_mut().expect("present until drop")
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        let Some(mut object) = self.object.take() else { return };
        let in_transaction =
            <Connection as AsyncConnection>::TransactionManager::is_broken_transaction_manager(&mut *object);
        if !in_transaction && !self.in_flight.get() {
            return;
        }
        let connection = Object::take(object);
        let token = connection.cancel_token();
        drop(connection);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let connector = self.connector.clone();
            runtime.spawn(async move { connector.cancel(token).await });
        }
    }
}
