//! Giving up what turned out to be damaged, so that it is fetched again.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::PoisonError;

use super::{Blob, Cache, remove, size_of, sync};
use crate::digest::{Digest, Hashing};
use crate::index::Asset;

impl Cache {
    /// Removes the index of a bundle, and those of its contents that are not what their names say. Blocks.
    pub fn give_up(&self, bundle: Digest) -> io::Result<()> {
        let _alone = self.turn.write().unwrap_or_else(PoisonError::into_inner);
        let Some(index) = self.index(bundle)? else { return Ok(()) };
        remove(&self.index_path(bundle))?;
        sync(&self.dir.join("sites"))?;
        index.contents().try_for_each(|asset| self.remove_damaged(asset))
    }

    /// A compressed content is held to its size alone: its digest is nowhere.
    fn remove_damaged(&self, asset: &Asset) -> io::Result<()> {
        for coding in asset.codings() {
            let path = self.blob(Blob { content: asset.content, coding });
            if size_of(&path)? != asset.size_in(coding) {
                remove(&path)?;
            }
        }
        if self.is_intact(asset.content)? { Ok(()) } else { remove(&self.blob(asset.content)) }
    }

    /// Whether a content is here and what its name says. Reads all of it.
    pub fn is_intact(&self, content: Digest) -> io::Result<bool> {
        match digest(&self.blob(content)) {
            Ok(found) => Ok(found == content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn digest(path: &Path) -> io::Result<Digest> {
    let mut content = Hashing::new(io::sink());
    io::copy(&mut File::open(path)?, &mut content)?;
    Ok(content.finish())
}
