//! A synchronization (fsync) of the directory that concurrent commits share.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

use super::blocking;

/// A directory, with the state of its synchronization.
pub struct DirectorySync {
    directory: Arc<File>,
    /// The number of requests so far.
    requested: AtomicU64,
    /// The number of requests that completed synchronizations cover.
    covered: Mutex<u64>,
}

impl DirectorySync {
    pub fn open(directory: &Path) -> io::Result<Self> {
        let directory = File::open(directory)?;
        directory.sync_all()?;
        Ok(Self { directory: Arc::new(directory), requested: AtomicU64::new(0), covered: Mutex::new(0) })
    }

    /// Makes all earlier changes of the directory durable. Requests that arrive during a synchronization wait for the
    /// next one, which covers all of them.
    pub async fn sync(&self) -> io::Result<()> {
        let request = self.requested.fetch_add(1, Ordering::SeqCst) + 1;
        let mut covered = self.covered.lock().await;
        if *covered >= request {
            return Ok(());
        }
        let covers = self.requested.load(Ordering::SeqCst);
        let directory = Arc::clone(&self.directory);
        blocking(move || directory.sync_all()).await?;
        *covered = covers;
        Ok(())
    }
}
