//! Operation `put`.

use std::fmt::Display;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::Backoff;
use futures_util::{Stream, StreamExt as _};
use objects::ObjectWriter;
use tokio::time::sleep;
use uuid::Uuid;

use super::Storage;
use super::cleanup::MAX_RETRY_DELAY;
use super::error::{Result, StorageError, failed};
use super::grant::{CurrentGrant, Grant};
use super::index::{Condition, PrefixRow, Put, PutOutcome, ReadTables, Tables};
use super::key::Key;
use super::metrics::Direction;
use super::object::{Attributes, Header, Record, StoredObject};
use super::prefix::Prefix;
use super::wait::WaitBudget;
use crate::clock::since_epoch;

/// A put of a larger object buffers a part, so the number of such puts is limited.
const LARGE_OBJECT_BYTES: u64 = 256 * 1024;
/// S3 allows 10,000 parts of 5 MiB.
const MAX_OBJECT_BYTES: u64 = 48 << 30;
/// When the blob of a put that failed at its end is deleted again. The store may receive or execute the last request
/// after the first deletion.
const LATE_DELETIONS: [Duration; 1] = [Duration::from_secs(15)];
/// The same for an object of several parts. S3 needs up to minutes to assemble them (CompleteMultipartUpload).
const LATE_DELETIONS_OF_PARTS: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(600)];

/// The options of a put.
#[derive(Debug, Clone, Default)]
pub struct PutOptions {
    pub attributes: Attributes,
    pub condition: Option<Condition>,
    /// The size of the content in bytes, if the sender announces it.
    pub length: Option<u64>,
}

/// A put whose blob is not committed. If it is dropped, the blob is deleted.
struct PendingBlob {
    storage: Arc<Storage>,
    prefix: Arc<Prefix>,
    key: Key,
    blob: Uuid,
    /// The delays after which the blob is deleted again. Empty while no request has been sent that creates it.
    late_deletions: &'static [Duration],
    is_settled: bool,
}

impl Storage {
    /// Stores an object. Returns `None` if the condition is not met. After an error, or a cancellation before the end
    /// of the content, nothing is stored. The content may arrive slowly, so the commit reads the current grant again.
    ///
    /// # Errors
    /// Returns an error if the grant was revoked, the object does not fit into the quota, the content fails or is too
    /// slow, or the storage is not available.
    pub async fn put<E: Display>(
        self: &Arc<Self>,
        current: impl CurrentGrant,
        key: Key,
        options: PutOptions,
        content: impl Stream<Item = std::result::Result<Bytes, E>> + Unpin,
    ) -> Result<Option<StoredObject>> {
        let put = async {
            options.attributes.check()?;
            let mut budget = WaitBudget::new();
            let grant = current().ok_or(StorageError::NotGranted)?;
            let prefix = budget.wait(self.prepare(&grant)).await??;
            let length = options.length.unwrap_or_default();
            let is_met = budget.wait(self.check_put(&grant, &prefix, &key, options.condition, length)).await??;
            if !is_met {
                return Ok(None);
            }
            let mut pending = budget.wait(self.begin(&prefix, &key, length)).await??;
            let uploaded = u64::try_from(since_epoch().as_millis()).unwrap_or_default();
            let header = Header::new(&key, options.attributes, uploaded);
            let start = header.encode().map_err(failed("encode a header"))?;
            let mut writer = self.blobs.writer(&prefix.name, pending.blob);
            budget.wait(writer.write(&start)).await?.map_err(failed("write a blob"))?;
            let size = self.copy(&current, &pending, &mut budget, &mut writer, content).await?;
            pending.late_deletions = if writer.has_parts() { &LATE_DELETIONS_OF_PARTS } else { &LATE_DELETIONS };
            budget.wait(writer.finish()).await?.map_err(failed("write a blob"))?;
            let record = Record {
                blob: pending.blob,
                size,
                offset: start.len() as u64,
                uploaded,
                attributes: header.attributes,
            };
            // The commit is a separate task, so that its outcome is known even if the request is cancelled.
            let commit = commit(pending, current, record.clone(), options.condition);
            let outcome = budget.wait(self.runtime.spawn(commit)).await?.map_err(failed("commit an object"))??;
            match outcome {
                PutOutcome::Stored => Ok(Some(record.object(key.into_string()))),
                PutOutcome::ConditionFailed => Ok(None),
                PutOutcome::Refused(error, _) => Err(error),
            }
        };
        self.counted("put", put.await)
    }

