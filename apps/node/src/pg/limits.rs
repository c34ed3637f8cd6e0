//! The limits of a pool.

use std::time::Duration;

/// The limits of a pool.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The largest number of connections.
    pub connections: usize,
    /// The longest wait for a connection, or for the memory of a large call.
    pub wait: Duration,
    /// The longest time of a statement.
    pub statement: Duration,
    /// The longest time of a batch. Its transaction holds locks, and prevents Postgres from removing old rows.
    pub batch: Duration,
    /// An unused connection is closed after this time.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let [wait, statement, batch, idle] = [10, 30, 300, 60].map(Duration::from_secs);
        Self { connections: 8, wait, statement, batch, idle }
    }
}
