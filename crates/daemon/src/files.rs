//! Files that may be missing, and the free space for files.

use std::io;
use std::path::Path;

/// Returns the free space of the file system that contains a path, in bytes.
///
/// # Errors
/// Returns an error if the file system cannot be read.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Returns `None` instead of an error if the result of an operation is that the file or folder does not exist.
///
/// # Errors
/// Returns every other error.
pub fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