    /// Checks the condition, the quota and the space before the content is read. Returns whether the condition is met.
    /// The commit checks the condition and the quota again.
    async fn check_put(
        &self,
        grant: &Grant,
        prefix: &Prefix,
        key: &Key,
        condition: Option<Condition>,
        size: u64,
    ) -> Result<bool> {
        if size > MAX_OBJECT_BYTES {
            return Err(StorageError::InvalidArgument("An object must not be larger than 48 GiB."));
        }
        let (row, current, undeleted_bytes) = {
            let (prefix, key) = (grant.prefix.clone(), key.clone());
            let read = move |tables: &ReadTables| {
                Ok((tables.row(&prefix)?, tables.record(&prefix, key.as_str())?, tables.undeleted_bytes(&prefix)?))
            };
            self.index.read(read).await?
        };
        if condition.is_some_and(|condition| !condition.holds(current.as_ref())) {
            return Ok(false);
        }
        let mut row = row.ok_or(StorageError::PREPARING)?;
        let (quota_bytes, replaced) = (grant.quota_bytes, current.map(|current| current.size));
        let checked = row.check_quota(quota_bytes, replaced, size);
        if checked.is_err() && row.refuse(quota_bytes, replaced, size) {
            let refused = grant.clone();
            let refuse = move |row: &mut PrefixRow| row.refuse(quota_bytes, replaced, size);
            self.index.write(move |tables| tables.update_row(&refused, refuse)).await?;
            self.report_now(grant).await?;
        }
        checked?;
        row.check_space(grant.quota_bytes, undeleted_bytes.saturating_add(prefix.reserved_bytes()))?;
        Ok(true)
    }

    /// Begins a put. Before the blob exists, the index durably records that the prefix may have a blob without an
    /// object.
    async fn begin(self: &Arc<Self>, prefix: &Arc<Prefix>, key: &Key, length: u64) -> Result<PendingBlob> {
        let blob = prefix.begin(&self.ids, length);
        let (storage, prefix, key) = (Arc::clone(self), Arc::clone(prefix), key.clone());
        let pending = PendingBlob { storage, prefix, key, blob, late_deletions: &[], is_settled: false };
        let mut is_marked = pending.prefix.is_marked.lock().await;
        if !*is_marked {
            let (name, oldest) = (pending.prefix.name.clone(), pending.prefix.oldest());
            self.index.write(move |tables| tables.set_sweep_from(&name, oldest)).await?;
            *is_marked = true;
        }
        drop(is_marked);
        Ok(pending)
    }

    /// Copies the content to the store, and returns its size.
    async fn copy<E: Display>(
        &self,
        current: &impl CurrentGrant,
        pending: &PendingBlob,
        budget: &mut WaitBudget,
        writer: &mut ObjectWriter,
        mut content: impl Stream<Item = std::result::Result<Bytes, E>> + Unpin,
    ) -> Result<u64> {
        let (mut size, mut checked, mut sent_parts) = (0, 0, 0);
        let mut permit = None;
        let mut sender = WaitBudget::for_sender();
        while let Some(chunk) = sender.wait(content.next()).await? {
            let chunk = chunk.map_err(|error| {
                tracing::debug!(%error, "the content of a put failed");
                StorageError::INPUT_FAILED
            })?;
            size += chunk.len() as u64;
            sender.receive(chunk.len());
            pending.prefix.reserve(pending.blob, size);
            self.metrics.add_bytes(Direction::In, chunk.len());
            if size >= checked + LARGE_OBJECT_BYTES {
                checked = size;
                if permit.is_none() {
                    let owner = current.of_prefix(&pending.prefix.name)?.owner;
                    let permitted = budget.wait(self.large_puts.begin(&owner)).await;
                    let permitted = permitted.map_err(|_| StorageError::BUSY)?;
                    permit = Some(permitted.map_err(failed("wait for a large put"))?);
                }
                let grant = current.of_prefix(&pending.prefix.name)?;
                budget.wait(self.check_put(&grant, &pending.prefix, &pending.key, None, size)).await??;
            }
            budget.wait(writer.write(&chunk)).await?.map_err(failed("write a blob"))?;
            if writer.sent_parts() > sent_parts {
                sent_parts = writer.sent_parts();
                budget.progress();
            }
        }
        Ok(size)
    }

