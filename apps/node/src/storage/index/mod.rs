//! The index of all objects: an ordered, transactional database in the node's directory.
//!
//! One thread writes. It commits the changes that wait at the same time together, so that many puts share the syncs of
//! one commit. A change is durable before its sender is notified. Reads see the last commit and do not wait for writes.
//!
//! The index can be deleted while the node is stopped: each project's part is rebuilt from the store at its first use.

mod listing;
mod rows;
mod tables;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, mpsc};
use std::{iter, thread};

use redb::{Database, ReadableDatabase as _};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::error::{Result, StorageError, failed};

pub use self::listing::{ListOptions, Page, Position};
pub use self::rows::PrefixRow;
pub use self::tables::{Condition, Put, PutOutcome, ReadTables, Tables, WriteResult};

/// The cache of the database. The operating system caches the file, too.
const CACHE_BYTES: usize = 8 << 20;
/// The largest number of changes in one commit.
const MAX_BATCH: usize = 256;

/// The index. Cheap to clone.
#[derive(Clone)]
pub struct Index {
    file: Arc<IndexFile>,
    changes: mpsc::Sender<Change>,
}

/// A change, which returns the notification of its sender after the commit.
type Change = Box<dyn FnOnce(&mut Tables<'_>) -> WriteResult<Notification> + Send>;
type Notification = Box<dyn FnOnce() + Send>;

/// The database file. An I/O error, such as a full disk, makes the database unusable until it is opened again.
struct IndexFile {
    path: PathBuf,
    /// The address of the store that the index describes.
    store: String,
    /// `None` if it could not be opened again after an error. The next change tries it again.
    database: RwLock<Option<Database>>,
}

impl Index {
    /// Opens or creates the index of the store at an address. Also returns the id under which it owns prefixes in the
    /// store. Blocks.
    pub fn open(path: &Path, store: &str) -> anyhow::Result<(Self, Uuid)> {
        let (database, owner) = open_database(path, store)?;
        let database = RwLock::new(Some(database));
        let file = Arc::new(IndexFile { path: path.to_owned(), store: store.to_owned(), database });
        let (changes, received) = mpsc::channel();
        let writer = Arc::clone(&file);
        thread::Builder::new().name("storage-index".to_owned()).spawn(move || write_changes(&writer, &received))?;
        Ok((Self { file, changes }, owner))
    }

    /// Applies a change and waits until it is durable. The change is applied even if the caller is cancelled. After an
    /// error it may still have been applied.
    pub async fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Tables<'_>) -> WriteResult<T> + Send + 'static,
    ) -> Result<T> {
        let (notify, committed) = oneshot::channel();
        let change = move |tables: &mut Tables<'_>| -> WriteResult<Notification> {
            let value = change(tables)?;
            // The receiver is dropped if the caller was cancelled.
            Ok(Box::new(move || drop(notify.send(value))))
        };
        self.changes.send(Box::new(change)).map_err(failed("write the index"))?;
        committed.await.map_err(|_| StorageError::FAILED)
    }

    /// Reads the last commit.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ReadTables) -> WriteResult<T> + Send + 'static,
    ) -> Result<T> {
        let file = Arc::clone(&self.file);
        let read = spawn_blocking(move || file.read(read)).await;
        read.map_err(failed("read the index"))?.map_err(failed("read the index"))
    }

    /// Reads the last commit. Blocks.
    pub fn read_blocking<T>(&self, read: impl FnOnce(&ReadTables) -> WriteResult<T>) -> anyhow::Result<T> {
        Ok(self.file.read(read)?)
    }
}

impl IndexFile {
    fn read<T>(&self, read: impl FnOnce(&ReadTables) -> WriteResult<T>) -> WriteResult<T> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let database = database.as_ref().ok_or(redb::Error::DatabaseClosed)?;
        read(&ReadTables::open(&database.begin_read()?)?)
    }

    fn commit(&self, changes: Vec<Change>) -> WriteResult<Vec<Notification>> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let database = database.as_ref().ok_or(redb::Error::DatabaseClosed)?;
        let mut transaction = database.begin_write()?;
        // Opening takes the same time after a crash as after a stop.
        transaction.set_quick_repair(true);
        let notifications = {
            let mut tables = Tables::open(&transaction)?;
            changes.into_iter().map(|change| change(&mut tables)).collect::<WriteResult<_>>()?
        };
        transaction.commit()?;
        Ok(notifications)
    }

    fn reopen(&self) {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        // The file is locked until the previous handle is closed.
        *database = None;
        match open_database(&self.path, &self.store) {
            Ok((opened, _)) => *database = Some(opened),
            Err(error) => tracing::error!(%error, "failed to open the storage index again"),
        }
    }
}

/// Commits changes until all senders are dropped. The senders of a failed commit are dropped, which notifies the waiting
/// tasks of the failure.
fn write_changes(file: &IndexFile, received: &mpsc::Receiver<Change>) {
    while let Ok(first) = received.recv() {
        let batch = iter::once(first).chain(received.try_iter().take(MAX_BATCH - 1)).collect();
        match file.commit(batch) {
            Ok(notifications) => notifications.into_iter().for_each(|notify| notify()),
            Err(error) => {
                tracing::error!(%error, "failed to write the storage index");
                file.reopen();
            }
        }
    }
}

fn open_database(path: &Path, store: &str) -> WriteResult<(Database, Uuid)> {
    let database = Database::builder().set_cache_size(CACHE_BYTES).create(path)?;
    let transaction = database.begin_write()?;
    let owner = tables::prepare_tables(&transaction, store)?;
    transaction.commit()?;
    Ok((database, owner))
}
