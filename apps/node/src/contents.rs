//! Contents on their way to visitors: small ones out of memory, the others out of their files.

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

/// How much is held in memory …
const MEMORY: u64 = 32 << 20;
/// … of contents up to this size. What is larger is read as fast as its visitor takes it.
const SMALL: u64 = 128 << 10;
/// What holding one takes beside its bytes, about.
const OVERHEAD: u64 = 300;

/// The contents of the cache, as the front reads them. What is held in memory is named by its digest like what is on
/// disk, so it is never out of date.
pub struct Contents {
    cache: Arc<Cache>,
    held: quick_cache::sync::Cache<Blob, Held, Weight>,
    damaged: mpsc::Sender<Digest>,
}

/// A content in memory.
#[derive(Clone)]
pub struct Held {
    /// Its entity tag.
    pub etag: HeaderValue,
    pub bytes: Bytes,
}

/// A content that can be read.
pub enum Content {
    Held(Bytes),
    /// Open, so that it can be read to its end whatever becomes of its name.
    File(File),
}

#[derive(Clone)]
struct Weight;

impl Weighter<Blob, Held> for Weight {
    fn weight(&self, _: &Blob, held: &Held) -> u64 {
        held.bytes.len() as u64 + OVERHEAD
    }
}

impl Contents {
    /// The contents of `cache`; what turns out not to be there as it should is told to `damaged`.
    pub fn new(cache: Arc<Cache>, damaged: mpsc::Sender<Digest>) -> Self {
        let items = usize::try_from(MEMORY / (16 << 10)).unwrap_or_default();
        Self { cache, held: quick_cache::sync::Cache::with_weighter(items, MEMORY, Weight), damaged }
    }

    /// A content that is in memory.
    pub fn held(&self, blob: Blob) -> Option<Held> {
        self.held.get(&blob)
    }

    /// A content of `size` bytes that is not in memory yet.
    pub async fn open(&self, blob: Blob, size: u64) -> io::Result<Content> {
        let opened = self.read(blob, size).await;
        if let Err(error) = &opened
            && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData)
        {
            // When there are more than are being looked after already, the next visitor tells of it again.
            let _ = self.damaged.try_send(blob.content);
        }
        opened
    }

    async fn read(&self, blob: Blob, size: u64) -> io::Result<Content> {
        let mut file = File::open(self.cache.blob(blob)).await?;
        if file.metadata().await?.len() != size {
            return Err(ErrorKind::InvalidData.into());
        }
        if size > SMALL {
            return Ok(Content::File(file));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).await?;
        let bytes = Bytes::from(bytes);
        self.held.insert(blob, Held { etag: blob.etag(), bytes: bytes.clone() });
        Ok(Content::Held(bytes))
    }
}
