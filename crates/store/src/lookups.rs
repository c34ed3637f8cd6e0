//! Short reads of many requests, which share one connection per thread.
//!
//! The client sends a statement before it has read the responses to the previous ones (pipelining). Under load, one
//! write to the socket then carries several statements and one read several responses, so that client and server wake
//! each other up less often. In return, a statement waits for the statements before it. So only statements that read a
//! few rows by key, without locks, belong here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::Instrument as _;

use crate::connect::Connector;
use crate::instrument::record_duration;
use crate::{Connection, Error, Result, Timeouts};

/// The largest number of statements that wait on one connection.
const MAX_STATEMENTS: usize = 64;

/// The longest wait for a response. A lookup takes less than a millisecond, and a change of the schema may block it for
/// a second.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// If a caller gives up after this time, the connection is replaced.
const SUSPICIOUS_WAIT: Duration = Duration::from_secs(1);

/// The shared connection of one thread. It is opened on demand.
pub(crate) struct LookupConnection {
    connector: Connector,
    current: Mutex<Option<Arc<Shared>>>,
    /// The attempt to connect, which continues after its caller gives up: it may take longer than a caller waits.
    connecting: tokio::sync::Mutex<Option<JoinHandle<Result<Shared>>>>,
    places: Semaphore,
    durations: Durations,
    timeouts: Timeouts,
}

/// The sum of the durations of successful lookups with their waits, in microseconds, and their number.
#[derive(Default)]
pub(crate) struct Durations {
    sum: AtomicU64,
    count: AtomicU64,
}

impl Durations {
    fn record(&self, duration: Duration) {
        self.sum.fetch_add(u64::try_from(duration.as_micros()).unwrap_or_default(), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Removes the sum and the number. A duration that is recorded at the same time may count in part.
    pub(crate) fn take(&self) -> (u64, u64) {
        (self.sum.swap(0, Ordering::Relaxed), self.count.swap(0, Ordering::Relaxed))
    }
}

struct Shared {
    connection: Connection,
    driver: JoinHandle<()>,
}

impl Shared {
    fn is_open(&self) -> bool {
        !self.driver.is_finished()
    }
}

/// A statement that was sent.
struct Attempt<'a> {
    lookups: &'a LookupConnection,
    shared: Arc<Shared>,
    since: Instant,
    is_complete: bool,
}

/// Replaces a connection that does not respond. Its loss may be visible only by the missing responses.
impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.is_complete || self.since.elapsed() < SUSPICIOUS_WAIT {
            return;
        }
        let mut current = self.lookups.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.take_if(|current| Arc::ptr_eq(current, &self.shared));
    }
}

/// Closes the connection. Otherwise it would stay open until Postgres has run all abandoned statements, and replaced
/// connections would accumulate while a table is locked.
impl Drop for Shared {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl LookupConnection {
    pub(crate) fn new(connector: Connector, timeouts: Timeouts) -> Self {
        let (current, connecting, places) =
            (Mutex::default(), tokio::sync::Mutex::default(), Semaphore::new(MAX_STATEMENTS));
        Self { connector, current, connecting, places, durations: Durations::default(), timeouts }
    }

    pub(crate) fn durations(&self) -> &Durations {
        &self.durations
    }

    /// Runs a statement. Reports the wait for a place and the connection.
    pub(crate) async fn run<T>(
        &self,
        statement: impl AsyncFnOnce(&Connection) -> Result<T>,
        report_wait: impl FnOnce(Duration),
    ) -> Result<T> {
        let unavailable = |message: &str| Error::Unavailable(message.into());
        let started = Instant::now();
        let acquire = async { (self.places.acquire().await, self.shared().await) };
        let acquired = timeout(self.timeouts.acquire, acquire).await;
        report_wait(started.elapsed());
        let (_place, shared) = acquired.map_err(|_| unavailable("no place on the connection for lookups in time"))?;
        let mut attempt = Attempt { lookups: self, shared: shared?, since: Instant::now(), is_complete: false };
        let span = tracing::debug_span!("statement", otel.kind = "client", db.system = "postgresql");
        let result = timeout(MAX_WAIT, statement(&attempt.shared.connection)).instrument(span).await;
        attempt.is_complete = result.is_ok();
        let result = result.unwrap_or_else(|_| Err(unavailable("no response on the connection for lookups in time")));
        record_duration(attempt.since, result.is_err());
        if result.is_ok() {
            self.durations.record(started.elapsed());
        }
        result
    }

    /// Returns the connection. Opens another one if the last one has ended.
    async fn shared(&self) -> Result<Arc<Shared>> {
        if let Some(open) = self.open() {
            return Ok(open);
        }
        let mut connecting = self.connecting.lock().await;
        if let Some(open) = self.open() {
            return Ok(open);
        }
        // The result of an attempt whose caller gave up. If it failed, the next attempt may succeed.
        let ended = match connecting.take_if(|attempt| attempt.is_finished()) {
            Some(attempt) => attempt.await.ok().and_then(Result::ok).filter(Shared::is_open),
            None => None,
        };
        let shared = match ended {
            Some(shared) => shared,
            None => {
                let attempt = || tokio::spawn(connect(self.connector.clone(), self.timeouts.create));
                let opened = connecting.get_or_insert_with(attempt).await;
                *connecting = None;
                opened.map_err(|error| Error::Unavailable(error.into()))??
            }
        };
        let shared = Arc::new(shared);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&shared));
        Ok(shared)
    }

    fn open(&self) -> Option<Arc<Shared>> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().filter(|shared| shared.is_open()).cloned()
    }
}

async fn connect(connector: Connector, create_timeout: Duration) -> Result<Shared> {
    let opened = timeout(create_timeout, connector.connect_with_driver()).await;
    let opened = opened.map_err(|error| Error::Unavailable(error.into()))?;
    let (connection, driver) = opened.map_err(|error| Error::Unavailable(error.into()))?;
    Ok(Shared { connection, driver })
}
