//! Writes an object in parts.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt as _, Result};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::parts::{PartLimits, bytes};

/// The longest wait for the parts in flight of an aborted upload.
const ABORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The threshold for buffers in bytes. A larger buffer is allocated for a whole part.
const SMALL_BUFFER: usize = 256 * 1024;

/// An upload of one object, which appears in the store when it is finished. An object of less than one part is sent in
/// one request. Dropping an unfinished upload aborts it, if a runtime is available.
#[derive(Debug)]
pub struct ObjectWriter {
    objects: Arc<dyn ObjectStore>,
    path: Path,
    limits: PartLimits,
    /// The size of all parts except the last one, in bytes. Some stores, such as R2, require equal sizes.
    part_size: usize,
    /// The permits that a part in flight holds.
    permits_per_part: u32,
    buffer: Vec<u8>,
    /// The upload of an object of several parts.
    upload: Option<Box<dyn MultipartUpload>>,
    in_flight: JoinSet<Result<()>>,
    /// The number of parts whose transfer has begun.
    begun_parts: usize,
    sent_parts: usize,
}

impl ObjectWriter {
    /// Creates an empty upload, without a request to the store.
    #[must_use]
    pub fn new(objects: Arc<dyn ObjectStore>, path: Path, limits: PartLimits) -> Self {
        Self::with_expected_size(objects, path, limits, 0)
    }

    /// Creates an empty upload of an object that is expected to have this size in bytes, without a request to the
    /// store. The parts are large enough for twice this size.
    #[must_use]
    pub fn with_expected_size(
        objects: Arc<dyn ObjectStore>,
        path: Path,
        limits: PartLimits,
        expected_bytes: u64,
    ) -> Self {
        let multiple = limits.multiple_for(expected_bytes);
        Self {
            objects,
            path,
            part_size: limits.part_size * multiple,
            permits_per_part: u32::try_from(multiple).unwrap_or(u32::MAX),
            limits,
            buffer: Vec::new(),
            upload: None,
            in_flight: JoinSet::new(),
            begun_parts: 0,
            sent_parts: 0,
        }
    }

    /// Returns the largest size of the object in bytes.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        bytes(self.part_size).saturating_mul(bytes(self.limits.max_parts))
    }

    /// Returns the number of parts that the store is known to have accepted. A part counts only after a write had to
    /// wait for it.
    #[must_use]
    pub const fn sent_parts(&self) -> usize {
        self.sent_parts
    }

    /// Returns whether the object consists of several parts, as far as it is written.
    #[must_use]
    pub const fn has_parts(&self) -> bool {
        self.upload.is_some()
    }

    /// Appends bytes and waits for buffer space. The bytes are copied, because a buffer of one-byte chunks would take a
    /// hundred times their size.
    ///
    /// # Errors
    /// Returns an error if the store fails, or if the object exceeds [`Self::max_bytes`].
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (chunk, rest) = bytes.split_at(bytes.len().min(self.part_size - self.buffer.len()));
            if self.buffer.len() + chunk.len() > SMALL_BUFFER {
                self.buffer.reserve_exact(self.part_size - self.buffer.len());
            }
            self.buffer.extend_from_slice(chunk);
            bytes = rest;
            if self.buffer.len() == self.part_size {
                self.send_part().await?;
            }
        }
        Ok(())
    }

    /// Completes the object. If this fails, the upload is aborted.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub async fn finish(mut self) -> Result<()> {
        if self.upload.is_none() {
            let content = mem::take(&mut self.buffer);
            return self.objects.put(&self.path, content.into()).await.map(drop);
        }
        let finished = self.complete().await;
        match finished {
            Ok(()) => self.upload = None,
            Err(_) => self.abort().await,
        }
        finished
    }

    /// Aborts the upload.
    pub async fn abort(mut self) {
        if let Some(upload) = self.upload.take() {
            abort(upload, mem::take(&mut self.in_flight)).await;
        }
    }

    async fn complete(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            self.send_part().await?;
        }
        while let Some(sent) = self.in_flight.join_next().await {
            sent??;
        }
        match &mut self.upload {
            Some(upload) => upload.complete().await.map(drop),
            None => Ok(()),
        }
    }

    async fn send_part(&mut self) -> Result<()> {
        if self.begun_parts >= self.limits.max_parts {
            return Err(Error::Generic { store: "upload", source: "the object has too many parts".into() });
        }
        while self.in_flight.len() >= self.limits.max_concurrent
            && let Some(sent) = self.in_flight.join_next().await
        {
            sent??;
            self.sent_parts += 1;
        }
        // The semaphore is never closed, so this cannot fail.
        let permit = self.limits.permits.clone().acquire_many_owned(self.permits_per_part).await.ok();
        if self.upload.is_none() {
            self.upload = create(self.objects.clone(), self.path.clone()).await?.0.take();
        }
        let Some(upload) = &mut self.upload else { return Ok(()) };
        let sending = upload.put_part(mem::take(&mut self.buffer).into());
        self.begun_parts += 1;
        self.in_flight.spawn(async move {
            let sent = sending.await;
            drop(permit);
            sent
        });
        Ok(())
    }
}

