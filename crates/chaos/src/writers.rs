//! Concurrent writers, and the checks of all their writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;

use crate::invariants::violations;
use crate::journal::{WriteStats, Writer};

/// Runs clients and `work`, then sets `stopped`, which ends the clients, and returns both results. If `work` fails, drops
/// the clients instead: they could wait for ever for a program that does not run.
///
/// # Errors
/// Returns the error of `work`.
pub async fn run_clients<C, T>(
    clients: impl Future<Output = C>,
    stopped: &AtomicBool,
    work: impl Future<Output = Result<T>>,
) -> Result<(C, T)> {
    let clients = async { anyhow::Ok(clients.await) };
    let work = async {
        let done = work.await?;
        stopped.store(true, Ordering::SeqCst);
        anyhow::Ok(done)
    };
    tokio::try_join!(clients, work)
}

/// Writers, each with its own organization: `writer0`, `writer1` and so on.
pub struct Writers(Vec<Writer>);

impl Writers {
    /// Starts this number of writers.
    ///
    /// # Errors
    /// Returns an error if the service rejects a request.
    pub async fn start(base: &str, count: usize) -> Result<Self> {
        let names: Vec<String> = (0..count).map(|number| format!("writer{number}")).collect();
        Ok(Self(try_join_all(names.iter().map(|name| Writer::start(base, name))).await?))
    }

    /// Lets each writer pause after a write.
    #[must_use]
    pub fn with_pause(mut self, pause: Duration) -> Self {
        self.0.iter_mut().for_each(|writer| writer.set_pause(pause));
        self
    }

    /// Returns the writers.
    #[must_use]
    pub fn all(&self) -> &[Writer] {
        &self.0
    }

    /// Writes until `work` ends.
    ///
    /// # Errors
    /// Returns the error of `work`, or of a writer.
    pub async fn write_during<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let stopped = AtomicBool::new(false);
        let writing = try_join_all(self.0.iter_mut().map(|writer| writer.run(|| stopped.load(Ordering::SeqCst))));
        let (written, done) = run_clients(writing, &stopped, work).await?;
        written?;
        Ok(done)
    }

    /// Retries all unacknowledged writes.
    ///
    /// # Errors
    /// Returns an error if a write is not acknowledged within 30 seconds.
    pub async fn retry_unacknowledged(&mut self) -> Result<()> {
        try_join_all(self.0.iter_mut().map(Writer::retry_unacknowledged)).await.map(drop)
    }

    /// Returns the invariant violations, and the differences between journals and database. `keys` are the ids of the
    /// valid sealing keys.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn violations(&self, database: &str, keys: &[&str]) -> Result<Vec<String>> {
        let mut violations = violations(database, keys).await?;
        for writer in &self.0 {
            violations.extend(writer.differences(database).await?);
        }
        Ok(violations)
    }

    /// Returns the responses that all writers received so far.
    #[must_use]
    pub fn stats(&self) -> WriteStats {
        self.0.iter().fold(WriteStats::default(), |all, writer| all.merge(writer.stats()))
    }

    /// Returns the mail addresses of all acknowledged invites.
    #[must_use]
    pub fn invited(&self) -> Vec<String> {
        self.0.iter().flat_map(Writer::invited).collect()
    }
}
