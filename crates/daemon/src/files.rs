//! Files that may be missing.

use std::io;

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
