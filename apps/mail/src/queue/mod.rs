//! The durable queue: mail that was accepted and that the control plane does not have yet.
//!
//! A mail is a file of the directory. It is received into `<id>.new`. Before the client gets the reply 250, the file is
//! synchronized, renamed to `<id>`, and the directory is synchronized. The file is removed when the control plane has
//! all copies.

mod deliver;
mod envelope;
mod sync;

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_blocking;
use uuid::Uuid;

use crate::clock::new_id;
use sync::DirectorySync;

pub use deliver::Deliverer;
pub use envelope::{Envelope, ProjectCopy};

/// The bytes of a mail that are kept in memory before they are written.
const BLOCK: usize = 64 << 10;

/// The queue. Clones share it.
#[derive(Clone)]
pub struct Queue(Arc<Shared>);

struct Shared {
    directory: PathBuf,
    sync: DirectorySync,
    free_bytes: u64,
    committed: UnboundedSender<Uuid>,
    /// Prevents a second process from using the directory.
    _lock: File,
}

impl Queue {
    /// Opens the directory, which is created if necessary. Returns the queue and a channel with the ids of its mails:
    /// first the mails of an earlier run, then each mail when it is committed.
    pub fn open(directory: &Path, free_bytes: u64) -> anyhow::Result<(Self, UnboundedReceiver<Uuid>)> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let lock = File::create(directory.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("another process uses it"),
            Err(TryLockError::Error(error)) => return Err(error).context("cannot lock it"),
        }
        let (committed, ids) = unbounded_channel();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if name.ends_with(".new") {
                // The client did not get the reply 250.
                fs::remove_file(&path)?;
            } else if let Ok(id) = Uuid::try_parse(name) {
                committed.send(id)?;
            }
        }
        let sync = DirectorySync::open(directory)?;
        let shared = Shared { directory: directory.to_owned(), sync, free_bytes, committed, _lock: lock };
        Ok((Self(Arc::new(shared)), ids))
    }

    /// Returns whether the file system has space for a mail of this size.
    pub fn has_space(&self, size: u64) -> bool {
        let free = rustix::fs::statvfs(&self.0.directory).map(|found| found.f_bavail.saturating_mul(found.f_frsize));
        free.is_ok_and(|free| free >= size.saturating_add(self.0.free_bytes))
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
}

/// A mail that is being received. Its file is removed unless it is committed.
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

    /// Returns the number of bytes so far.
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
            // The client sends the mail again.
            self.queue.remove(self.id)?;
            return Err(error);
        }
        // The send fails only while the node stops. The next start finds the mail.
        let _ = self.queue.0.committed.send(self.id);
        Ok(())
    }

    fn new_path(&self) -> PathBuf {
        self.queue.path(self.id).with_extension("new")
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // After a commit, the file has another name.
        match fs::remove_file(self.new_path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "failed to remove an incomplete mail");
            }
            _ => {}
        }
    }
}

/// Appends to a file, which is created if it is not open yet.
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

    #[tokio::test]
    async fn committed_mail_survives_and_incomplete_mail_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let (queue, mut ids) = Queue::open(directory.path(), 0).unwrap();
        assert!(Queue::open(directory.path(), 0).is_err(), "the directory is locked");
        let mut spool = queue.receive();
        for _ in 0..3 {
            spool.write(&[b'x'; BLOCK - 1]).await.unwrap();
        }
        let (id, size) = (spool.id(), spool.size());
        spool.commit(&envelope(size)).await.unwrap();
        assert_eq!(ids.recv().await, Some(id));
        let mut incomplete = queue.receive();
        incomplete.write(&[b'x'; 2 * BLOCK]).await.unwrap();
        let path = incomplete.new_path();
        assert!(path.exists());
        drop(incomplete);
        assert!(!path.exists());
        fs::write(&path, "of a killed process").unwrap();
        drop((queue, ids));

        let (queue, mut ids) = Queue::open(directory.path(), 0).unwrap();
        assert!(!path.exists());
        assert_eq!(ids.recv().await, Some(id));
        let mut file = tokio::fs::File::open(queue.path(id)).await.unwrap();
        assert_eq!(Envelope::read(&mut file).await.unwrap(), envelope(size));
    }

    #[tokio::test]
    async fn damaged_file_is_recognized() {
        let directory = tempfile::tempdir().unwrap();
        let whole = [b"mail".to_vec(), envelope(4).encode().unwrap()].concat();
        let path = directory.path().join("mail");
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let error = Envelope::read(&mut tokio::fs::File::open(&path).await.unwrap()).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{length}");
        }
        fs::write(&path, [b"x".to_vec(), whole].concat()).unwrap();
        let error = Envelope::read(&mut tokio::fs::File::open(&path).await.unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn space_is_reserved() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Queue::open(directory.path(), 0).unwrap().0.has_space(1));
        assert!(!Queue::open(directory.path(), u64::MAX).unwrap().0.has_space(1));
    }
}
