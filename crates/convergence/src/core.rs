//! The link from the control plane to its nodes (contract section 12, `SVC_CORE`). It carries wake-ups and no state: a
//! poll that misses a wake-up finds the change at the next poll interval.

use async_trait::async_trait;
use kernel::NodeId;
use store::{Connection, Listener, Store};
use tokio::sync::broadcast::{self, error::RecvError};

/// The notification channel for the ids of nodes whose desired state changed.
const CHANNEL: &str = "convergence";

/// The link that wakes the polls of the nodes. An installation with many gateways and nodes may need an implementation
/// that does not use Postgres.
#[async_trait]
pub trait Core: std::fmt::Debug + Send + Sync {
    /// Wakes the node's polls if and when the transaction commits. An implementation that does not use Postgres
    /// enqueues its wake-up in the outbox.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    async fn wake(&self, tx: &mut Connection, node: NodeId) -> store::Result<()>;

    /// Subscribes to later wake-ups.
    fn subscribe(&self) -> WakeUps;
}

/// A subscription to wake-ups.
#[derive(Debug)]
pub struct WakeUps(Option<broadcast::Receiver<String>>);

impl WakeUps {
    /// Creates a subscription. Each message contains the id of the node to wake. An empty message wakes all nodes, as
    /// does a receiver that lags and misses messages. With `None`, there are no wake-ups.
    #[must_use]
    pub const fn new(messages: Option<broadcast::Receiver<String>>) -> Self {
        Self(messages)
    }

    /// Waits for a wake-up of `node`.
    pub async fn wait_for_change(&mut self, node: NodeId) {
        let Some(messages) = &mut self.0 else { return std::future::pending().await };
        let node = node.to_string();
        loop {
            match messages.recv().await {
                Ok(message) if !message.is_empty() && message != node => {}
                Ok(_) | Err(RecvError::Lagged(_)) => return,
                Err(RecvError::Closed) => return std::future::pending().await,
            }
        }
    }
}

/// A link that uses `LISTEN` and `NOTIFY` in the database that contains the tables. The default link has no listener:
/// it sends wake-ups but receives none.
#[derive(Debug, Default)]
pub struct EmbeddedCore {
    listener: Option<Listener>,
}

impl EmbeddedCore {
    /// Creates a link that also wakes the polls of this process. The caller must be in a tokio runtime.
    #[must_use]
    pub fn with_listener(store: &Store) -> Self {
        Self { listener: Some(store.listen(CHANNEL)) }
    }
}

#[async_trait]
impl Core for EmbeddedCore {
    async fn wake(&self, tx: &mut Connection, node: NodeId) -> store::Result<()> {
        store::notify(tx, CHANNEL, &node.to_string()).await
    }

    fn subscribe(&self) -> WakeUps {
        WakeUps::new(self.listener.as_ref().map(Listener::subscribe))
    }
}
