//! Preparation of a prefix before its first use: the index of this node must describe it.
//!
//! The store names the owner of a prefix: the node whose index is current. A node rebuilds the index from the headers
//! of the blobs and becomes the owner if it finds another owner or none, or if its index does not contain the prefix.
//! This happens when a project moves to the node, and after the loss of the index. If another node still serves the
//! project, the later puts at that node are lost.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use futures_util::future::ready;
use tokio::time::timeout;
use uuid::Uuid;

use super::Storage;
use super::error::{Result, StorageError, failed};
use super::grant::Grant;
use super::index::{PrefixRow, Tables};
use super::object::Record;
use super::prefix::Prefix;

/// How long an operation waits for the preparation, which then continues in the background.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(15);
/// The largest number of headers that are read at the same time.
const CONCURRENT_READS: usize = 16;
/// The largest number of objects in one commit of a rebuild.
const REBUILD_BATCH: usize = 500;

impl Storage {
    /// Prepares a prefix, if it is not prepared yet.
    pub(super) async fn prepare(self: &Arc<Self>, grant: &Grant) -> Result<Arc<Prefix>> {
        let prefix = self.prefixes.get(&grant.prefix);
        if !prefix.ready.initialized() {
            let (storage, grant, preparing) = (Arc::clone(self), grant.clone(), Arc::clone(&prefix));
            let prepare = async move { preparing.ready.get_or_try_init(|| storage.take_over(&grant)).await.copied() };
            let prepared = timeout(PREPARE_TIMEOUT, self.runtime.spawn(prepare)).await;
            prepared.map_err(|_| StorageError::PREPARING)?.map_err(failed("prepare a prefix"))??;
        }
        if prefix.set_quota(grant.quota_bytes) {
            self.apply_quota(grant).await?;
        }
        Ok(prefix)
    }

    /// Makes this node the owner of a prefix with a complete index, if this is not the case yet.
    async fn take_over(&self, grant: &Grant) -> Result<()> {
        let name = grant.prefix.clone();
        let is_complete = self.index.read(move |tables| Ok(tables.row(&name)?.is_some())).await?;
        let is_owner = self.is_owner(&grant.prefix).await?;
        if !(is_complete && is_owner) {
            self.rebuild(grant).await?;
        }
        if !is_owner {
            self.blobs.set_owner(&grant.prefix, self.owner).await?;
        }
        Ok(())
    }

    /// Returns whether the store names this node as the owner of a prefix.
    pub(super) async fn is_owner(&self, prefix: &str) -> Result<bool> {
        Ok(self.blobs.owner(prefix).await? == Some(self.owner))
    }

    async fn rebuild(&self, grant: &Grant) -> Result<()> {
        let mut is_empty = false;
        while !is_empty {
            let name = grant.prefix.clone();
            is_empty = self.index.write(move |tables| tables.clear_some(&name)).await?;
        }
        let blobs = self.blobs.list(&grant.prefix, Uuid::nil());
        let described = blobs.map_ok(|listed| async move { self.blobs.describe(&grant.prefix, &listed).await });
        let objects = described.try_buffer_unordered(CONCURRENT_READS).try_filter_map(|object| ready(Ok(object)));
        let row = objects
            .try_chunks(REBUILD_BATCH)
            .map_err(|failed| failed.1)
            .try_fold(PrefixRow::new(grant.project.clone()), |row, batch| self.add_rebuilt(&grant.prefix, row, batch));
        let row = row.await?;
        self.ids.observe(row.newest);
        tracing::info!(
            project = grant.project,
            prefix = grant.prefix,
            objects = row.objects,
            used_bytes = row.used_bytes,
            "rebuilt the storage index of a project"
        );
        let name = grant.prefix.clone();
        self.index.write(move |tables| tables.end_rebuild(&name, &row)).await?;
        self.garbage.notify_one();
        Ok(())
    }

    async fn add_rebuilt(&self, prefix: &str, row: PrefixRow, batch: Vec<(String, Record)>) -> Result<PrefixRow> {
        let prefix = prefix.to_owned();
        let add = move |tables: &mut Tables<'_>| {
            let mut row = row.clone();
            for (key, record) in &batch {
                tables.add_rebuilt(&prefix, &mut row, key, record)?;
            }
            Ok(row)
        };
        self.index.write(add).await
    }

    /// Updates the record of a refused put after a change of the quota.
    async fn apply_quota(&self, grant: &Grant) -> Result<()> {
        self.usage.add_changed(&grant.prefix);
        let (name, quota_bytes) = (grant.prefix.clone(), grant.quota_bytes);
        let is_refused = self.index.read(move |tables| Ok(tables.row(&name)?.is_some_and(|row| row.refusal.is_some())));
        if is_refused.await? {
            let grant = grant.clone();
            let update = move |row: &mut PrefixRow| row.update_refusal(quota_bytes);
            self.index.write(move |tables| tables.update_row(&grant, update)).await?;
        }
        Ok(())
    }
}
