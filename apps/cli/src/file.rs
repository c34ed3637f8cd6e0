//! JSON files with atomic writes.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::CliError;

/// Reads a JSON file that `svc` wrote. Returns `None` if the file does not exist.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, CliError> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
            CliError::Other(format!("{} is damaged ({error}): correct or delete the file", path.display()))
        }),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(CliError::file(path)(error)),
    }
}

/// Creates a folder that only its owner can read, with its parents.
pub fn create_private_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Writes JSON to a temporary file and renames it, so that readers never see a partial file.
pub fn write(path: &Path, content: &impl Serialize, mode: u32) -> Result<(), CliError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let write = || {
        let folder_mode = if mode == 0o600 { 0o700 } else { 0o777 };
        fs::DirBuilder::new().recursive(true).mode(folder_mode).create(folder)?;
        // A temporary file is readable only by its owner.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer_pretty(&mut file, content)?;
        file.write_all(b"\n")?;
        file.as_file().set_permissions(Permissions::from_mode(mode))?;
        file.as_file().sync_all()?;
        file.persist(path).map(drop).map_err(|error| error.error)
    };
    write().map_err(CliError::file(path))
}
