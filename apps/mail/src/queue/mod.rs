//! The durable queue of accepted mail that the control plane has not received yet.
//!
//! Each mail is a file in the directory. The node receives it into `<id>.new`. It then synchronizes the file, renames
//! it to `<id>`, and synchronizes the directory. Only after that does it send the reply 250. It removes the file when
//! the control plane has all copies.

mod deliver;
mod envelope;
mod pace;
mod schedule;
mod stored;
mod sync;

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use daemon::if_exists;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_blocking;
use uuid::Uuid;

use crate::clock::new_id;
use sync::DirectorySync;

pub use deliver::Deliverer;
pub use envelope::{Envelope, ProjectCopy};
pub use stored::ReadError;

/// The number of bytes of a mail that are buffered in memory before they are written.
const BLOCK: usize = 64 << 10;

/// The size of a small mail on the disk.
const MIN_BYTES: u64 = 4 << 10;

/// The limits of the queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// The space on its file system that the queue leaves free.
    pub free_bytes: u64,
    /// The bytes of a project's mails. While a project has more, other mail for it is refused.
    pub project_bytes: u64,
    /// The time for which the control plane must refuse a mail before it is set aside.
    pub refusal: Duration,
}

/// A mail of the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedMail {
    pub id: Uuid,
    /// The projects that get a copy. Empty if the file is damaged.
    pub projects: Vec<String>,
    /// The size of the mail.
    bytes: u64,
}

/// The queue. Clones share it.
#[derive(Clone)]
pub struct Queue(Arc<Shared>);

struct Shared {
    directory: PathBuf,
    sync: DirectorySync,
    limits: QueueLimits,
    /// The bytes of the mails of each project.
    bytes: Mutex<HashMap<String, u64>>,
    /// Contains at most one entry for each mail of the directory, so the file system bounds it.
    committed: UnboundedSender<QueuedMail>,
    /// Prevents a second process from using the directory.
    _lock: File,
}

impl Queue {
    /// Opens the directory, which is created if necessary. Returns the queue and a channel with its mails: first those of
    /// an earlier run, then each mail when it is committed.
    pub fn open(directory: &Path, limits: QueueLimits) -> anyhow::Result<(Self, UnboundedReceiver<QueuedMail>)> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let lock = File::create(directory.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("another process uses it"),
            Err(TryLockError::Error(error)) => return Err(error).context("cannot lock it"),
        }
        let (committed, mails) = unbounded_channel();
        let sync = DirectorySync::open(directory)?;
        let bytes = Mutex::default();
        let shared = Shared { directory: directory.to_owned(), sync, limits, bytes, committed, _lock: lock };
        let queue = Self(Arc::new(shared));
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if name.ends_with(".new") {
                // The node was stopped before it sent the reply 250, so the client sends this mail again.
                fs::remove_file(&path)?;
            } else if let Ok(id) = Uuid::try_parse(name) {
                // The deliverer reports a damaged file.
                let envelope = File::open(&path).and_then(|mut file| Envelope::read(&mut file)).ok();
                let projects = envelope.as_ref().map(Envelope::projects).unwrap_or_default();
                queue.add(QueuedMail { id, projects, bytes: envelope.map_or(0, |envelope| envelope.size) });
            }
        }
        Ok((queue, mails))
    }

    /// Returns whether the file system has space for a mail of this size.
    pub fn has_space(&self, size: u64) -> bool {
        let free = daemon::free_bytes(&self.0.directory);
        free.is_ok_and(|free| free >= size.saturating_add(self.0.limits.free_bytes))
    }

    /// Returns whether the queue accepts other mail of a project.
    pub fn has_room(&self, project: &str) -> bool {
        self.bytes().get(project).is_none_or(|bytes| *bytes < self.0.limits.project_bytes)
    }

    /// Starts to receive a mail.
    pub fn receive(&self) -> Spool {
        Spool { queue: self.clone(), id: new_id(), block: Vec::new(), file: None, size: 0 }
    }

    fn path(&self, id: Uuid) -> PathBuf {
        self.0.directory.join(id.simple().to_string())
    }

    fn remove(&self, id: Uuid) -> io::Result<()> {
        fs::remove_file(self.path(id))
    }

    /// Counts a mail and passes it to the deliverer.
    fn add(&self, mail: QueuedMail) {
        for project in &mail.projects {
            *self.bytes().entry(project.clone()).or_default() += mail.bytes.max(MIN_BYTES);
        }
        // The send fails only while the node stops. The next start finds the mail.
        let _ = self.0.committed.send(mail);
    }

    /// Ends the count of a mail that is not in the queue any more.
    fn end(&self, mail: &QueuedMail) {
        let mut bytes = self.bytes();
        for project in &mail.projects {
            if let Some(count) = bytes.get_mut(project) {
                *count = count.saturating_sub(mail.bytes.max(MIN_BYTES));
            }
        }
        bytes.retain(|_, count| *count > 0);
    }

    fn bytes(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.0.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A mail whose bytes are still arriving. Its file is removed unless it is committed.
pub struct Spool {
    queue: Queue,
    id: Uuid,
    block: Vec<u8>,
    file: Option<File>,
    size: u64,
}

impl Spool {
    /// Returns the id of the mail in the queue.
    pub const fn id(&self) -> Uuid {
        self.id
    }

    /// Returns the number of bytes received so far.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Adds bytes of the mail.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.block.extend_from_slice(bytes);
        self.size += u64::try_from(bytes.len()).map_err(io::Error::other)?;
        if self.block.len() < BLOCK {
            return Ok(());
        }
        // The client may have declared no size, and others fill the disk at the same time.
        if !self.queue.has_space(BLOCK as u64) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let (file, path, block) = (self.file.take(), self.new_path(), std::mem::take(&mut self.block));
        self.file = Some(blocking(move || write(file, &path, &block)).await?);
        Ok(())
    }

    /// Stores the mail durably, with its envelope. `Ok` means that the mail survives a crash.
    pub async fn commit(mut self, envelope: &Envelope) -> io::Result<()> {
        self.block.extend(envelope.encode()?);
        let (file, block) = (self.file.take(), std::mem::take(&mut self.block));
        let (new, path) = (self.new_path(), self.queue.path(self.id));
        blocking(move || {
            write(file, &new, &block)?.sync_data()?;
            fs::rename(new, path)
        })
        .await?;
        if let Err(error) = self.queue.0.sync.sync().await {
            // The commit failed, so the client sends the mail again.
            self.queue.remove(self.id)?;
            return Err(error);
        }
        self.queue.add(QueuedMail { id: self.id, projects: envelope.projects(), bytes: envelope.size });
        Ok(())
    }

    fn new_path(&self) -> PathBuf {
        self.queue.path(self.id).with_extension("new")
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // After a commit, the file has its final name.
        if let Err(error) = if_exists(fs::remove_file(self.new_path())) {
            tracing::warn!(%error, "failed to remove an incomplete mail");
        }
    }
}

