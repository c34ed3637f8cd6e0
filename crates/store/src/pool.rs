//! The pool, and the lease that never hands back a connection in the middle of a transaction.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use diesel_async::pooled_connection::deadpool::Object;
use diesel_async::{AsyncConnection, TransactionManager as _};
use kernel::World;
use kernel::seal::Keys;

use crate::config::InvalidUrl;
use crate::connect::Connector;
use crate::instrument::{InFlight, Statements};
use crate::shares::Shares;
use crate::{Config, Connection, Error, Listener, PoolStatus, Result};

/// The channel that announces outbox messages. The payload names the topic; an empty one means all topics.
pub(crate) const OUTBOX_CHANNEL: &str = "outbox";

/// The database of this process: its pool, the [`World`] that ids and times of rows come from, and the keys of what is
/// sealed in rows. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    shares: Arc<Shares>,
    connector: Connector,
    world: World,
    keys: Keys,
    outbox_listener: Arc<Mutex<Weak<Listener>>>,
}

impl Store {
    /// Prepares the pool; connections are opened when they are first needed.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub fn new(config: &Config, world: World) -> std::result::Result<Self, InvalidUrl> {
        let connector = Connector::new(config.target()?)?;
        let shares = Shares::new(config, &connector)?;
        let (world, keys) = (world, config.keys.clone());
        Ok(Self { shares: Arc::new(shares), connector, world, keys, outbox_listener: Arc::default() })
    }

    /// Gives this thread, which runs a runtime of its own and serves requests for as long as it lives, connections that no
    /// other thread uses: what Postgres answers is read where it is waited for.
    pub fn settle(&self) {
        self.shares.settle();
    }

    /// Where ids and times come from.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// A connection for reading. What changes anything goes through [`Store::transaction`].
    ///
    /// # Errors
    /// [`Error::Unavailable`] when none is free or Postgres is away.
    pub async fn connection(&self) -> Result<Lease> {
        let mut object = self.shares.here().get().await.map_err(|error| Error::Unavailable(error.into()))?;
        let in_flight = InFlight::default();
        object.set_instrumentation(Statements::of(in_flight.clone()));
        Ok(Lease { object: Some(object), in_flight, connector: self.connector.clone() })
    }

    /// How busy the pool is.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        self.shares.status()
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Listens for what is enqueued: one connection for all passes of this process, for as long as there are any.
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

/// A connection on loan from the pool.
///
/// A request may be given up at any await. deadpool would take the connection back with its transaction open and its
/// row locks held, or with a statement running that the next user waits behind; the lease closes such a connection at
/// once instead.
pub struct Lease {
    object: Option<Object<Connection>>,
    in_flight: InFlight,
    connector: Connector,
}

impl std::ops::Deref for Lease {
    type Target = Connection;

    #[expect(clippy::expect_used, reason = "the object is taken in drop alone")]
    fn deref(&self) -> &Connection {
        self.object.as_ref().expect("held until dropped")
    }
}

impl std::ops::DerefMut for Lease {
    #[expect(clippy::expect_used, reason = "the object is taken in drop alone")]
    fn deref_mut(&mut self) -> &mut Connection {
        self.object.as_mut().expect("held until dropped")
    }
}

impl Drop for Lease {
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
