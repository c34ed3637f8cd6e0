//! Folders for the archives that are being restored.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::random;

/// The folder of one restore, deleted on drop.
pub struct Spool(PathBuf);

/// Deletes the folders that a killed node left.
pub fn clear(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Spool {
    pub fn create(parent: &Path) -> io::Result<Self> {
        let folder = parent.join(random::id().to_string());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
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
