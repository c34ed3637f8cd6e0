//! Folders for the archives that are being restored.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use daemon::if_exists;

use crate::cache::create_private_dir;
use crate::random;

/// The folder of one restore, deleted on drop.
pub struct Spool(PathBuf);

/// Deletes the folders that a killed node left.
pub fn clear(folder: &Path) -> io::Result<()> {
    if_exists(fs::remove_dir_all(folder)).map(drop)
}

impl Spool {
    pub fn create(parent: &Path) -> io::Result<Self> {
        let folder = parent.join(random::id().to_string());
        create_private_dir(&folder)?;
        Ok(Self(folder))
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, folder = %self.0.display(), "failed to delete an archive after a restore");
        }
    }
}
