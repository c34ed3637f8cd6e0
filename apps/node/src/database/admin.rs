//! Maintenance connections: superuser sessions in `svc_node`, the node's own database.
//!
//! A superuser never opens a session in a database with objects of a tenant. A function of a tenant that runs in such a
//! session, for example in a `CHECK`, could `RESET ROLE` and own the cluster.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex as BlockingMutex, PoisonError};

use anyhow::Context as _;
use tokio::sync::{Mutex, watch};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::exclusive::{ExclusiveLock, Ownership};
use super::server::{ConnectError, Server};
use super::{tables, template};

/// The node's own database.
pub const DATABASE: &str = "svc_node";

/// The largest number of idle connections that the pool keeps.
const MAX_IDLE: usize = 8;

/// A pool of maintenance connections. Clones share it.
#[derive(Clone)]
pub struct Admin(Arc<Shared>);

struct Shared {
    server: Server,
    idle: BlockingMutex<Vec<Client>>,
    /// Whether this process has prepared the cluster. The mutex is locked during the preparation.
    is_prepared: Mutex<bool>,
    /// The lock that makes this node the only manager of the cluster. `None` for tools and tests, which may use the
    /// cluster at the same time as a node.
    lock: Option<ExclusiveLock>,
}

/// A maintenance connection, which returns to the pool when dropped.
pub struct AdminConnection {
    /// `None` only during the drop.
    client: Option<Client>,
    pool: Arc<Shared>,
}

impl Admin {
    /// Creates a pool without connections, for tools and tests.
    pub fn new(server: Server) -> Self {
        Self::with_lock(server, None)
    }

    /// Creates a pool without connections. It opens connections only while this node holds the cluster's lock.
    pub(super) fn exclusive(server: Server) -> Self {
        Self::with_lock(server, Some(ExclusiveLock::default()))
    }

    fn with_lock(server: Server, lock: Option<ExclusiveLock>) -> Self {
        Self(Arc::new(Shared { server, idle: BlockingMutex::default(), is_prepared: Mutex::new(false), lock }))
    }

    /// Takes the cluster's lock. Waits while another node holds it.
    pub(super) async fn acquire(&self) {
        if let Some(lock) = &self.0.lock {
            lock.acquire(&self.0.server).await;
        }
    }

    /// Waits until [`Self::acquire`], which runs in another task, has taken the cluster's lock.
    pub(super) async fn acquired(&self) {
        if let Some(lock) = &self.0.lock {
            // This cannot fail: `self` keeps the sender alive.
            let _ = lock.ownership().wait_for(|ownership| *ownership == Ownership::Held).await;
        }
    }

    /// Returns a channel that shows whether this node manages the cluster; `None` if other nodes may use it at the same
    /// time.
    pub(super) fn ownership(&self) -> Option<watch::Receiver<Ownership>> {
        self.0.lock.as_ref().map(ExclusiveLock::ownership)
    }

    /// Returns an idle connection, or a new one. The first call in a process prepares the cluster: it creates
    /// `svc_node` with its tables and `svc_template`, and revokes the access of other roles to the cluster's databases.
    ///
    /// # Errors
    /// Returns an error if Postgres is unreachable or cannot be prepared, or if another node manages the cluster.
    pub async fn connect(&self) -> anyhow::Result<AdminConnection> {
        let mut is_prepared = self.0.is_prepared.lock().await;
        if let Some(lock) = &self.0.lock {
            // If this call took the lock, another node may have changed the cluster before, so it must be prepared
            // again.
            *is_prepared &= !lock.hold(&self.0.server).await?;
        }
        if !*is_prepared {
            self.prepare().await.context("failed to prepare Postgres")?;
            *is_prepared = true;
        }
        drop(is_prepared);
        let idle = self.0.take_idle();
        let client = match idle {
            Some(client) => client,
            None => self.open().await.context("failed to connect to Postgres")?,
        };
        Ok(AdminConnection { client: Some(client), pool: Arc::clone(&self.0) })
    }

    /// Opens a session that is not in the pool.
    pub(super) async fn session(&self) -> anyhow::Result<Client> {
        drop(self.connect().await?);
        Ok(self.open().await?)
    }

    /// Opens a session in another database, which must not contain objects of a tenant.
    pub(super) async fn session_in(&self, database: &str) -> anyhow::Result<Client> {
        drop(self.connect().await?);
        Ok(self.0.server.connect(Some(database)).await?)
    }

    /// Prepares the cluster again before the next connection, for example after the template was dropped.
    pub async fn invalidate(&self) {
        *self.0.is_prepared.lock().await = false;
    }

    async fn open(&self) -> Result<Client, ConnectError> {
        let connected = self.0.server.connect(Some(DATABASE)).await;
        if let Err(error) = &connected
            && error.code() == Some(&SqlState::INVALID_CATALOG_NAME)
        {
            self.invalidate().await;
        }
        connected
    }

    async fn prepare(&self) -> anyhow::Result<()> {
        let server = &self.0.server;
        let initial = server.connect(None).await?;
        tables::create_database(&initial).await?;
        let own = server.connect(Some(DATABASE)).await?;
        tables::create(&own).await?;
        template::create(&own, server).await
    }
}

impl Shared {
    fn take_idle(&self) -> Option<Client> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|client| !client.is_closed());
        idle.pop()
    }
}

impl Deref for AdminConnection {
    type Target = Client;

    fn deref(&self) -> &Client {
        #[expect(clippy::expect_used, reason = "only `drop` empties the field")]
        self.client.as_ref().expect("a connection")
    }
}

impl DerefMut for AdminConnection {
    fn deref_mut(&mut self) -> &mut Client {
        #[expect(clippy::expect_used, reason = "only `drop` empties the field")]
        self.client.as_mut().expect("a connection")
    }
}

impl Drop for AdminConnection {
    /// Returns the connection to the pool. If a transaction was dropped on it, its rollback is sent before the next
    /// statement.
    fn drop(&mut self) {
        let mut idle = self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.extend(self.client.take().filter(|client| !client.is_closed()));
        }
    }
}

/// Quotes an identifier, for statements that accept no parameters.
pub fn quote_ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Quotes a literal, for statements that accept no parameters.
pub fn quote_literal(text: &str) -> String {
    // The prefix makes the meaning of a backslash independent of the session's settings.
    format!(" E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_cannot_be_closed() {
        assert_eq!(quote_ident("a\"b"), "\"a\"\"b\"");
        assert_eq!(quote_literal("a'b\\"), " E'a''b\\\\'");
    }
}
