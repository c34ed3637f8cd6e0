//! Files that are whole or not there.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// The JSON in a file; `None` when there is no file.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Failure> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| Failure::Other(format!("{}: {error}", path.display()))),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(Failure::file(path)(error)),
    }
}

/// Writes JSON under another name and moves it to its place, so that nobody ever reads half of it.
pub fn write(path: &Path, content: &impl Serialize, mode: u32) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let write = || {
        let folder_mode = if mode == 0o600 { 0o700 } else { 0o777 };
        fs::DirBuilder::new().recursive(true).mode(folder_mode).create(folder)?;
        // Only its owner may read it, from the first byte on.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer_pretty(&mut file, content)?;
        file.write_all(b"\n")?;
        file.as_file().set_permissions(Permissions::from_mode(mode))?;
        file.as_file().sync_all()?;
        file.persist(path).map(drop).map_err(|error| error.error)
    };
    write().map_err(Failure::file(path))
}
