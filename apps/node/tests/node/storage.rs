//! The object storage. The same tests run on a folder and on a real S3 server.

mod conditions;
mod deleting;
mod deletion;
mod faults;
mod grants;
mod interruptions;
mod keys;
mod listings;
mod quotas;
mod ranges;
mod rebuilding;
mod replacing;
pub mod store;
mod worker;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{TryStreamExt as _, stream};
use node::observe::{Observation, Observer};
use node::storage::config::StorageConfig;
use node::storage::{
    ContentRange, CurrentGrant, DeletedPrefixes, Grant, Key, ListOptions, Page, PutOptions, Result, Storage,
    StorageError, StorageMetrics, StoredObject,
};
use protocol::StorageReport;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use self::store::{Kind, TestStore};
use crate::running::{Dir, until};
use crate::timeout::TIMEOUT;

/// A storage with its own store and directory.
struct Rig {
    store: TestStore,
    dir: Dir,
    storage: Arc<Storage>,
    reports: mpsc::UnboundedReceiver<Observation>,
    /// The prefixes that the control plane wants to be deleted.
    deleted: watch::Sender<DeletedPrefixes>,
    tasks: JoinSet<()>,
}

/// Runs a test on each kind of store.
async fn on_each_store(test: impl AsyncFn(Rig)) {
    for kind in [Kind::Folder, Kind::S3] {
        println!("{kind:?}");
        test(Rig::start(TestStore::start(kind).await)).await;
    }
}

impl Rig {
    fn start(store: TestStore) -> Self {
        Self::start_with_timeout(store, Duration::from_secs(60))
    }

    /// Starts the storage with this timeout for the receivers of gets.
    fn start_with_timeout(store: TestStore, receiver_timeout: Duration) -> Self {
        Self::open(store, Dir::new(), receiver_timeout, &[Duration::ZERO])
    }

    fn open(store: TestStore, dir: Dir, receiver_timeout: Duration, sweep_delays: &'static [Duration]) -> Self {
        let (store_config, report_interval) = (store.config(), Duration::from_millis(100));
        let config = StorageConfig { store: store_config, report_interval, receiver_timeout, sweep_delays };
        let (observer, reports) = mpsc::unbounded_channel();
        let (deleted, mut tasks) = (watch::Sender::default(), JoinSet::new());
        let metrics = StorageMetrics::new(&prometheus::Registry::new()).unwrap();
        let observer = Observer::new(observer);
        let storage = Storage::open(&config, dir.path(), observer, metrics, deleted.subscribe(), &mut tasks).unwrap();
        Self { store, dir, storage, reports, deleted, tasks }
    }

    /// Stops the storage and starts it again, with the same directory and store.
    async fn restart(self) -> Self {
        self.restart_with(&[Duration::ZERO]).await
    }

    /// Like [`Self::restart`], with these delays before sweeps.
    async fn restart_with(self, sweep_delays: &'static [Duration]) -> Self {
        let (store, dir) = self.stop().await;
        Self::open(store, dir, Duration::from_secs(60), sweep_delays)
    }

    /// Stops the storage, and starts one with another directory on the same store.
    async fn replace_dir(self) -> (Self, Dir) {
        let (store, dir) = self.stop().await;
        (Self::start(store), dir)
    }

    async fn stop(self) -> (TestStore, Dir) {
        let Self { store, dir, storage, reports: _, deleted: _, mut tasks } = self;
        tasks.shutdown().await;
        until("the end of all uses", || Arc::strong_count(&storage) == 1).await;
        drop(storage);
        // The thread of the index closes the file later.
        until("the index", || redb::Database::open(dir.path().join("storage.redb")).is_ok()).await;
        (store, dir)
    }

    async fn put(&self, grant: &Grant, key: &str, content: impl Into<Bytes>) -> StoredObject {
        self.put_with(grant, key, content, PutOptions::default()).await.unwrap().unwrap()
    }

    async fn put_owned(&self, grant: &Grant, key: String) {
        self.put(grant, &key, "").await;
    }

