//! Removal of damaged blobs, so that they are stored again.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::PoisonError;

use daemon::if_exists;

use super::{Blob, Cache, remove, size_of};
use crate::digest::{Digest, HashingWriter};
use crate::index::Asset;

impl Cache {
    /// Removes the damaged blobs of a bundle. Its index stays: without it, the intact blobs would be evicted, and the
    /// site would not be served after a restart.
    pub fn remove_damaged_blobs(&self, bundle: Digest) -> io::Result<()> {
        let _exclusive = self.removal_lock.write().unwrap_or_else(PoisonError::into_inner);
        let Some(index) = self.index(bundle)? else { return Ok(()) };
        index.contents().try_for_each(|asset| self.remove_if_damaged(asset))
    }

    /// Checks compressed blobs by size only, because their digests are not stored.
    fn remove_if_damaged(&self, asset: &Asset) -> io::Result<()> {
        for coding in asset.codings() {
            let path = self.blob_path(Blob { content: asset.content, coding });
            if size_of(&path)? != asset.size_in(coding) {
                remove(&path)?;
            }
        }
        if self.is_intact(asset.content)? { Ok(()) } else { remove(&self.blob_path(asset.content)) }
    }

    /// Returns whether a blob is stored and matches its digest. Reads the whole file.
    pub fn is_intact(&self, content: Digest) -> io::Result<bool> {
        Ok(if_exists(digest(&self.blob_path(content)))? == Some(content))
    }
}

fn digest(path: &Path) -> io::Result<Digest> {
    let mut content = HashingWriter::new(io::sink());
    io::copy(&mut File::open(path)?, &mut content)?;
    Ok(content.finish())
}
