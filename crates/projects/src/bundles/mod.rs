//! The bundle store: one object per digest, written atomically.
//!
//! An upload streams through SHA-256, the validating reader and a temporary object. Memory use does not depend on the
//! size of the upload: at most [`MAX_PENDING_CHUNKS`] chunks wait for the reader, and a few parts
//! (`objects::PartLimits`) wait for the store.

mod sweep;

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures_util::{Stream, StreamExt as _};
use kernel::{BundleLimits, Digest, Digester, Time, error_chain};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};
use objects::{ObjectWriter, Store};
use tokio::sync::mpsc;

use crate::error::ProjectError;

/// The number of body chunks that may wait for the reader.
const MAX_PENDING_CHUNKS: usize = 4;

/// The folder of uploads that are not yet validated.
const INCOMING: &str = "incoming";

/// The longest time to read the rest of a rejected upload.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The bundle store. Cheap to clone; clones share one memory limit for uploads.
#[derive(Debug, Clone)]
pub struct Bundles(Store);

/// A validated bundle in the store.
#[derive(Debug, Clone)]
pub struct StoredBundle {
    pub digest: Digest,
    /// Bytes of the upload.
    pub size_bytes: u64,
    /// The reader's summary of the bundle.
    pub contents: bundle::Contents,
}

type Result<T> = std::result::Result<T, ProjectError>;

impl Bundles {
    /// Creates a bundle store in an object store.
    #[must_use]
    pub const fn new(store: Store) -> Self {
        Self(store)
    }

    /// Validates an upload, and stores it if `admit` accepts the valid bundle. A rejected or interrupted upload leaves
    /// no object behind.
    ///
    /// # Errors
    /// Returns [`ProjectError::Bundle`] for an invalid or too large bundle, [`ProjectError::UploadBroken`] if the body
    /// fails, the error of `admit`, or [`ProjectError::BundleStore`].
    pub async fn receive<E>(
        &self,
        name: &str,
        limits: BundleLimits,
        mut body: impl Stream<Item = std::result::Result<Bytes, E>> + Unpin,
        admit: impl AsyncFnOnce(&StoredBundle) -> Result<()>,
    ) -> Result<StoredBundle>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let temporary = Path::from_iter([INCOMING, name]);
        let mut writer = ObjectWriter::new(self.0.objects.clone(), temporary.clone(), self.0.parts.clone());
        let received = match stream_upload(&mut body, limits, &mut writer).await {
            Ok(received) => admit(&received).await.map(|()| received),
            Err(error) => Err(error),
        };
        match received {
            Ok(received) => {
                // Commit in a separate task, so that the commit completes even if the request is cancelled.
                let commit = commit(self.0.objects.clone(), writer, temporary, object_path(received.digest));
                tokio::spawn(commit).await.map_err(store::Error::inconsistent)??;
                Ok(received)
            }
            Err(error) => {
                writer.abort().await;
                let drained = drain(&mut body, limits.compressed);
                if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
                    tracing::debug!("stopped reading a rejected upload after the timeout");
                }
                Err(error)
            }
        }
    }

    /// Opens a bundle and returns its size and its bytes.
    ///
    /// # Errors
    /// Returns [`ProjectError::BundleNotFound`] or [`ProjectError::BundleStore`].
    pub async fn open(
        &self,
        digest: Digest,
    ) -> Result<(u64, impl Stream<Item = object_store::Result<Bytes>> + 'static)> {
        match self.0.objects.get(&object_path(digest)).await {
            Ok(object) => Ok((object.meta.size, object.into_stream())),
            Err(object_store::Error::NotFound { .. }) => Err(ProjectError::BundleNotFound),
            Err(error) => Err(store_error(error)),
        }
    }

    /// Deletes temporary objects that were last written before `before`, and returns their number. Killed processes
    /// leave such objects. `before` must be longer ago than the longest upload.
    ///
    /// Does not delete the parts of an incomplete S3 upload, because they are not objects. A lifecycle rule of the
    /// bucket must remove them.
    ///
    /// # Errors
    /// Returns [`ProjectError::BundleStore`].
    pub async fn sweep(&self, before: Time) -> Result<usize> {
        match &self.0.folder {
            Some(folder) => {
                let deleted = sweep::delete_old_files(folder.clone(), before).await;
                deleted.map_err(|error| ProjectError::BundleStore(error.into()))
            }
            None => sweep::delete_old_objects(&*self.0.objects, before).await.map_err(store_error),
        }
    }
}

/// Completes the temporary object and renames it to its final path. A failure leaves no object behind.
async fn commit(objects: Arc<dyn ObjectStore>, writer: ObjectWriter, temporary: Path, object_path: Path) -> Result<()> {
    writer.finish().await.map_err(store_error)?;
    if let Err(error) = objects.rename(&temporary, &object_path).await {
        if let Err(error) = objects.delete(&temporary).await {
            tracing::warn!(error = %error_chain(&error), "failed to delete a temporary object");
        }
        return Err(store_error(error));
    }
    Ok(())
}

/// Streams the body into the digest, the reader and the store concurrently.
async fn stream_upload<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    body: &mut (impl Stream<Item = std::result::Result<Bytes, E>> + Unpin),
    limits: BundleLimits,
    writer: &mut ObjectWriter,
) -> Result<StoredBundle> {
    let (chunks, receiver) = mpsc::channel(MAX_PENDING_CHUNKS);
    let BundleLimits { compressed, unpacked, entries } = limits;
    let reader = tokio::task::spawn_blocking(move || {
        let limits = bundle::Limits { compressed, unpacked, entries, names: bundle::MAX_FILE_NAMES_BYTES };
        bundle::read(Chunks { receiver, current: Bytes::new() }, &limits, |_| Ok(()))
    });
    let mut digester = Digester::default();
    let mut size_bytes = 0;
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|error| ProjectError::UploadBroken(error.into()))?;
        digester.update(&chunk);
        size_bytes += chunk.len() as u64;
        writer.write(&chunk).await.map_err(store_error)?;
        if chunks.send(chunk).await.is_err() {
            // The reader has rejected the bundle.
            break;
        }
    }
    drop(chunks);
    let contents = reader.await.map_err(store::Error::inconsistent)?.map_err(ProjectError::Bundle)?;
    Ok(StoredBundle { digest: digester.finish(), size_bytes, contents })
}

/// Reads the rest of the body, so that a client that is still sending receives the response.
async fn drain<E>(body: &mut (impl Stream<Item = std::result::Result<Bytes, E>> + Unpin), max: u64) {
    let mut drained = 0;
    while let Some(Ok(chunk)) = body.next().await {
        drained += chunk.len() as u64;
        if drained > max {
            return;
        }
    }
}

fn object_path(digest: Digest) -> Path {
    Path::from_iter(["bundles", &digest.hex()])
}

fn store_error(error: object_store::Error) -> ProjectError {
    ProjectError::BundleStore(error.into())
}

/// Reads chunks from a channel, for the validating reader on its own thread.
struct Chunks {
    receiver: mpsc::Receiver<Bytes>,
    current: Bytes,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.receiver.blocking_recv() {
                Some(chunk) => self.current = chunk,
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.current.len());
        self.current.copy_to_slice(buffer.get_mut(..count).unwrap_or_default());
        Ok(count)
    }
}
