//! Object storage of projects: `env.storage` (spec/runtime.md, docs/storage.md).
//!
//! The content of an object is an immutable blob in an object store. The index of the node maps keys to blobs. A put
//! writes a blob and then commits it to the index; the commit checks the condition and the quota. So keys are exact
//! bytes on every store, a reader never sees a mixture of two objects, an interrupted put is invisible, and the usage
//! is exact.
//!
//! A blob without an object is deleted in the background (`cleanup`): one that was replaced, one that was refused, and
//! one whose put was interrupted. Before the first use of a prefix, `prepare` makes sure that the index of this node
//! describes it. `deletion` deletes all objects of a prefix after its project was purged.

mod blobs;
mod cleanup;
pub mod config;
mod deletion;
mod error;
mod get;
mod grant;
mod ids;
mod index;
mod key;
mod large_puts;
mod metrics;
mod object;
mod prefix;
mod prepare;
mod put;
mod usage;
mod wait;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;
use uuid::Uuid;

use self::blobs::Blobs;
use self::config::StorageConfig;
use self::error::failed;
use self::ids::BlobIds;
use self::index::Index;
use self::large_puts::LargePuts;
use self::prefix::Prefixes;
use self::usage::UsageReports;
use self::wait::WaitBudget;
use crate::in_use::InUse;
use crate::observe::Observer;

pub use self::deletion::{DeletedPrefixChange, DeletedPrefixes};
pub use self::error::{Result, StorageError};
pub use self::get::{Content, ContentRange};
pub use self::grant::{CurrentGrant, Grant};
pub use self::index::{Condition, ListOptions, Page, Position};
pub use self::key::Key;
pub use self::metrics::StorageMetrics;
pub use self::object::{Attributes, StoredObject, etag};
pub use self::put::PutOptions;

/// The object storage of the node.
pub struct Storage {
    blobs: Blobs,
    index: Index,
    ids: BlobIds,
    prefixes: Prefixes,
    /// The blobs that are being read. They are not deleted, so a read survives the replacement of its object.
    readers: Arc<InUse<Uuid>>,
    large_puts: LargePuts,
    receiver_timeout: Duration,
    usage: UsageReports,
    /// Notified when blobs must be deleted.
    garbage: Notify,
    /// The id under which the index owns prefixes in the store.
    owner: Uuid,
    metrics: StorageMetrics,
    /// The runtime of tasks that outlive a request.
    runtime: Handle,
}

/// A call with long arguments or results. It must be held until these are dropped or sent.
pub struct BulkCall {
    /// The budget for waiting for the permit and for the operation together.
    budget: WaitBudget,
    _permit: OwnedSemaphorePermit,
}

impl Storage {
    /// Opens the index in the node's directory, and starts the background tasks. `deleted` are the prefixes whose
    /// objects must be deleted. Must be called within a tokio runtime. Blocks.
    ///
    /// # Errors
    /// Returns an error if the store's configuration is invalid or the index cannot be opened.
    pub fn open(
        config: &StorageConfig,
        dir: &Path,
        observer: Observer,
        metrics: StorageMetrics,
        deleted: watch::Receiver<DeletedPrefixes>,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<Arc<Self>> {
        let blobs = Blobs::new(config.store.open().context("failed to open the object store")?);
        let path = dir.join("storage.redb");
        let opened = Index::open(&path, &config.address());
        let (index, owner) = opened.with_context(|| format!("failed to open {}", path.display()))?;
        let storage = Arc::new(Self {
            blobs,
            index,
            ids: BlobIds::default(),
            prefixes: Prefixes::default(),
            readers: Arc::default(),
            large_puts: LargePuts::default(),
            receiver_timeout: config.receiver_timeout,
            usage: UsageReports::new(observer),
            garbage: Notify::new(),
            owner,
            metrics,
            runtime: Handle::current(),
        });
        let unswept = storage.restore()?;
        tasks.spawn(cleanup::sweep(Arc::clone(&storage), unswept, storage.ids.next(), config.sweep_delays));
        tasks.spawn(cleanup::delete_garbage(Arc::clone(&storage)));
        tasks.spawn(deletion::delete_prefixes(Arc::clone(&storage), deleted));
        tasks.spawn(usage::report_usage(Arc::clone(&storage), config.report_interval));
        Ok(storage)
    }

    /// Reads the rows of the index after a start. Returns the prefixes that may have blobs without objects.
    fn restore(&self) -> anyhow::Result<Vec<(String, Uuid)>> {
        let mut unswept = Vec::new();
        for (prefix, row) in self.index.read_blocking(|tables| tables.rows())? {
            self.ids.observe(row.newest);
            if let Some(from) = row.sweep_from {
                self.ids.observe(from);
                self.prefixes.get(&prefix).add_unswept(from);
                unswept.push((prefix, from));
            }
        }
        Ok(unswept)
    }

    /// Returns the object of a key, without its content.
    ///
    /// # Errors
    /// Returns an error if the storage is not available.
    pub async fn head(self: &Arc<Self>, grant: &Grant, key: Key) -> Result<Option<StoredObject>> {
        let head = async {
            let prefix = self.prepare(grant).await?;
            let record = {
                let (prefix, key) = (prefix.name.clone(), key.clone());
                self.index.read(move |tables| tables.record(&prefix, key.as_str())).await?
            };
            Ok(record.map(|record| record.object(key.into_string())))
        };
        self.counted("head", WaitBudget::new().wait(head).await.flatten())
    }

    /// Deletes the objects of keys. A key without an object is not an error.
    ///
    /// # Errors
    /// Returns an error if the storage is not available. Either all objects are deleted or none.
    pub async fn delete(self: &Arc<Self>, call: &mut BulkCall, grant: &Grant, keys: Vec<Key>) -> Result<()> {
        let delete = async {
            let prefix = self.prepare(grant).await?;
            let grant = grant.clone();
            if self.index.write(move |tables| tables.delete(&grant, &keys)).await? {
                self.usage.add_changed(&prefix.name);
                self.garbage.notify_one();
            }
            Ok(())
        };
        self.counted("delete", call.budget.wait(delete).await.flatten())
    }

    /// Lists objects in the order of the bytes of their keys.
    ///
    /// # Errors
    /// Returns an error if the storage is not available.
    pub async fn list(self: &Arc<Self>, call: &mut BulkCall, grant: &Grant, options: ListOptions) -> Result<Page> {
        let list = async {
            let prefix = self.prepare(grant).await?.name.clone();
            self.index.read(move |tables| tables.list(&prefix, &options)).await
        };
        self.counted("list", call.budget.wait(list).await.flatten())
    }

    /// Begins a call with long arguments or results. Waits until the call's project has a permit.
    ///
    /// # Errors
    /// Returns [`StorageError::BUSY`] if the project has too many such calls.
    pub async fn begin_bulk_call(&self, grant: &Grant) -> Result<BulkCall> {
        let permits = Arc::clone(&self.prefixes.get(&grant.prefix).bulk_calls);
        let mut budget = WaitBudget::new();
        let permit = budget.wait(permits.acquire_owned()).await.map_err(|_| StorageError::BUSY)?;
        Ok(BulkCall { budget, _permit: permit.map_err(failed("wait for a call"))? })
    }

    /// Counts the result of an operation.
    fn counted<T>(&self, operation: &str, result: Result<T>) -> Result<T> {
        self.metrics.count(operation, &result);
        result
    }
}