    async fn put_with(
        &self,
        grant: &Grant,
        key: &str,
        content: impl Into<Bytes>,
        options: PutOptions,
    ) -> Result<Option<StoredObject>> {
        let content = stream::iter([Ok::<Bytes, Infallible>(content.into())]);
        self.storage.put(fixed(grant), self::key(key), options, content).await
    }

    /// Returns the content of an object.
    async fn get(&self, grant: &Grant, key: &str) -> Option<Vec<u8>> {
        self.get_range(grant, key, None).await.unwrap()
    }

    async fn get_range(&self, grant: &Grant, key: &str, range: Option<ContentRange>) -> Result<Option<Vec<u8>>> {
        let Some((_, content)) = self.storage.get(grant, self::key(key), range).await? else { return Ok(None) };
        let chunks: Vec<Bytes> = content.bytes.try_collect().await?;
        let content_bytes = chunks.concat();
        assert_eq!(content.length, content_bytes.len() as u64);
        Ok(Some(content_bytes))
    }

    async fn delete(&self, grant: &Grant, keys: &[&str]) {
        let mut call = self.storage.begin_bulk_call(grant).await.unwrap();
        let keys = keys.iter().map(|key| self::key(key)).collect();
        self.storage.delete(&mut call, grant, keys).await.unwrap();
    }

    async fn list(&self, grant: &Grant, options: ListOptions) -> Page {
        let mut call = self.storage.begin_bulk_call(grant).await.unwrap();
        self.storage.list(&mut call, grant, options).await.unwrap()
    }

    /// Returns the keys of all objects, in the order of a listing.
    async fn keys(&self, grant: &Grant) -> Vec<String> {
        let page = self.list(grant, ListOptions { limit: 1000, ..ListOptions::default() }).await;
        assert_eq!(page.next, None);
        page.objects.into_iter().map(|object| object.key).collect()
    }

    /// Waits until the store contains this number of blobs and parts of blobs.
    async fn wait_for_blobs(&self, count: usize) {
        let reached = async {
            while self.store.blobs().len() != count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let reached = tokio::time::timeout(TIMEOUT, reached).await;
        assert!(reached.is_ok(), "expected {count} blobs: {:?}", self.store.blobs());
    }

    /// Returns the next report about a project.
    async fn report(&mut self, project: &str) -> StorageReport {
        loop {
            let Observation { report, .. } = self.reports.recv().await.unwrap();
            if report.project == project {
                return serde_json::from_value(report.report).unwrap();
            }
        }
    }

    /// Waits for a report with this usage and flag.
    async fn wait_for_report(&mut self, project: &str, used_bytes: u64, quota_exceeded: bool) {
        let expected = StorageReport { used_bytes, quota_exceeded };
        let reported = async { while self.report(project).await != expected {} };
        let reported = tokio::time::timeout(TIMEOUT, reported).await;
        assert!(reported.is_ok(), "no report of {expected:?}");
    }
}

/// Returns the grant of a project with a large quota. Its owner has no other project.
fn grant(project: &str) -> Grant {
    grant_with(project, 1 << 40)
}

fn grant_with(project: &str, quota_bytes: u64) -> Grant {
    grant_of(&format!("usr_{project}"), project, quota_bytes)
}

fn grant_of(owner: &str, project: &str, quota_bytes: u64) -> Grant {
    let prefix = format!("sto_{project}");
    Grant::new(owner, project, &protocol::Storage { prefix, quota_bytes }).unwrap()
}

/// Returns a grant that does not change.
fn fixed(grant: &Grant) -> impl CurrentGrant {
    let grant = grant.clone();
    move || Some(grant.clone())
}

fn key(key: &str) -> Key {
    Key::parse(key.to_owned()).unwrap()
}

/// Returns the code of a failure.
fn code<T: std::fmt::Debug>(result: Result<T>) -> &'static str {
    StorageError::code(&result.unwrap_err())
}

/// Returns bytes that do not repeat within a part.
fn noise(length: usize) -> Vec<u8> {
    (0..length as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}