/// Appends to the file. Creates it if it is not open yet.
fn write(file: Option<File>, path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = file.map_or_else(|| File::create_new(path), Ok)?;
    file.write_all(bytes)?;
    Ok(file)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(size: u64) -> Envelope {
        let copy = ProjectCopy {
            id: "mail_1".to_owned(),
            project: "prj_1".to_owned(),
            to: vec!["a@x.example".to_owned()],
            trace: "Received: x\r\n".to_owned(),
        };
        Envelope {
            from: String::new(),
            subject: Some("Grüße".to_owned()),
            spf: "none".to_owned(),
            received_at: "2026-11-21T09:00:00.000Z".to_owned(),
            size,
            copies: vec![copy],
        }
    }

    const NO_LIMITS: QueueLimits = QueueLimits { free_bytes: 0, project_bytes: u64::MAX, refusal: Duration::MAX };

    fn open(directory: &Path) -> (Queue, UnboundedReceiver<QueuedMail>) {
        Queue::open(directory, NO_LIMITS).unwrap()
    }

    fn read_envelope(path: &Path) -> io::Result<Envelope> {
        Envelope::read(&mut File::open(path)?)
    }

    #[tokio::test]
    async fn committed_mail_survives_and_incomplete_mail_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let (queue, mut mails) = open(directory.path());
        assert!(Queue::open(directory.path(), NO_LIMITS).is_err(), "the directory is locked");
        let mut spool = queue.receive();
        for _ in 0..3 {
            spool.write(&[b'x'; BLOCK - 1]).await.unwrap();
        }
        let (id, size) = (spool.id(), spool.size());
        spool.commit(&envelope(size)).await.unwrap();
        let mail = QueuedMail { id, projects: vec!["prj_1".to_owned()], bytes: size };
        assert_eq!(mails.recv().await.as_ref(), Some(&mail));
        let mut incomplete = queue.receive();
        incomplete.write(&[b'x'; 2 * BLOCK]).await.unwrap();
        let path = incomplete.new_path();
        assert!(path.exists());
        drop(incomplete);
        assert!(!path.exists());
        fs::write(&path, "of a killed process").unwrap();
        drop((queue, mails));

        let (queue, mut mails) = open(directory.path());
        assert!(!path.exists());
        assert_eq!(mails.recv().await, Some(mail));
        assert_eq!(read_envelope(&queue.path(id)).unwrap(), envelope(size));
    }

    #[test]
    fn damaged_file_is_recognized() {
        let directory = tempfile::tempdir().unwrap();
        let whole = [b"mail".to_vec(), envelope(4).encode().unwrap()].concat();
        let path = directory.path().join(new_id().simple().to_string());
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(read_envelope(&path).unwrap_err().kind(), io::ErrorKind::InvalidData, "{length}");
        }
        fs::write(&path, [b"x".to_vec(), whole].concat()).unwrap();
        assert_eq!(read_envelope(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        // The deliverer gets it, too.
        let (_queue, mut mails) = open(directory.path());
        assert!(mails.try_recv().unwrap().projects.is_empty());
    }

    #[tokio::test]
    async fn space_is_reserved() {
        let directory = tempfile::tempdir().unwrap();
        assert!(open(directory.path()).0.has_space(1));
        let limits = QueueLimits { free_bytes: u64::MAX, ..NO_LIMITS };
        let (queue, _mails) = Queue::open(directory.path(), limits).unwrap();
        assert!(!queue.has_space(1));
        let mut spool = queue.receive();
        spool.write(&[b'x'; BLOCK - 1]).await.unwrap();
        assert_eq!(spool.write(b"x").await.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[tokio::test]
    async fn mails_of_a_project_are_limited() {
        let directory = tempfile::tempdir().unwrap();
        let limits = QueueLimits { project_bytes: 2 * MIN_BYTES, ..NO_LIMITS };
        let (queue, mails) = Queue::open(directory.path(), limits).unwrap();
        for _ in 0..2 {
            assert!(queue.has_room("prj_1"));
            queue.receive().commit(&envelope(0)).await.unwrap();
        }
        assert!(!queue.has_room("prj_1") && queue.has_room("prj_2"));
        drop((queue, mails));
        let (queue, mut mails) = Queue::open(directory.path(), limits).unwrap();
        assert!(!queue.has_room("prj_1"));
        queue.end(&mails.recv().await.unwrap());
        assert!(queue.has_room("prj_1"));
    }
}
