//! Deletion of blobs without an object.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::Storage;
use super::error::Result;
use crate::backoff::Backoff;

/// The number of blobs that are deleted at the same time.
const CONCURRENT_DELETES: usize = 8;
const BATCH: usize = 100;
/// How often to look for blobs whose readers have finished.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// The number of prefixes that are swept at the same time.
const CONCURRENT_SWEEPS: usize = 4;

/// Deletes the blobs that were replaced, deleted or refused.
pub(super) async fn delete_garbage(storage: Arc<Storage>) {
    let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
    loop {
        match storage.delete_next().await {
            Ok(0) => {
                backoff.reset();
                // A timeout is a poll.
                let _ = timeout(POLL_INTERVAL, storage.garbage.notified()).await;
            }
            Ok(_) => backoff.reset(),
            // The cause is logged.
            Err(_) => sleep(backoff.next_delay()).await,
        }
    }
}

/// Finds the blobs that killed processes left without an object. `before` is the first id of this process.
pub(super) async fn sweep(storage: Arc<Storage>, unswept: Vec<(String, Uuid)>, before: Uuid) {
    let sweeps = stream::iter(unswept).for_each_concurrent(CONCURRENT_SWEEPS, async |(prefix, from)| {
        let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
        while storage.sweep_prefix(&prefix, from, before).await.is_err() {
            sleep(backoff.next_delay()).await;
        }
    });
    sweeps.await;
    // The node stops when a background task ends.
    std::future::pending().await
}

impl Storage {
    /// Deletes a batch of blobs and returns their number.
    async fn delete_next(&self) -> Result<usize> {
        let readers = Arc::clone(&self.readers);
        let batch = self.index.read(move |tables| tables.garbage(BATCH, |blob| readers.contains(blob))).await?;
        if batch.is_empty() {
            return Ok(0);
        }
        let delete = |(prefix, blob): (String, Uuid)| async move { self.blobs.delete(&prefix, blob).await };
        let deletes = stream::iter(batch.clone()).map(delete);
        deletes.buffer_unordered(CONCURRENT_DELETES).try_collect::<()>().await?;
        let count = batch.len();
        self.index.write(move |tables| tables.remove_garbage(&batch)).await?;
        Ok(count)
    }

    /// Finds the blobs of a prefix without an object. If another node owns the prefix, they are its blobs.
    async fn sweep_prefix(&self, prefix: &str, from: Uuid, before: Uuid) -> Result<()> {
        if self.is_owner(prefix).await? {
            let mut removed = self.blobs.delete_unfinished(prefix, before).await?;
            let mut listed = std::pin::pin!(self.blobs.list(prefix, from));
            while let Some(blob) = listed.try_next().await? {
                if blob.id < before
                    && let Some((key, record)) = self.blobs.describe(prefix, &blob).await?
                {
                    let name = prefix.to_owned();
                    let discard = self.index.write(move |tables| tables.discard(&name, &key, record.blob));
                    removed += usize::from(discard.await?);
                }
            }
            if removed > 0 {
                tracing::info!(prefix, removed, "removed the blobs of interrupted puts");
            }
            self.metrics.orphans.inc_by(removed as u64);
            self.garbage.notify_one();
        }
        let prefix = self.prefixes.get(prefix);
        prefix.end(from);
        // The mark stays if a put of this process relies on it.
        let is_marked = prefix.is_marked.lock().await;
        if !*is_marked {
            let name = prefix.name.clone();
            self.index.write(move |tables| tables.set_sweep_from(&name, None)).await?;
        }
        Ok(())
    }
}