    /// Deletes the blob of a failed put, and deletes it again after each of these delays. Until the last deletion, the
    /// blob stays in progress, so that the next start would find it.
    async fn discard(self: Arc<Self>, prefix: Arc<Prefix>, key: Key, blob: Uuid, late_deletions: &'static [Duration]) {
        let (bytes, mut backoff) = (prefix.reserved_by(blob), Backoff::up_to(MAX_RETRY_DELAY));
        while self.mark_unused(&prefix.name, &key, blob, bytes).await.is_err() {
            sleep(backoff.next_delay()).await;
        }
        prefix.release(blob);
        for delay in late_deletions {
            sleep(*delay).await;
            while !self.delete_again(&prefix.name, &key, blob).await.unwrap_or_default() {
                sleep(*delay).await;
            }
        }
        prefix.end(blob);
    }

    /// Records that a blob of about this size is to be deleted.
    async fn mark_unused(&self, prefix: &str, key: &Key, blob: Uuid, bytes: u64) -> Result<()> {
        let (prefix, key) = (prefix.to_owned(), key.clone());
        self.index.write(move |tables| tables.discard(&prefix, key.as_str(), blob, bytes)).await?;
        self.garbage.notify_one();
        Ok(())
    }

    /// Deletes a blob again. Returns whether its previous deletion had been completed; otherwise does nothing.
    async fn delete_again(&self, prefix: &str, key: &Key, blob: Uuid) -> Result<bool> {
        let name = prefix.to_owned();
        if self.index.read(move |tables| tables.is_garbage(&name, blob)).await? {
            return Ok(false);
        }
        // Another node that has become the owner may have found the blob and use it.
        if self.is_owner(prefix).await? {
            self.mark_unused(prefix, key, blob, 0).await?;
        }
        Ok(true)
    }
}

async fn commit(
    mut pending: PendingBlob,
    current: impl CurrentGrant,
    record: Record,
    condition: Option<Condition>,
) -> Result<PutOutcome> {
    let storage = Arc::clone(&pending.storage);
    let sweep_from = pending.prefix.oldest().unwrap_or(pending.blob);
    let put = Put { key: pending.key.clone(), record, condition, sweep_from };
    let name = pending.prefix.name.clone();
    let write = move |tables: &mut Tables<'_>| match current.of_prefix(&name) {
        Ok(grant) => Ok(Ok((tables.put(&grant, &put)?, grant))),
        Err(revoked) => Ok(Err(revoked)),
    };
    let (outcome, grant) = storage.index.write(write).await??;
    pending.settle();
    storage.garbage.notify_one();
    storage.usage.add_changed(&grant.prefix);
    if let PutOutcome::Refused(_, true) = outcome {
        storage.report_now(&grant).await?;
    }
    Ok(outcome)
}

impl PendingBlob {
    /// Ends the put. From now on, the index determines what happens to the blob.
    fn settle(&mut self) {
        self.is_settled = true;
        self.prefix.end(self.blob);
    }
}

impl Drop for PendingBlob {
    fn drop(&mut self) {
        if !mem::replace(&mut self.is_settled, true) {
            let (storage, prefix) = (Arc::clone(&self.storage), Arc::clone(&self.prefix));
            self.storage.runtime.spawn(storage.discard(prefix, self.key.clone(), self.blob, self.late_deletions));
        }
    }
}
