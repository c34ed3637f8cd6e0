//! The store of bundles: one object for each digest, written whole or not at all.
//!
//! An upload passes in one stream through SHA-256, the validating reader and a temporary object. Memory does not grow
//! with its size: at most [`IN_FLIGHT`] chunks wait for the reader, and a few [`Parts`] for the store.

mod s3;
mod sweep;
mod writing;

use std::io::{self, Read};
use std::path::{Path as Folder, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures_util::{Stream, StreamExt as _};
use kernel::{BundleLimits, Digest, Digester, Time};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};
use tokio::sync::mpsc;

use self::writing::{Parts, Writing};
use crate::error::ProjectError;

pub use self::s3::S3;

/// Chunks of the body that may wait for the reader.
const IN_FLIGHT: usize = 4;

/// Where uploads are until they are known to be bundles.
const INCOMING: &str = "incoming";

/// How long the rest of a refused upload is read for.
const DRAIN: Duration = Duration::from_secs(10);

/// The store of bundles. Cheap to clone; clones share the memory that uploads may take.
#[derive(Debug, Clone)]
pub struct Bundles {
    objects: Arc<dyn ObjectStore>,
    /// The folder that the objects are files of, if they are.
    folder: Option<PathBuf>,
    parts: Parts,
}

/// A bundle that is valid and stored.
#[derive(Debug, Clone)]
pub struct Received {
    pub digest: Digest,
    /// Bytes of the upload.
    pub size_bytes: u64,
    /// What the validating reader found.
    pub contents: bundle::Contents,
}

type Result<T> = std::result::Result<T, ProjectError>;

impl Bundles {
    /// The bundles kept in this object store, which is not a folder.
    #[must_use]
    pub fn new(objects: Arc<dyn ObjectStore>) -> Self {
        Self { objects, folder: None, parts: Parts::large() }
    }

    /// The bundles kept in a folder, which is made if there is none. What is finished is on the disk.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn in_folder(folder: &Folder) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let files = LocalFileSystem::new_with_prefix(folder)?.with_fsync(true);
        Ok(Self { objects: Arc::new(files), folder: Some(folder.to_owned()), parts: Parts::small() })
    }

    /// The bundles kept in a bucket. It is not asked yet whether it is there. Needs rustls' default provider.
    ///
    /// # Errors
    /// What [`S3`] says cannot be used.
    pub fn in_s3(s3: &S3) -> object_store::Result<Self> {
        Ok(Self::new(s3.connect()?))
    }

    /// Takes an upload in. What is refused or breaks off leaves no object behind.
    ///
    /// # Errors
    /// [`ProjectError::Bundle`] for what is no bundle or too large, [`ProjectError::UploadBroken`] when the body ends
    /// early, [`ProjectError::BundleStore`].
    pub async fn receive<E>(
        &self,
        name: &str,
        limits: BundleLimits,
        mut body: impl Stream<Item = std::result::Result<Bytes, E>> + Unpin,
    ) -> Result<Received>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let temporary = Path::from_iter([INCOMING, name]);
        let upload = self.objects.put_multipart(&temporary).await.map_err(unreachable_store)?;
        let mut writing = Writing::new(upload, self.parts.clone());
        match pour(&mut body, limits, &mut writing).await {
            Ok(received) => {
                // On its own, so that it goes through whatever becomes of the request.
                let keep = keep(self.objects.clone(), writing, temporary, location(received.digest));
                tokio::spawn(keep).await.map_err(store::Error::inconsistent)??;
                Ok(received)
            }
            Err(error) => {
                writing.abort().await;
                let drained = drain(&mut body, limits.compressed);
                if tokio::time::timeout(DRAIN, drained).await.is_err() {
                    tracing::debug!("a refused upload went on for too long to be read to its end");
                }
                Err(error)
            }
        }
    }

    /// The bytes of a bundle.
    ///
    /// # Errors
    /// [`ProjectError::BundleNotFound`], [`ProjectError::BundleStore`].
    pub async fn open(
        &self,
        digest: Digest,
    ) -> Result<(u64, impl Stream<Item = object_store::Result<Bytes>> + 'static)> {
        match self.objects.get(&location(digest)).await {
            Ok(object) => Ok((object.meta.size, object.into_stream())),
            Err(object_store::Error::NotFound { .. }) => Err(ProjectError::BundleNotFound),
            Err(error) => Err(unreachable_store(error)),
        }
    }

    /// Deletes what uploads of processes that were killed left behind: temporary objects that were last written before
    /// `before`, which has to be longer ago than an upload takes. Tells how many there were.
    ///
    /// Parts of an S3 upload that was never completed are no objects: a rule of the bucket has to remove those.
    ///
    /// # Errors
    /// [`ProjectError::BundleStore`].
    pub async fn sweep(&self, before: Time) -> Result<usize> {
        match &self.folder {
            Some(folder) => {
                let swept = sweep::folder(folder.clone(), before).await;
                swept.map_err(|error| ProjectError::BundleStore(error.into()))
            }
            None => sweep::objects(&*self.objects, before).await.map_err(unreachable_store),
        }
    }
}

