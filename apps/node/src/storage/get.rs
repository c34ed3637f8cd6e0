//! Operation `get`.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use serde::Deserialize;
use tokio::time::{sleep, timeout};

use super::Storage;
use super::error::{Result, StorageError, failed};
use super::grant::Grant;
use super::key::Key;
use super::metrics::Direction;
use super::object::{Record, StoredObject};
use super::wait::{STORE_TIMEOUT, WaitBudget};
use crate::delivery::deliver;

/// Smaller contents are read before the response begins, so that a failure can still be returned with its code.
const SMALL_CONTENT_BYTES: u64 = 64 * 1024;
/// How often a get looks up the object again after its blob was replaced and deleted.
const MAX_LOOKUPS: usize = 5;

/// A part of an object's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct ContentRange {
    pub offset: u64,
    /// The length. The range ends at the end of the object if the length is absent or too long.
    pub length: Option<u64>,
}

/// The requested content.
pub struct Content {
    pub length: u64,
    pub bytes: BoxStream<'static, Result<Bytes>>,
}

impl ContentRange {
    /// Returns the range in an object of `size` bytes; `None` if it begins past the end. A range from the beginning of
    /// an empty object is empty.
    fn within(self, size: u64) -> Option<Range<u64>> {
        let Self { offset, length } = self;
        let end = length.map_or(size, |length| offset.saturating_add(length).min(size));
        (offset < size || offset == 0).then_some(offset..end)
    }
}

impl Storage {
    /// Returns the object of a key with its content or a part of it; `None` if the key has no object or the range is
    /// past the end of the object.
    ///
    /// # Errors
    /// Returns an error if the storage is not available. The content can also fail later, while it is read.
    pub async fn get(
        self: &Arc<Self>,
        grant: &Grant,
        key: Key,
        range: Option<ContentRange>,
    ) -> Result<Option<(StoredObject, Content)>> {
        self.counted("get", WaitBudget::new().wait(self.open_object(grant, key, range)).await.flatten())
    }

    async fn open_object(
        self: &Arc<Self>,
        grant: &Grant,
        key: Key,
        range: Option<ContentRange>,
    ) -> Result<Option<(StoredObject, Content)>> {
        let prefix = self.prepare(grant).await?;
        let mut previous = None;
        for _ in 0..MAX_LOOKUPS {
            let (name, looked_up) = (prefix.name.clone(), key.clone());
            let record = self.index.read(move |tables| tables.record(&name, looked_up.as_str())).await?;
            let Some(record) = record else { return Ok(None) };
            let range = range.unwrap_or(ContentRange { offset: 0, length: None }).within(record.size);
            let Some(range) = range else { return Ok(None) };
            if let Some(content) = self.open_content(&prefix.name, &record, range).await? {
                return Ok(Some((record.object(key.into_string()), content)));
            }
            // Usually, the blob was replaced and deleted after the lookup. If the object still refers to the same blob,
            // the blob is lost.
            if previous == Some(record.blob) {
                tracing::error!(prefix = prefix.name, blob = %record.blob, "the blob of an object is missing");
                return Err(StorageError::DAMAGED);
            }
            previous = Some(record.blob);
        }
        Err(StorageError::FAILED)
    }

    /// Opens a range of the content of an object. `None` if the blob does not exist.
    async fn open_content(
        self: &Arc<Self>,
        prefix: &str,
        record: &Record,
        range: Range<u64>,
    ) -> Result<Option<Content>> {
        let length = range.end - range.start;
        if length == 0 {
            return Ok(Some(Content { length, bytes: stream::empty().boxed() }));
        }
        let reader = self.readers.begin(record.blob);
        let range = record.offset + range.start..record.offset + range.end;
        let Some(opened) = self.blobs.open(prefix, record.blob, range).await? else { return Ok(None) };
        let storage = Arc::clone(self);
        let bytes = stream::try_unfold((opened.into_stream(), length), async |(mut bytes, left)| {
            let next = timeout(STORE_TIMEOUT, bytes.try_next()).await.map_err(|_| StorageError::TIMED_OUT)?;
            match next.map_err(failed("read a blob"))? {
                Some(chunk) => Ok(Some((chunk.clone(), (bytes, left.saturating_sub(chunk.len() as u64))))),
                None if left == 0 => Ok(None),
                None => Err(failed("read a blob")("the blob is shorter than its object")),
            }
        });
        let bytes = bytes.inspect_ok(move |chunk| {
            // The closure holds the reader, so that the blob is not deleted while the stream exists.
            let _ = &reader;
            storage.metrics.add_bytes(Direction::Out, chunk.len());
        });
        if length > SMALL_CONTENT_BYTES {
            let receiver_timeout = self.receiver_timeout;
            let expire = move || sleep(receiver_timeout);
            let (bytes, delivery) = deliver(bytes.boxed(), expire, Err(StorageError::NOT_READ));
            self.runtime.spawn(delivery);
            return Ok(Some(Content { length, bytes: bytes.boxed() }));
        }
        let chunks: Vec<Bytes> = bytes.try_collect().await?;
        Ok(Some(Content { length, bytes: stream::iter(chunks).map(Ok).boxed() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_clipped_to_the_object() {
        let within = |offset, length, size| ContentRange { offset, length }.within(size);
        assert_eq!(within(0, None, 10), Some(0..10));
        assert_eq!(within(3, Some(4), 10), Some(3..7));
        assert_eq!(within(9, Some(u64::MAX), 10), Some(9..10));
        assert_eq!(within(2, Some(0), 10), Some(2..2));
        assert_eq!(within(10, None, 10), None);
        assert_eq!(within(u64::MAX, Some(1), 10), None);
        assert_eq!((within(0, None, 0), within(0, Some(5), 0), within(1, None, 0)), (Some(0..0), Some(0..0), None));
    }
}
