//! The index of all objects: an ordered, transactional database in the node's directory.
//!
//! One thread writes. It commits all waiting changes together, so that many puts share the syncs of one commit. A
//! change is durable before its sender is notified. Reads see the last commit and do not wait for writes.
//!
//! The index can be deleted while the node is stopped. The part of each project is then rebuilt from the store at its
//! first use.

mod listing;
mod rows;
mod tables;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use std::{iter, slice, thread};

use redb::{Database, ReadableDatabase as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use uuid::Uuid;

use super::error::{Result, StorageError, failed};

pub use self::listing::{ListOptions, Page, Position};
pub use self::rows::{MIN_BLOB_BYTES, PrefixRow};
pub use self::tables::{Condition, Put, PutOutcome, ReadTables, Tables, WriteResult};

/// The size of the database's own cache in bytes. It is small, because the operating system caches the file too.
const CACHE_BYTES: usize = 8 << 20;
/// The largest number of changes in one commit.
const MAX_BATCH: usize = 256;
/// The largest number of changes that wait for a commit in the queue. Further changes wait for space in the queue.
const MAX_WAITING: usize = 4 * MAX_BATCH;
/// The longest wait for space in the queue.
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The index. Cheap to clone.
#[derive(Clone)]
pub struct Index {
    file: Arc<IndexFile>,
    changes: mpsc::Sender<Box<dyn Change>>,
}

/// A change that waits for its commit. Dropping it notifies its sender of a failure.
trait Change: Send {
    /// Applies the change in a transaction. If the transaction fails because of another change, the function is called
    /// again in a new transaction.
    fn apply(&mut self, tables: &mut Tables<'_>) -> WriteResult<()>;

    /// Notifies the sender that the change is committed.
    fn notify(self: Box<Self>);
}

struct WaitingChange<T, F> {
    change: F,
    value: Option<T>,
    sender: oneshot::Sender<T>,
}

impl<T: Send, F: Fn(&mut Tables<'_>) -> WriteResult<T> + Send> Change for WaitingChange<T, F> {
    fn apply(&mut self, tables: &mut Tables<'_>) -> WriteResult<()> {
        self.value = Some((self.change)(tables)?);
        Ok(())
    }

    fn notify(self: Box<Self>) {
        let Self { value, sender, .. } = *self;
        // The receiver is dropped if the caller was cancelled.
        value.map(|value| sender.send(value).ok());
    }
}

/// The database file. An I/O error, such as a full disk, makes the database unusable until it is opened again.
struct IndexFile {
    path: PathBuf,
    /// The address of the store that the index describes.
    store: String,
    /// `None` if it could not be opened again after an error. The next change tries to open it: at the latest, an empty
    /// one of the deletion of garbage.
    database: RwLock<Option<Database>>,
}

impl Index {
    /// Opens or creates the index of the store at an address. Also returns the id under which the index owns prefixes
    /// in the store. Blocks.
    pub fn open(path: &Path, store: &str) -> anyhow::Result<(Self, Uuid)> {
        let (database, owner) = open_database(path, store)?;
        let database = RwLock::new(Some(database));
        let file = Arc::new(IndexFile { path: path.to_owned(), store: store.to_owned(), database });
        let (changes, mut received) = mpsc::channel(MAX_WAITING);
        let writer = Arc::clone(&file);
        thread::Builder::new().name("storage-index".to_owned()).spawn(move || write_changes(&writer, &mut received))?;
        Ok((Self { file, changes }, owner))
    }

    /// Applies a change and waits until it is durable. The change is applied even if the caller is cancelled. After an
    /// error, the change may still have been applied. An error of one change does not affect others.
    ///
    /// # Errors
    /// Returns [`StorageError::TOO_MANY_CHANGES`] if the change was not applied because too many others wait.
    pub async fn write<T: Send + 'static>(
        &self,
        change: impl Fn(&mut Tables<'_>) -> WriteResult<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, committed) = oneshot::channel();
        let change = Box::new(WaitingChange { change, value: None, sender });
        let place = timeout(WAIT_TIMEOUT, self.changes.reserve()).await.map_err(|_| StorageError::TOO_MANY_CHANGES)?;
        place.map_err(failed("write the index"))?.send(change);
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

    fn commit(&self, changes: &mut [Box<dyn Change>]) -> WriteResult<()> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let database = database.as_ref().ok_or(redb::Error::DatabaseClosed)?;
        let mut transaction = database.begin_write()?;
        // With this option, opening takes the same time after a crash as after a clean stop.
        transaction.set_quick_repair(true);
        {
            let mut tables = Tables::open(&transaction)?;
            changes.iter_mut().try_for_each(|change| change.apply(&mut tables))?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Commits changes, all or none of them. Returns whether the commit succeeded. After an error, opens the database
    /// again.
    fn try_commit(&self, changes: &mut [Box<dyn Change>]) -> bool {
        // A panic of a change must not end the writer thread, because then no other change could be committed.
        let committed = catch_unwind(AssertUnwindSafe(|| self.commit(changes)));
        match committed {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => tracing::error!(%error, "failed to write the storage index"),
            // The panic is logged.
            Err(_) => tracing::error!("a change of the storage index panicked"),
        }
        self.reopen();
        false
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

/// Commits changes until all senders are dropped. If a batch fails, each change is committed separately. The senders of
/// failed changes are dropped, which notifies the waiting tasks of the failure.
fn write_changes(file: &IndexFile, received: &mut mpsc::Receiver<Box<dyn Change>>) {
    while let Some(first) = received.blocking_recv() {
        let others = iter::from_fn(|| received.try_recv().ok());
        let mut batch: Vec<_> = iter::once(first).chain(others.take(MAX_BATCH - 1)).collect();
        if !file.try_commit(&mut batch) {
            let is_single = batch.len() == 1;
            batch.retain_mut(|change| !is_single && file.try_commit(slice::from_mut(change)));
        }
        batch.into_iter().for_each(Change::notify);
    }
}

fn open_database(path: &Path, store: &str) -> WriteResult<(Database, Uuid)> {
    let database = Database::builder().set_cache_size(CACHE_BYTES).create(path)?;
    let transaction = database.begin_write()?;
    let owner = tables::prepare_tables(&transaction, store)?;
    transaction.commit()?;
    Ok((database, owner))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::super::object::{Attributes, Record};
    use super::*;

    fn open(directory: &TempDir) -> anyhow::Result<Index> {
        let (index, _) = Index::open(&directory.path().join("index.redb"), "store")?;
        Ok(index)
    }

    #[tokio::test]
    async fn change_that_fails_or_panics_affects_only_its_sender() {
        let directory = tempfile::tempdir().unwrap();
        let index = open(&directory).unwrap();
        let create = |prefix: &'static str| {
            index.write(move |tables| tables.end_rebuild(prefix, &PrefixRow::new(prefix.to_owned())))
        };
        let fail = |prefix: &'static str| {
            index.write(move |tables| {
                tables.end_rebuild(prefix, &PrefixRow::new(prefix.to_owned()))?;
                Err::<(), _>(redb::Error::Corrupted("a row is malformed".to_owned()))
            })
        };
        let panic = || index.write::<()>(|_| panic!("a change panics"));
        // This change blocks the writer, so that the other changes form one batch.
        let (resume, resumed) = std::sync::mpsc::sync_channel::<()>(0);
        let resumed = std::sync::Mutex::new(resumed);
        let wait = index.write(move |_| {
            resumed.lock().unwrap().recv().ok();
            Ok(())
        });
        let resume = async { drop(resume) };
        let (first, one, failed, two, panicked, three, ()) =
            tokio::join!(wait, create("one"), fail("failed"), create("two"), panic(), create("three"), resume);
        assert_eq!((first, one, two, three), (Ok(()), Ok(()), Ok(()), Ok(())));
        assert_eq!((failed, panicked), (Err(StorageError::FAILED), Err(StorageError::FAILED)));
        let rows = index.read(|tables| tables.rows()).await.unwrap();
        let prefixes: Vec<_> = rows.into_iter().map(|(prefix, _)| prefix).collect();
        assert_eq!(prefixes, ["one", "three", "two"]);
    }

    #[tokio::test]
    async fn batch_of_deletions_serves_all_prefixes() {
        let directory = tempfile::tempdir().unwrap();
        let index = open(&directory).unwrap();
        let blob = Uuid::from_u128;
        // Each of these blobs counts as 1 KiB.
        let add = move |tables: &mut Tables<'_>| {
            tables.end_rebuild("a", &PrefixRow::new("p".to_owned()))?;
            for number in 0..200 {
                tables.discard("a", "key", blob(number), 10)?;
            }
            // A blob counts only once.
            tables.discard("a", "key", blob(0), 10)?;
            tables.discard("b", "key", blob(1), 10)
        };
        assert_eq!(index.write(add).await, Ok(true));
        let next = async |last: Option<(String, Uuid)>| {
            let skip = move |found: &Uuid| *found == blob(2);
            index.read(move |tables| tables.garbage(last.as_ref(), skip)).await.unwrap()
        };
        let batch = next(None).await;
        let (b, a): (Vec<_>, Vec<_>) = batch.clone().into_iter().partition(|(prefix, _)| prefix == "b");
        assert_eq!((a.len(), b.len(), a.contains(&("a".to_owned(), blob(2)))), (25, 1, false));
        assert_eq!(next(batch.last().cloned()).await, []);
        let undeleted = || index.read(|tables| tables.undeleted_bytes("a"));
        assert_eq!(undeleted().await, Ok(200 << 10));
        index.write(move |tables| tables.remove_garbage(&batch)).await.unwrap();
        assert_eq!(undeleted().await, Ok(175 << 10));
    }

    #[tokio::test]
    async fn prefix_is_cleared_in_steps_that_continue_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let index = open(&directory).unwrap();
        let add = |prefix: &'static str, objects: u128| {
            index.write(move |tables| {
                let mut row = PrefixRow::new("p".to_owned());
                for number in 0..objects {
                    let blob = Uuid::from_u128(number);
                    let record = Record { blob, size: 0, offset: 10, uploaded: 0, attributes: Attributes::default() };
                    tables.add_rebuilt(prefix, &mut row, &number.to_string(), &record)?;
                    tables.discard(prefix, "another key", blob, 10)?;
                }
                tables.end_rebuild(prefix, &row)
            })
        };
        assert_eq!((add("a", 1200).await, add("b", 1).await), (Ok(()), Ok(())));
        // Returns the numbers of objects and of bytes to delete, and whether the index of the prefix is complete.
        let state = async |index: &Index, prefix: &'static str| {
            let options = ListOptions { limit: usize::MAX, ..ListOptions::default() };
            let read = move |tables: &ReadTables| {
                let objects = tables.list(prefix, &options)?.objects.len();
                Ok((objects, tables.undeleted_bytes(prefix)?, tables.row(prefix)?.is_some()))
            };
            index.read(read).await.unwrap()
        };
        assert_eq!(state(&index, "a").await, (1200, 1200 << 10, true));
        assert_eq!(index.write(|tables| tables.clear_some("a")).await, Ok(false));
        assert_eq!(state(&index, "a").await, (200, 0, false));
        drop(index);
        // The thread of the index closes the file later.
        let index = loop {
            match open(&directory) {
                Ok(opened) => break opened,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        assert_eq!(index.write(|tables| tables.clear_some("a")).await, Ok(false));
        assert_eq!(state(&index, "a").await, (0, 0, false));
        assert_eq!(index.write(|tables| tables.clear_some("a")).await, Ok(true));
        let garbage = index.read(|tables| tables.garbage(None, |_| false)).await.unwrap();
        assert_eq!(garbage, [("b".to_owned(), Uuid::nil())]);
        assert_eq!(state(&index, "b").await, (1, 1 << 10, true));
    }
}
