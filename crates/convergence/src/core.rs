//! The link between the control plane and its nodes: how a node learns that there is something to look at (contract
//! section 12, `SVC_CORE`). It carries no state. Whoever misses a signal finds the same tables at the next look.

use async_trait::async_trait;
use kernel::NodeId;
use store::{Connection, Listener, Store};
use tokio::sync::broadcast::{self, error::RecvError};

/// Announces nodes whose desired state changed.
const CHANNEL: &str = "convergence";

/// The link. Many gateways and nodes may want another than Postgres; it has these two methods to offer.
#[async_trait]
pub trait Core: std::fmt::Debug + Send + Sync {
    /// Wakes the node's poll when, and if, the transaction commits. A link outside of Postgres enqueues its signal in the
    /// outbox.
    ///
    /// # Errors
    /// When the database is away.
    async fn signal(&self, tx: &mut Connection, node: NodeId) -> store::Result<()>;

    /// The signals from now on.
    fn watch(&self) -> Watch;
}

/// The signals since [`Core::watch`].
#[derive(Debug)]
pub struct Watch(Option<broadcast::Receiver<String>>);

impl Watch {
    /// Signals by the node's id; an empty one, and a receiver that lags, mean any node. Without a receiver nothing comes.
    #[must_use]
    pub const fn new(signals: Option<broadcast::Receiver<String>>) -> Self {
        Self(signals)
    }

    /// Waits until `node` may have changed.
    pub async fn changed(&mut self, node: NodeId) {
        let Some(signals) = &mut self.0 else { return std::future::pending().await };
        let node = node.to_string();
        loop {
            match signals.recv().await {
                Ok(signal) if !signal.is_empty() && signal != node => {}
                Ok(_) | Err(RecvError::Lagged(_)) => return,
                Err(RecvError::Closed) => return std::future::pending().await,
            }
        }
    }
}

/// `LISTEN` and `NOTIFY` of the database that holds the tables.
#[derive(Debug, Default)]
pub struct Embedded {
    listener: Option<Listener>,
}

impl Embedded {
    /// A link that wakes the polls of this process. Needs a tokio runtime.
    #[must_use]
    pub fn listening(store: &Store) -> Self {
        Self { listener: Some(store.listen(CHANNEL)) }
    }
}

#[async_trait]
impl Core for Embedded {
    async fn signal(&self, tx: &mut Connection, node: NodeId) -> store::Result<()> {
        store::notify(tx, CHANNEL, &node.to_string()).await
    }

    fn watch(&self) -> Watch {
        Watch::new(self.listener.as_ref().map(Listener::subscribe))
    }
}