impl Drop for ObjectWriter {
    fn drop(&mut self) {
        abort_later(self.upload.take(), mem::take(&mut self.in_flight));
    }
}

/// A new upload of several parts. Dropping it aborts it.
struct Created(Option<Box<dyn MultipartUpload>>);

impl Drop for Created {
    fn drop(&mut self) {
        abort_later(self.0.take(), JoinSet::new());
    }
}

/// Creates an upload of several parts. The request continues if the caller is dropped: if it were cancelled, the store
/// could contain an upload whose id is unknown.
async fn create(objects: Arc<dyn ObjectStore>, path: Path) -> Result<Created> {
    tokio::spawn(async move { objects.put_multipart(&path).await.map(|upload| Created(Some(upload))) }).await?
}

fn abort_later(upload: Option<Box<dyn MultipartUpload>>, in_flight: JoinSet<Result<()>>) {
    if let (Some(upload), Ok(runtime)) = (upload, Handle::try_current()) {
        runtime.spawn(abort(upload, in_flight));
    }
}

/// Aborts an upload after its parts in flight have finished. A part that arrives after the abort would remain in the
/// store, and cancelling the request of a part does not stop the part in the store.
async fn abort(mut upload: Box<dyn MultipartUpload>, mut in_flight: JoinSet<Result<()>>) {
    let finished = async { while in_flight.join_next().await.is_some() {} };
    if tokio::time::timeout(ABORT_TIMEOUT, finished).await.is_err() {
        in_flight.shutdown().await;
    }
    if let Err(error) = upload.abort().await {
        tracing::warn!(%error, "failed to abort a rejected upload");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Semaphore;

    use crate::store::{Store, StoreConfig};

    use super::*;

    /// A store in a separate folder, which is removed when it is dropped.
    struct TestFolder {
        folder: PathBuf,
        store: Store,
    }

    impl TestFolder {
        fn create() -> Self {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let name = format!("svc-objects-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
            let folder = std::env::temp_dir().join(name);
            let store = StoreConfig::Folder(folder.clone()).open().unwrap();
            Self { folder, store }
        }

        /// Creates a writer with small parts, and with permits for the parts in flight of all writers.
        fn writer(&self, name: &str, permits: &Arc<Semaphore>) -> ObjectWriter {
            ObjectWriter::new(self.store.objects.clone(), Path::from(name), limits(permits))
        }

        async fn content(&self, name: &str) -> Vec<u8> {
            self.store.objects.get(&Path::from(name)).await.unwrap().bytes().await.unwrap().into()
        }

        /// Returns the names of all files, including those of unfinished uploads.
        fn files(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.folder).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        }

        async fn wait_until_empty(&self) {
            while !self.files().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    impl Drop for TestFolder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    fn limits(permits: &Arc<Semaphore>) -> PartLimits {
        PartLimits { part_size: 4, max_parts: usize::MAX, max_concurrent: 2, permits: Arc::clone(permits) }
    }

    fn permits() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(8))
    }

    #[tokio::test]
    async fn object_has_the_written_bytes_in_order() {
        let folder = TestFolder::create();
        // The sizes are: less than a part, exactly one and two parts, and more, in chunks that do not match the parts.
        for size in [0, 1, 3, 4, 5, 8, 100, 1001] {
            let content: Vec<u8> = (0..size).map(|number: u32| number.to_le_bytes()[0]).collect();
            for chunk in [1, 3, 4, 7, 2000] {
                let mut writer = folder.writer("object", &permits());
                for bytes in content.chunks(chunk) {
                    writer.write(bytes).await.unwrap();
                }
                writer.finish().await.unwrap();
                assert_eq!(folder.content("object").await, content, "{size} bytes in chunks of {chunk}");
            }
        }
        assert_eq!(folder.files(), ["object"]);
    }

    #[tokio::test]
    async fn unfinished_object_does_not_exist() {
        let folder = TestFolder::create();
        for size in [3, 100] {
            let mut writer = folder.writer("aborted", &permits());
            writer.write(&vec![1; size]).await.unwrap();
            writer.abort().await;
            let mut writer = folder.writer("dropped", &permits());
            writer.write(&vec![1; size]).await.unwrap();
            drop(writer);
            folder.wait_until_empty().await;
        }
    }

    #[tokio::test]
    async fn failed_object_does_not_exist() {
        let folder = TestFolder::create();
        fs::write(folder.folder.join("file"), "").unwrap();
        // The folder of the object cannot be created, because a file has its name.
        let mut writer = folder.writer("file/object", &permits());
        assert!(writer.write(&[1; 100]).await.is_err() || writer.finish().await.is_err());
        assert_eq!(folder.files(), ["file"]);
    }

    #[tokio::test]
    async fn objects_share_the_permits_of_parts_without_blocking_each_other() {
        let folder = TestFolder::create();
        let permits = Arc::new(Semaphore::new(1));
        let (mut one, mut other) = (folder.writer("one", &permits), folder.writer("other", &permits));
        for _ in 0..50 {
            one.write(b"12345").await.unwrap();
            other.write(b"67890").await.unwrap();
        }
        // Each write waited for the earlier parts.
        assert!(one.sent_parts() > 50 && other.sent_parts() > 50);
        let (finished, others) = tokio::join!(one.finish(), other.finish());
        assert!(finished.is_ok() && others.is_ok());
        assert_eq!(permits.available_permits(), 1);
        assert_eq!(folder.content("one").await, b"12345".repeat(50));
        assert_eq!(folder.content("other").await, b"67890".repeat(50));
    }

    #[tokio::test]
    async fn object_of_twice_the_expected_size_has_at_most_the_largest_number_of_parts() {
        let (folder, permits) = (TestFolder::create(), permits());
        let limits = limits(&permits).with_max_parts(10);
        for (expected, part_size) in [(0, 4), (20, 4), (21, 8), (40, 8), (41, 12)] {
            let objects = folder.store.objects.clone();
            let path = Path::from("object");
            let mut writer = ObjectWriter::with_expected_size(objects, path, limits.clone(), expected);
            assert_eq!((writer.part_size, writer.max_bytes()), (part_size, 10 * part_size as u64), "{expected} bytes");
            let content = vec![7; 10 * part_size];
            for bytes in content.chunks(3) {
                writer.write(bytes).await.unwrap();
            }
            assert_eq!(writer.begun_parts, 10);
            writer.finish().await.unwrap();
            assert_eq!(folder.content("object").await, content);
        }
        assert_eq!(permits.available_permits(), 8);
    }

    #[tokio::test]
    async fn object_with_too_many_parts_does_not_exist() {
        let folder = TestFolder::create();
        for size in [41, 44, 100] {
            let limits = limits(&permits()).with_max_parts(10);
            let mut writer = ObjectWriter::new(folder.store.objects.clone(), Path::from("object"), limits);
            let (written, finished) = (writer.write(&vec![1; size]).await, writer.finish().await);
            assert!(written.is_err() || finished.is_err(), "{size}");
            folder.wait_until_empty().await;
        }
    }
}
