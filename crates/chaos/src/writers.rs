//! Several writers at once, and all that is looked at once they are done.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use futures_util::future::try_join_all;

use crate::invariants::broken;
use crate::journal::{Tally, Writer};

/// Writers, each with an organization of their own: `writer0` and so on.
pub struct Writers(Vec<Writer>);

impl Writers {
    /// Signs in so many.
    ///
    /// # Errors
    /// The service does not take them.
    pub async fn start(base: &str, count: usize) -> Result<Self> {
        let names: Vec<String> = (0..count).map(|number| format!("writer{number}")).collect();
        Ok(Self(try_join_all(names.iter().map(|name| Writer::start(base, name))).await?))
    }

    /// Each of them.
    #[must_use]
    pub fn all(&self) -> &[Writer] {
        &self.0
    }

    /// Has them write while `work` goes on.
    ///
    /// # Errors
    /// What `work` fails with.
    pub async fn during<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let over = AtomicBool::new(false);
        let writing = try_join_all(self.0.iter_mut().map(|writer| writer.run(|| over.load(Ordering::SeqCst))));
        let work = async {
            let done = work.await;
            over.store(true, Ordering::SeqCst);
            done
        };
        let (written, done) = tokio::join!(writing, work);
        written?;
        done
    }

    /// Sends again whatever was not acknowledged, until it is.
    ///
    /// # Errors
    /// Half a minute was not enough.
    pub async fn settle(&mut self) -> Result<()> {
        try_join_all(self.0.iter_mut().map(Writer::settle)).await.map(drop)
    }

    /// What is not as the journals have it, and what breaks an invariant. `keys` are the ids of the sealing keys.
    ///
    /// # Errors
    /// Postgres is away.
    pub async fn faults(&self, database: &str, keys: &[&str]) -> Result<Vec<String>> {
        let mut faults = broken(database, keys).await?;
        for writer in &self.0 {
            faults.extend(writer.check(database).await?);
        }
        Ok(faults)
    }

    /// What all of them were answered so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.0.iter().fold(Tally::default(), |all, writer| all.with(writer.tally()))
    }

    /// The addresses that were invited, by writes that were acknowledged.
    #[must_use]
    pub fn invited(&self) -> Vec<String> {
        self.0.iter().flat_map(Writer::invited).collect()
    }
}
