//! The blobs in the object store.
//!
//! A blob is `<prefix>/<uuid>`. `<prefix>/owner` is the id of the index that describes the prefix.

use std::ops::Range;

use bytes::Bytes;
use daemon::if_exists;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{Error, GetOptions, GetResult, ObjectMeta, ObjectStore as _, ObjectStoreExt as _};
use objects::{ObjectWriter, Store};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use uuid::Uuid;

use super::error::{Result, StorageError, failed};
use super::object::{Decoded, Header, Record};
use super::wait::STORE_TIMEOUT;

/// Most headers are shorter. A longer one requires a second request.
const HEADER_READ_BYTES: u64 = 4096;
const OWNER: &str = "owner";
/// The largest number of objects that are deleted at the same time.
pub const CONCURRENT_DELETES: usize = 8;

/// The blobs of all projects.
pub struct Blobs(Store);

/// A blob in a listing.
pub struct ListedBlob {
    pub id: Uuid,
    /// The size of the blob, with its header.
    pub size: u64,
}

impl Blobs {
    pub const fn new(store: Store) -> Self {
        Self(store)
    }

    /// Returns a writer of a new blob.
    pub fn writer(&self, prefix: &str, blob: Uuid) -> ObjectWriter {
        ObjectWriter::new(self.0.objects.clone(), path(prefix, blob), self.0.parts.clone())
    }

    /// Opens a range of a blob. Returns `None` if the blob does not exist.
    pub async fn open(&self, prefix: &str, blob: Uuid, range: Range<u64>) -> Result<Option<GetResult>> {
        let options = GetOptions { range: Some(range.into()), ..GetOptions::default() };
        match self.0.objects.get_opts(&path(prefix, blob), options).await {
            Ok(opened) => Ok(Some(opened)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed("read a blob")(error)),
        }
    }

    /// Deletes a blob, if it exists.
    pub async fn delete(&self, prefix: &str, blob: Uuid) -> Result<()> {
        match within(self.0.objects.delete(&path(prefix, blob))).await? {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed("delete a blob")(error)),
        }
    }

    /// Deletes everything below a prefix that is no longer used.
    pub async fn delete_all(&self, prefix: &str) -> Result<()> {
        if let Some(folder) = self.0.folder.as_ref().map(|folder| folder.join(prefix)) {
            // In a folder, this also deletes the unfinished uploads, which the store does not list.
            let deleted = spawn_blocking(move || if_exists(std::fs::remove_dir_all(folder))).await;
            return deleted.map_err(failed("delete a folder"))?.map(drop).map_err(failed("delete a folder"));
        }
        let listed = bounded(self.0.objects.list(Some(&Path::from(prefix))));
        let delete = async |object: ObjectMeta| match within(self.0.objects.delete(&object.location)).await? {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed("delete a blob")(error)),
        };
        listed.try_for_each_concurrent(CONCURRENT_DELETES, delete).await
    }

    /// Lists the blobs of a prefix from the id `from` on. Ignores objects with other names.
    pub fn list(&self, prefix: &str, from: Uuid) -> impl Stream<Item = Result<ListedBlob>> + Send + use<> {
        let offset = Uuid::from_u128(from.as_u128().saturating_sub(1));
        let listed = self.0.objects.list_with_offset(Some(&Path::from(prefix)), &path(prefix, offset));
        bounded(listed).try_filter_map(|object| async move {
            let id = object.location.filename().and_then(|name| Uuid::try_parse(name).ok());
            Ok(id.map(|id| ListedBlob { id, size: object.size }))
        })
    }

    /// Reads the header of a blob. Returns `None` if the blob does not exist, or is not a blob of this format.
    pub async fn describe(&self, prefix: &str, listed: &ListedBlob) -> Result<Option<(String, Record)>> {
        if listed.size == 0 {
            return Ok(None);
        }
        let mut needed = HEADER_READ_BYTES;
        while let Some(start) = self.read_start(prefix, listed, needed).await? {
            match Header::decode(start) {
                Some(Decoded::Header { header: Header { key, uploaded, attributes }, offset }) => {
                    let size = listed.size.saturating_sub(offset);
                    return Ok(Some((key, Record { blob: listed.id, size, offset, uploaded, attributes })));
                }
                Some(Decoded::Incomplete { needed: more }) if more > needed && more <= listed.size => needed = more,
                _ => {
                    tracing::error!(prefix, blob = %listed.id, "found an object that is not a blob; ignoring it");
                    break;
                }
            }
        }
        Ok(None)
    }

    async fn read_start(&self, prefix: &str, listed: &ListedBlob, length: u64) -> Result<Option<Bytes>> {
        let range = 0..length.min(listed.size);
        match within(self.0.objects.get_range(&path(prefix, listed.id), range)).await? {
            Ok(start) => Ok(Some(start)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed("read a blob")(error)),
        }
    }

    /// Returns the owner of a prefix, if it has one.
    pub async fn owner(&self, prefix: &str) -> Result<Option<Uuid>> {
        let owner = async { self.0.objects.get(&Path::from_iter([prefix, OWNER])).await?.bytes().await };
        match within(owner).await? {
            Ok(owner) => Ok(str::from_utf8(&owner).ok().and_then(|owner| Uuid::try_parse(owner).ok())),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed("read the owner of a prefix")(error)),
        }
    }

    /// Changes the owner of a prefix.
    pub async fn set_owner(&self, prefix: &str, owner: Uuid) -> Result<()> {
        let path = Path::from_iter([prefix, OWNER]);
        let put = self.0.objects.put(&path, owner.to_string().into());
        within(put).await?.map(drop).map_err(failed("write the owner of a prefix"))
    }

    /// Deletes the unfinished uploads of blobs with smaller ids than `before`, which killed processes left, and returns
    /// their number ([`Store::delete_unfinished`]).
    pub async fn delete_unfinished(&self, prefix: &str, before: Uuid) -> Result<usize> {
        let is_old = move |name: &str| Uuid::try_parse(name).is_ok_and(|blob| blob < before);
        self.0.delete_unfinished(prefix, is_old).await.map_err(failed("delete unfinished uploads"))
    }
}

/// Waits for a request to the store, for at most [`STORE_TIMEOUT`].
async fn within<T>(request: impl Future<Output = T>) -> Result<T> {
    timeout(STORE_TIMEOUT, request).await.map_err(|_| StorageError::TIMED_OUT)
}

/// Limits the wait for each object of a listing to [`STORE_TIMEOUT`].
fn bounded<T: Send + 'static>(
    listed: impl Stream<Item = object_store::Result<T>> + Send + Unpin + 'static,
) -> impl Stream<Item = Result<T>> + Send {
    futures_util::stream::try_unfold(listed, async |mut listed| {
        let next = within(listed.next()).await?.transpose().map_err(failed("list blobs"))?;
        Ok(next.map(|object| (object, listed)))
    })
}

fn path(prefix: &str, blob: Uuid) -> Path {
    Path::from_iter([prefix, &blob.to_string()])
}
