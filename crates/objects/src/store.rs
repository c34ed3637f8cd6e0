//! An open object store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use tokio::task::spawn_blocking;

use crate::parts::PartLimits;
use crate::s3::S3Config;

/// The configuration of an object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreConfig {
    /// A folder. Written objects are synced to disk.
    Folder(PathBuf),
    /// A bucket.
    S3(S3Config),
}

/// An object store. Cheap to clone; clones share one memory limit for uploads.
#[derive(Debug, Clone)]
pub struct Store {
    pub objects: Arc<dyn ObjectStore>,
    /// The folder, if the store is a folder. It also contains unfinished uploads, which the store does not list.
    pub folder: Option<PathBuf>,
    pub parts: PartLimits,
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be created.
    #[error("failed to open the folder {}", .0.display())]
    Folder(PathBuf, #[source] io::Error),
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] object_store::Error),
}

impl StoreConfig {
    /// Opens the store: creates a missing folder, but sends no request to a bucket. A bucket requires a default crypto
    /// provider of rustls.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be created or the configuration is invalid.
    pub fn open(&self) -> Result<Store, OpenError> {
        match self {
            Self::Folder(folder) => {
                fs::create_dir_all(folder).map_err(|error| OpenError::Folder(folder.clone(), error))?;
                let files = LocalFileSystem::new_with_prefix(folder)?.with_fsync(true);
                Ok(Store { objects: Arc::new(files), folder: Some(folder.clone()), parts: PartLimits::local() })
            }
            Self::S3(s3) => Ok(Store { objects: s3.connect()?, folder: None, parts: PartLimits::remote() }),
        }
    }
}

impl Store {
    /// Deletes the unfinished uploads that killed processes left in a folder of the store, for the objects whose last path
    /// segment `is_selected` selects. Returns their number. A bucket does not list unfinished uploads, so its lifecycle
    /// rule must remove them; for a bucket, this has no effect.
    ///
    /// # Errors
    /// Returns an error if a file cannot be deleted.
    pub async fn delete_unfinished(
        &self,
        folder: &str,
        is_selected: impl Fn(&str) -> bool + Send + 'static,
    ) -> io::Result<usize> {
        let Some(folder) = self.folder.as_ref().map(|store| store.join(folder)) else { return Ok(0) };
        spawn_blocking(move || delete_unfinished(&folder, is_selected)).await.map_err(io::Error::other)?
    }
}

/// `object_store` names the file of an unfinished upload like its object, followed by `#` and a number.
fn delete_unfinished(folder: &Path, is_selected: impl Fn(&str) -> bool) -> io::Result<usize> {
    let entries = match folder.read_dir() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut deleted = 0;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let object = name.to_str().and_then(|name| name.split_once('#')).map(|(object, _)| object);
        if object.is_some_and(&is_selected) {
            fs::remove_file(entry.path())?;
            deleted += 1;
        }
    }
    Ok(deleted)
}
