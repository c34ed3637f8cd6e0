//! The lock that makes one node the manager of a Postgres cluster: an advisory lock in `svc_node`, which the manager
//! holds from its start to its end. Without it, two nodes would drop each other's databases.

use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::admin::DATABASE;
use super::server::Server;
use super::tables;

/// The key of the lock: "svc_node" in ASCII.
const KEY: i64 = 0x7376_635f_6e6f_6465;
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long a starting node waits before it reports that another one holds the lock. The session of a killed node ends
/// within this time.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Whether this node manages the cluster.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// Not known yet, because Postgres is unreachable.
    #[default]
    Unknown,
    /// This node manages the cluster.
    Held,
    /// Another node manages the cluster.
    Other,
}

/// The lock, which is not held at first. Postgres releases it when its session ends, even if the node is killed or its
/// machine is lost.
#[derive(Default)]
pub struct ExclusiveLock {
    session: Mutex<Option<Client>>,
    ownership: watch::Sender<Ownership>,
}

impl ExclusiveLock {
    /// Returns a channel that shows whether this node manages the cluster.
    pub fn ownership(&self) -> watch::Receiver<Ownership> {
        self.ownership.subscribe()
    }

    /// Takes the lock if this node does not hold it. Returns whether this call took it.
    ///
    /// # Errors
    /// Returns an error if Postgres is unreachable, or another node holds the lock.
    pub async fn hold(&self, server: &Server) -> anyhow::Result<bool> {
        let taken = self.try_hold(server).await?;
        if taken.is_none() && self.ownership.send_replace(Ownership::Other) != Ownership::Other {
            tracing::error!(
                "another node manages this Postgres server (SVC_NODE_DATABASE_URL): this one changes nothing there until \
                 the other one ends"
            );
        }
        taken.ok_or_else(|| anyhow::anyhow!("another node manages this Postgres server"))
    }

    /// Waits for the lock.
    pub async fn acquire(&self, server: &Server) {
        let began = Instant::now();
        let mut has_failed = false;
        loop {
            match self.try_hold(server).await {
                Ok(Some(_)) => return,
                Ok(None) if began.elapsed() < TIMEOUT => {}
                // `hold` logs once that another node has the lock.
                Ok(None) => drop(self.hold(server).await),
                Err(error) if !has_failed => {
                    has_failed = true;
                    tracing::error!(error = format!("{error:#}"), "failed to connect to Postgres; retrying");
                }
                Err(_) => {}
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns whether this call took the lock; `None` if another node holds it.
    async fn try_hold(&self, server: &Server) -> anyhow::Result<Option<bool>> {
        let mut session = self.session.lock().await;
        if session.as_ref().is_some_and(|session| !session.is_closed()) {
            return Ok(Some(false));
        }
        let new = connect(server).await?;
        let is_locked: bool = new.query_one("SELECT pg_try_advisory_lock($1)", &[&KEY]).await?.get(0);
        if !is_locked {
            return Ok(None);
        }
        *session = Some(new);
        if self.ownership.send_replace(Ownership::Held) == Ownership::Other {
            tracing::info!("this node manages the Postgres server now");
        }
        Ok(Some(true))
    }
}

async fn connect(server: &Server) -> anyhow::Result<Client> {
    match server.connect(Some(DATABASE)).await {
        Err(error) if error.code() == Some(&SqlState::INVALID_CATALOG_NAME) => {
            let initial = server.connect(None).await?;
            tables::create_database(&initial).await?;
            Ok(server.connect(Some(DATABASE)).await?)
        }
        connected => Ok(connected?),
    }
}
