//! Deletion of blobs without an object.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use daemon::Backoff;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

use super::Storage;
use super::blobs::CONCURRENT_DELETES;
use super::error::Result;

/// How often the task checks whether the readers of deleted blobs have finished.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// The longest delay between two attempts to record or execute a deletion.
pub(super) const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// The largest number of prefixes that are swept at the same time.
const CONCURRENT_SWEEPS: usize = 4;

/// The progress of the deletion.
struct Deletion {
    /// The last blob of the previous batch. The next batch begins after it.
    last: Option<(String, Uuid)>,
    /// Blobs that could not be deleted. They do not delay others.
    failed: HashSet<Uuid>,
    /// When the deletion of the failed blobs is tried again.
    retry_at: Instant,
    backoff: Backoff,
}

/// Deletes the blobs that were replaced, deleted or refused.
pub(super) async fn delete_garbage(storage: Arc<Storage>) {
    let backoff = Backoff::up_to(MAX_RETRY_DELAY);
    let mut deletion = Deletion { last: None, failed: HashSet::new(), retry_at: Instant::now(), backoff };
    loop {
        match storage.delete_next(&mut deletion).await {
            Ok(0) => {
                let next_poll = Instant::now() + POLL_INTERVAL;
                // A timeout is not an error: deletions are also tried at this interval.
                let _ =
                    timeout_at(deletion.next_retry().unwrap_or(next_poll).min(next_poll), storage.garbage.notified())
                        .await;
            }
            Ok(_) => (),
            // The cause is logged. If the index could not be opened again after an error, only a change opens it. A change
            // that fails would close an open index.
            Err(_) => {
                if storage.index.read(|_| Ok(())).await.is_err() {
                    let _ = storage.index.write(|_| Ok(())).await;
                }
                sleep(deletion.backoff.next_delay()).await;
            }
        }
    }
}

/// Finds the blobs that killed processes left without an object, after each of these delays. `before` is the first id of
/// this process, whose own blobs are skipped. Until the last sweep, the blobs stay marked in the index, so that the next
/// start would sweep again.
pub(super) async fn sweep(storage: Arc<Storage>, unswept: Vec<(String, Uuid)>, before: Uuid, delays: &[Duration]) {
    for (number, delay) in delays.iter().enumerate() {
        sleep(*delay).await;
        let is_last = number + 1 == delays.len();
        let sweeps = stream::iter(&unswept).for_each_concurrent(CONCURRENT_SWEEPS, async |(prefix, from)| {
            let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
            while storage.sweep_prefix(prefix, *from, before, is_last).await.is_err() {
                sleep(backoff.next_delay()).await;
            }
        });
        sweeps.await;
    }
    // A background task must not end, because the node would then stop.
    std::future::pending().await
}

impl Deletion {
    fn next_retry(&self) -> Option<Instant> {
        (!self.failed.is_empty()).then_some(self.retry_at)
    }

    fn begin_retry(&mut self) {
        if self.retry_at <= Instant::now() {
            self.failed.clear();
        }
    }

    fn postpone(&mut self, failed: impl Iterator<Item = Uuid>) {
        let is_first = self.failed.is_empty();
        self.failed.extend(failed);
        if is_first && !self.failed.is_empty() {
            self.retry_at = Instant::now() + self.backoff.next_delay();
        }
    }
}

impl Storage {
    /// Tries to delete a batch of blobs and returns their number.
    async fn delete_next(&self, deletion: &mut Deletion) -> Result<usize> {
        deletion.begin_retry();
        let mut batch = self.find_garbage(deletion).await?;
        if batch.is_empty() && deletion.last.take().is_some() {
            batch = self.find_garbage(deletion).await?;
        }
        if batch.is_empty() && deletion.failed.is_empty() {
            deletion.backoff.reset();
        }
        deletion.last = batch.last().cloned();
        let count = batch.len();
        let delete = async |blob: (String, Uuid)| (self.blobs.delete(&blob.0, blob.1).await.is_ok(), blob);
        let deletes = stream::iter(batch).map(delete).buffer_unordered(CONCURRENT_DELETES);
        let (deleted, failed): (Vec<_>, Vec<_>) = deletes.collect::<Vec<_>>().await.into_iter().partition(|it| it.0);
        deletion.postpone(failed.into_iter().map(|(_, (_, blob))| blob));
        if !deleted.is_empty() {
            let deleted: Vec<_> = deleted.into_iter().map(|(_, blob)| blob).collect();
            self.index.write(move |tables| tables.remove_garbage(&deleted)).await?;
        }
        Ok(count)
    }

