//! What killed processes left of uploads.

use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use futures_util::TryStreamExt as _;
use kernel::Time;
use object_store::{ObjectStore, ObjectStoreExt as _, path};

use super::INCOMING;

/// Deletes the temporary objects that were last written before this.
pub(super) async fn objects(objects: &dyn ObjectStore, before: Time) -> object_store::Result<usize> {
    let left = objects.list(Some(&path::Path::from(INCOMING)));
    let old = left.try_filter(|left| std::future::ready(Time::new(left.last_modified) < before));
    let old: Vec<_> = old.map_ok(|left| left.location).try_collect().await?;
    for left in &old {
        match objects.delete(left).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(old.len())
}

/// The same for a folder, where the store lists no files that are still being written.
pub(super) async fn folder(folder: PathBuf, before: Time) -> io::Result<usize> {
    let before = SystemTime::UNIX_EPOCH + Duration::from_millis(before.unix_millis().try_into().unwrap_or_default());
    tokio::task::spawn_blocking(move || files(&folder.join(INCOMING), before)).await?
}

fn files(folder: &Path, before: SystemTime) -> io::Result<usize> {
    let entries = match folder.read_dir() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut deleted = 0;
    for entry in entries {
        match delete(&entry?, before) {
            Ok(old) => deleted += usize::from(old),
            // Whoever wrote it has finished it, or another process swept as well.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(deleted)
}

fn delete(entry: &DirEntry, before: SystemTime) -> io::Result<bool> {
    let about = entry.metadata()?;
    let old = about.is_file() && about.modified()? < before;
    if old {
        std::fs::remove_file(entry.path())?;
    }
    Ok(old)
}
