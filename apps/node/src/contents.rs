//! Blob contents for visitors: small blobs from memory, large ones from their files.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use actix_web::http::header::HeaderValue;
use actix_web::web::Bytes;
use quick_cache::Weighter;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

use crate::cache::{Blob, Cache};
use crate::digest::Digest;

/// The size of the in-memory cache.
const MEMORY_CACHE_BYTES: u64 = 32 << 20;
/// Larger blobs are not cached in memory; they are streamed from their files.
const MAX_CACHED_SIZE: u64 = 128 << 10;
/// The approximate memory overhead of a cached blob.
const ENTRY_OVERHEAD: u64 = 300;

/// Reads blobs of the on-disk cache through an in-memory cache. Both use digests as keys, so entries are never stale.
pub struct Contents {
    cache: Arc<Cache>,
    cached: quick_cache::sync::Cache<Blob, CachedBlob, Weight>,
    damaged: mpsc::Sender<Digest>,
}

/// A blob in memory.
#[derive(Clone)]
pub struct CachedBlob {
    pub etag: HeaderValue,
    pub bytes: Bytes,
}

/// The content of a blob.
pub enum Content {
    Bytes(Bytes),
    /// An open file, which stays readable after it is evicted.
    File(File),
}

#[derive(Clone)]
struct Weight;

impl Weighter<Blob, CachedBlob> for Weight {
    fn weight(&self, _: &Blob, cached: &CachedBlob) -> u64 {
        cached.bytes.len() as u64 + ENTRY_OVERHEAD
    }
}

impl Contents {
    /// Reads from `cache`. Sends the digests of missing and damaged blobs to `damaged`.
    pub fn new(cache: Arc<Cache>, damaged: mpsc::Sender<Digest>) -> Self {
        let items = usize::try_from(MEMORY_CACHE_BYTES / (16 << 10)).unwrap_or_default();
        Self { cache, cached: quick_cache::sync::Cache::with_weighter(items, MEMORY_CACHE_BYTES, Weight), damaged }
    }

    /// Returns the blob if it is in memory.
    pub fn cached(&self, blob: Blob) -> Option<CachedBlob> {
        self.cached.get(&blob)
    }

    /// Opens a blob of `size` bytes that is not in memory, and caches it if it is small.
    pub async fn open(&self, blob: Blob, size: u64) -> io::Result<Content> {
        let opened = self.read(blob, size).await;
        if let Err(error) = &opened
            && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData)
        {
            // If the channel is full, the next request for the blob reports it again.
            let _ = self.damaged.try_send(blob.content);
        }
        opened
    }

    async fn read(&self, blob: Blob, size: u64) -> io::Result<Content> {
        let mut file = File::open(self.cache.blob_path(blob)).await?;
        if file.metadata().await?.len() != size {
            return Err(ErrorKind::InvalidData.into());
        }
        if size > MAX_CACHED_SIZE {
            return Ok(Content::File(file));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).await?;
        let bytes = Bytes::from(bytes);
        self.cached.insert(blob, CachedBlob { etag: blob.etag(), bytes: bytes.clone() });
        Ok(Content::Bytes(bytes))
    }
}
