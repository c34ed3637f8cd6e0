//! The pool, divided among threads.
//!
//! A connection's messages are read and written by a task of the runtime that opened it. Were that another thread than the
//! one that waits for an answer, each statement would wake two threads on its way: on a machine of few cores that costs
//! more than all else a request does. So each thread that serves requests has connections of its own; what runs beside the
//! requests shares the others.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool::Runtime;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod};

use crate::config::InvalidUrl;
use crate::connect::Connector;
use crate::{Config, Connection};

/// How long a request waits for a connection before it is told to come back.
const WAIT: Duration = Duration::from_millis(500);

/// Of so many connections one is for what runs beside the requests, where threads are settled.
const BESIDE: usize = 4;

/// The least that is worth dividing: threads that would have fewer go together.
const LEAST: usize = 3;

thread_local! {
    /// Which of the shares is this thread's.
    static SETTLED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// How busy the pool is.
#[derive(Debug, Clone, Copy)]
pub struct PoolStatus {
    /// Connections that are open.
    pub open: usize,
    /// Open connections that are not in use.
    pub idle: usize,
    /// Requests that wait for one.
    pub waiting: usize,
}

pub(crate) struct Shares {
    /// For whoever is not settled.
    shared: Pool<Connection>,
    own: Vec<Pool<Connection>>,
    settled: AtomicUsize,
}

impl Shares {
    pub(crate) fn new(config: &Config, connector: &Connector) -> Result<Self, InvalidUrl> {
        let connections = config.connections.max(1);
        let beside = (connections / BESIDE).max(1);
        let threads = config.threads.min((connections - beside) / LEAST);
        let shared = if threads == 0 { connections } else { beside };
        let rest = connections - shared;
        let own = (0..threads).map(|thread| pool(connector, rest / threads + usize::from(thread < rest % threads)));
        let own = own.collect::<Result<_, _>>()?;
        Ok(Self { shared: pool(connector, shared)?, own, settled: AtomicUsize::new(0) })
    }

    /// Makes the next share this thread's; it may be that of another as well.
    pub(crate) fn settle(&self) {
        let share = self.settled.fetch_add(1, Ordering::Relaxed).checked_rem(self.own.len());
        SETTLED.set(share);
    }

    /// The connections that this thread uses.
    pub(crate) fn here(&self) -> &Pool<Connection> {
        SETTLED.get().and_then(|share| self.own.get(share)).unwrap_or(&self.shared)
    }

    pub(crate) fn status(&self) -> PoolStatus {
        let all = self.own.iter().chain([&self.shared]).map(Pool::status);
        all.fold(PoolStatus { open: 0, idle: 0, waiting: 0 }, |sum, it| PoolStatus {
            open: sum.open + it.size,
            idle: sum.idle + it.available,
            waiting: sum.waiting + it.waiting,
        })
    }
}

fn pool(connector: &Connector, connections: usize) -> Result<Pool<Connection>, InvalidUrl> {
    let mut manager = ManagerConfig::default();
    // Whether a connection is still open is known without asking Postgres.
    manager.recycling_method = RecyclingMethod::Fast;
    let connector = connector.clone();
    manager.custom_setup = Box::new(move |_| {
        let connector = connector.clone();
        Box::pin(async move { connector.connect().await })
    });
    Pool::builder(AsyncDieselConnectionManager::new_with_config("", manager))
        .max_size(connections)
        .wait_timeout(Some(WAIT))
        .create_timeout(Some(Duration::from_secs(2)))
        .recycle_timeout(Some(Duration::from_secs(1)))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|error| InvalidUrl(error.to_string()))
}
