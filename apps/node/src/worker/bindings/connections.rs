//! The limits on the connections of processes. `workerd` opens a connection for each concurrent call, and closes it 5 s
//! after its last call.

use std::cell::OnceCell;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

/// The limits on the connections of a process, and of all processes of its owner.
pub struct ConnectionLimits {
    process: Arc<Semaphore>,
    owner: Arc<Semaphore>,
}

/// The permits of a connection, from its first request until it is closed.
#[derive(Default)]
pub struct ConnectionPermits(OnceCell<[OwnedSemaphorePermit; 2]>);

impl ConnectionLimits {
    /// Creates the limits of a process.
    pub fn new(process: usize, owner: Arc<Semaphore>) -> Self {
        Self { process: Arc::new(Semaphore::new(process)), owner }
    }

    /// Returns whether the connection of a request has permits, or gets them now.
    pub fn admit(&self, connection: &ConnectionPermits) -> bool {
        connection.0.get().is_some() || self.acquire().is_ok_and(|permits| connection.0.set(permits).is_ok())
    }

    fn acquire(&self) -> Result<[OwnedSemaphorePermit; 2], TryAcquireError> {
        let process = Arc::clone(&self.process).try_acquire_owned()?;
        Ok([process, Arc::clone(&self.owner).try_acquire_owned()?])
    }
}
