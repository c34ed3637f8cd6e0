//! Deletes the temporary objects of killed processes.

use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use futures_util::TryStreamExt as _;
use kernel::Time;
use object_store::{ObjectStore, ObjectStoreExt as _, path};

use super::INCOMING;

/// Deletes the temporary objects that were last written before `before`.
pub(super) async fn delete_old_objects(objects: &dyn ObjectStore, before: Time) -> object_store::Result<usize> {
    let listing = objects.list(Some(&path::Path::from(INCOMING)));
    let old = listing.try_filter(|object| std::future::ready(Time::new(object.last_modified) < before));
    let old: Vec<_> = old.map_ok(|object| object.location).try_collect().await?;
    for object in &old {
        match objects.delete(object).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(old.len())
}

/// Deletes temporary files in a folder, where the object store does not list unfinished files.
pub(super) async fn delete_old_files(folder: PathBuf, before: Time) -> io::Result<usize> {
    let before = SystemTime::UNIX_EPOCH + Duration::from_millis(before.unix_millis().try_into().unwrap_or_default());
    tokio::task::spawn_blocking(move || delete_files(&folder.join(INCOMING), before)).await?
}

fn delete_files(folder: &Path, before: SystemTime) -> io::Result<usize> {
    let entries = match folder.read_dir() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut deleted = 0;
    for entry in entries {
        match delete_if_old(&entry?, before) {
            Ok(is_old) => deleted += usize::from(is_old),
            // The file no longer exists: its writer has renamed it, or another process has deleted it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(deleted)
}

fn delete_if_old(entry: &DirEntry, before: SystemTime) -> io::Result<bool> {
    let metadata = entry.metadata()?;
    let is_old = metadata.is_file() && metadata.modified()? < before;
    if is_old {
        std::fs::remove_file(entry.path())?;
    }
    Ok(is_old)
}