    async fn find_garbage(&self, deletion: &Deletion) -> Result<Vec<(String, Uuid)>> {
        let (readers, last, failed) = (Arc::clone(&self.readers), deletion.last.clone(), deletion.failed.clone());
        let skip = move |blob: &Uuid| readers.contains(blob) || failed.contains(blob);
        self.index.read(move |tables| tables.garbage(last.as_ref(), skip)).await
    }

    /// Finds the blobs of a prefix without an object. If another node owns the prefix, the blobs belong to that node,
    /// and are kept.
    async fn sweep_prefix(&self, prefix: &str, from: Uuid, before: Uuid, is_last: bool) -> Result<()> {
        if self.is_owner(prefix).await? {
            let mut removed = self.blobs.delete_unfinished(prefix, before).await?;
            let mut listed = std::pin::pin!(self.blobs.list(prefix, from));
            while let Some(blob) = listed.try_next().await? {
                if blob.id < before
                    && let Some((key, record)) = self.blobs.describe(prefix, &blob).await?
                {
                    let name = prefix.to_owned();
                    let discard = self.index.write(move |tables| tables.discard(&name, &key, record.blob, blob.size));
                    removed += usize::from(discard.await?);
                }
            }
            if removed > 0 {
                tracing::info!(prefix, removed, "removed the blobs of interrupted puts");
            }
            self.metrics.orphans.inc_by(removed as u64);
            self.garbage.notify_one();
        }
        if is_last { self.end_sweeps(prefix, from).await } else { Ok(()) }
    }

    async fn end_sweeps(&self, prefix: &str, from: Uuid) -> Result<()> {
        let prefix = self.prefixes.get(prefix);
        prefix.end(from);
        // The index contains a mark that blobs without an object may exist. A put of this process can rely on it, so
        // the mark is removed only under the lock.
        let is_marked = prefix.is_marked.lock().await;
        if !*is_marked {
            let name = prefix.name.clone();
            self.index.write(move |tables| tables.set_sweep_from(&name, None)).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use objects::StoreConfig;
    use tokio::sync::{mpsc, watch};
    use tokio::task::JoinSet;
    use tokio::time::timeout;

    use super::super::config::StorageConfig;
    use super::super::error::StorageError;
    use super::super::metrics::StorageMetrics;
    use super::*;
    use crate::observe::Observer;

    #[tokio::test]
    async fn index_that_could_not_be_opened_again_is_opened_later() {
        let dir = tempfile::tempdir().unwrap();
        let objects = dir.path().join("objects");
        fs::create_dir(&objects).unwrap();
        let long = Duration::from_secs(60);
        let config = StorageConfig {
            store: StoreConfig::Folder(objects),
            report_interval: long,
            receiver_timeout: long,
            sweep_delays: &[],
        };
        let (observer, _reports) = mpsc::unbounded_channel();
        let (deleted, mut tasks) = (watch::Sender::default(), JoinSet::new());
        let (observer, metrics) = (Observer::new(observer), StorageMetrics::new(&prometheus::Registry::new()).unwrap());
        let storage = Storage::open(&config, dir.path(), observer, metrics, deleted.subscribe(), &mut tasks).unwrap();
        // After a change that fails, the file cannot be opened.
        let (path, saved) = (dir.path().join("storage.redb"), dir.path().join("saved.redb"));
        fs::rename(&path, &saved).unwrap();
        fs::create_dir(&path).unwrap();
        let failed = storage.index.write::<()>(|_| Err(redb::Error::Corrupted("a row is malformed".to_owned())));
        assert_eq!(failed.await, Err(StorageError::FAILED));
        let is_open = async || storage.index.read(|tables| tables.rows()).await.is_ok();
        assert!(!is_open().await);
        fs::remove_dir(&path).unwrap();
        fs::rename(&saved, &path).unwrap();
        storage.garbage.notify_one();
        let opened = async {
            while !is_open().await {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(long, opened).await.unwrap();
    }
}
