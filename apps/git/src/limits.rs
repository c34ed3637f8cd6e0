//! The limits per client: on the git processes of a user or an address, and on SSH connections before authentication.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use semaphores::KeyedSemaphores;
use settings::rate_limit_key;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The maximum number of git processes that run for clients at the same time. Others wait.
const MAX_PROGRAMS: usize = 64;
/// The maximum time for which a client waits for a permit.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);

/// The client for which a git process runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Client {
    User(String),
    /// An anonymous client.
    Address(IpAddr),
}

/// The maximum numbers of concurrent git processes per client.
#[derive(Debug, Clone, Copy)]
pub struct MaxPrograms {
    pub per_user: usize,
    /// The maximum for the anonymous clients of an address.
    pub per_address: usize,
}

/// The reason why a client gets no permit in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    #[error("you run {0} git commands at the same time, the maximum; try again when one of them has ended")]
    Client(usize),
    #[error("the server runs too many git commands; try again in a moment")]
    Server,
}

/// Limits the number of running git processes. Cheap to clone.
#[derive(Clone)]
pub struct ProgramLimit {
    max: MaxPrograms,
    all: Arc<Semaphore>,
    users: Arc<KeyedSemaphores<String>>,
    addresses: Arc<KeyedSemaphores<IpAddr>>,
}

/// The permit of a git process: one permit of its client, and one of the node.
#[derive(Debug)]
pub struct ProgramPermit {
    _client: OwnedSemaphorePermit,
    node: NodePermit,
}

/// The node's permit in a [`ProgramPermit`], which can be released before the client's permit.
#[derive(Debug, Clone, Default)]
pub struct NodePermit(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl NodePermit {
    /// Releases the permit of a process that only waits.
    pub fn release(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl ProgramPermit {
    /// Returns the node's permit, which can be released before this permit.
    pub fn node(&self) -> NodePermit {
        self.node.clone()
    }
}

impl Drop for ProgramPermit {
    fn drop(&mut self) {
        self.node.release();
    }
}

impl ProgramLimit {
    pub fn new(max: MaxPrograms) -> Self {
        Self {
            max,
            all: Arc::new(Semaphore::new(MAX_PROGRAMS)),
            users: Arc::new(KeyedSemaphores::new(max.per_user)),
            addresses: Arc::new(KeyedSemaphores::new(max.per_address)),
        }
    }

    /// Waits for a permit of the client, and then for one of the node.
    pub async fn acquire(&self, client: Client) -> Result<ProgramPermit, Busy> {
        let (semaphore, max) = match client {
            Client::User(user) => (self.users.of(user), self.max.per_user),
            Client::Address(address) => (self.addresses.of(rate_limit_key(address)), self.max.per_address),
        };
        let wait = |semaphore: Arc<Semaphore>| timeout(QUEUE_TIMEOUT, semaphore.acquire_owned());
        let _client = wait(semaphore).await.ok().and_then(Result::ok).ok_or(Busy::Client(max))?;
        let node = wait(Arc::clone(&self.all)).await.ok().and_then(Result::ok).ok_or(Busy::Server)?;
        Ok(ProgramPermit { _client, node: NodePermit(Arc::new(Mutex::new(Some(node)))) })
    }
}

/// Limits the number of connections per address. Cheap to clone.
#[derive(Clone)]
pub struct AddressLimit {
    max: usize,
    connections: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A counted connection.
pub struct CountedConnection {
    limit: AddressLimit,
    address: IpAddr,
}

impl AddressLimit {
    pub fn new(max: usize) -> Self {
        Self { max, connections: Arc::default() }
    }

    /// Counts a connection. Returns `None` above the limit.
    pub fn count(&self, address: IpAddr) -> Option<CountedConnection> {
        let address = rate_limit_key(address);
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let count = connections.entry(address).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(CountedConnection { limit: self.clone(), address })
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut connections = self.limit.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = connections.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                connections.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clients_have_separate_limits() {
        let limit = ProgramLimit::new(MaxPrograms { per_user: 2, per_address: 1 });
        let user = |name: &str| Client::User(name.to_owned());
        let first = limit.acquire(user("ada")).await.unwrap();
        let _second = limit.acquire(user("ada")).await.unwrap();
        let mut third = Box::pin(limit.acquire(user("ada")));
        assert!(futures_util::poll!(&mut third).is_pending());
        let _other = limit.acquire(user("mia")).await.unwrap();
        let anonymous = limit.acquire(Client::Address([192, 0, 2, 1].into())).await.unwrap();
        let mut next = Box::pin(limit.acquire(Client::Address([192, 0, 2, 1].into())));
        assert!(futures_util::poll!(&mut next).is_pending());
        let _neighbour = limit.acquire(Client::Address([192, 0, 2, 2].into())).await.unwrap();
        drop((first, anonymous));
        drop((third.await.unwrap(), next.await.unwrap()));
    }

    #[test]
    fn connections_of_an_address_are_counted() {
        let limit = AddressLimit::new(2);
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let first = limit.count(one).unwrap();
        let _second = limit.count(one).unwrap();
        assert!(limit.count(one).is_none() && limit.count(other).is_some());
        drop(first);
        assert!(limit.count(one).is_some());
    }
}