/// Completes the temporary object under its final name; where that fails, nothing is left of it.
async fn keep(objects: Arc<dyn ObjectStore>, writing: Writing, temporary: Path, location: Path) -> Result<()> {
    writing.finish().await.map_err(unreachable_store)?;
    if let Err(error) = objects.rename(&temporary, &location).await {
        if let Err(error) = objects.delete(&temporary).await {
            tracing::warn!(%error, "a temporary object is left");
        }
        return Err(unreachable_store(error));
    }
    Ok(())
}

/// Pours the body into the digest, the reader and the store at once.
async fn pour<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    body: &mut (impl Stream<Item = std::result::Result<Bytes, E>> + Unpin),
    limits: BundleLimits,
    writing: &mut Writing,
) -> Result<Received> {
    let (chunks, waiting) = mpsc::channel(IN_FLIGHT);
    let BundleLimits { compressed, unpacked, entries } = limits;
    let reader = tokio::task::spawn_blocking(move || {
        let limits = bundle::Limits { compressed, unpacked, entries };
        bundle::read(Chunks { waiting, current: Bytes::new() }, &limits, |_| Ok(()))
    });
    let mut digester = Digester::default();
    let mut size_bytes = 0;
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|error| ProjectError::UploadBroken(error.into()))?;
        digester.update(&chunk);
        size_bytes += chunk.len() as u64;
        writing.write(&chunk).await.map_err(unreachable_store)?;
        if chunks.send(chunk).await.is_err() {
            // The reader has seen enough to refuse the rest.
            break;
        }
    }
    drop(chunks);
    let contents = reader.await.map_err(store::Error::inconsistent)?.map_err(ProjectError::Bundle)?;
    Ok(Received { digest: digester.finish(), size_bytes, contents })
}

/// Reads on for a while, so that a client that is still sending gets to see the answer.
async fn drain<E>(body: &mut (impl Stream<Item = std::result::Result<Bytes, E>> + Unpin), most: u64) {
    let mut drained = 0;
    while let Some(Ok(chunk)) = body.next().await {
        drained += chunk.len() as u64;
        if drained > most {
            return;
        }
    }
}

fn location(digest: Digest) -> Path {
    Path::from_iter(["bundles", &digest.hex()])
}

fn unreachable_store(error: object_store::Error) -> ProjectError {
    ProjectError::BundleStore(error.into())
}

/// Chunks from a channel, for a reader on a thread of its own.
struct Chunks {
    waiting: mpsc::Receiver<Bytes>,
    current: Bytes,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.waiting.blocking_recv() {
                Some(chunk) => self.current = chunk,
                None => return Ok(0),
            }
        }
        let taken = buffer.len().min(self.current.len());
        self.current.copy_to_slice(buffer.get_mut(..taken).unwrap_or_default());
        Ok(taken)
    }
}
