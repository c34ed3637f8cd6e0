//! An open object store.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;

use crate::s3::S3Config;
use crate::writer::PartLimits;

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
                std::fs::create_dir_all(folder).map_err(|error| OpenError::Folder(folder.clone(), error))?;
                let files = LocalFileSystem::new_with_prefix(folder)?.with_fsync(true);
                Ok(Store { objects: Arc::new(files), folder: Some(folder.clone()), parts: PartLimits::local() })
            }
            Self::S3(s3) => Ok(Store { objects: s3.connect()?, folder: None, parts: PartLimits::remote() }),
        }
    }
}
