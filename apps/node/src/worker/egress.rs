//! The egress proxy: the only way from a worker to the network.
//!
//! Each process has its own socket, whose permissions and path no other process shares. `workerd` sends all outgoing
//! requests there. The proxy resolves names, checks the addresses and connects. It repeats these steps for each
//! redirect that worker code follows.

mod dialer;
mod policy;
mod refusal;
mod session;
mod upstream;

use std::os::unix::net::UnixListener as StdUnixListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::config::EgressConfig;
use crate::metrics::Metrics;
use dialer::Dialer;
use policy::Policy;

/// The limit of connections of one process. Each takes up to two of the node's file descriptors. Others wait.
const MAX_CONNECTIONS: usize = 256;
/// The delay after a failed accept, which means that the node has no free file descriptor.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The proxy of all workers.
pub struct Egress(Arc<Dialer>);

/// The proxy of one process. Dropping this ends it.
pub struct EgressGuard {
    _connections: JoinSet<()>,
}

impl Egress {
    /// Creates the proxy.
    pub fn new(config: &EgressConfig, metrics: &Metrics) -> anyhow::Result<Self> {
        let policy = Policy { allow: config.allow.clone(), deny: config.deny.clone() };
        Ok(Self(Arc::new(Dialer::new(policy, config.resolver, metrics)?)))
    }

    /// Serves the process that connects to the listener. Must be called within a tokio runtime.
    pub fn serve(&self, listener: StdUnixListener) -> std::io::Result<EgressGuard> {
        listener.set_nonblocking(true)?;
        let (listener, dialer) = (UnixListener::from_std(listener)?, Arc::clone(&self.0));
        let mut connections = JoinSet::new();
        connections.spawn(accept(listener, dialer));
        Ok(EgressGuard { _connections: connections })
    }
}

async fn accept(listener: UnixListener, dialer: Arc<Dialer>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(session::serve(Arc::clone(&dialer), stream));
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection of a worker");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}
