//! Packs a directory into a bundle.
//!
//! The crate `bundle`, which the platform uses too, packs the directory, and validates the bundle before the upload.

use std::fs::{self, File, FileType};
use std::io::{self, Read, Seek as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use bundle::pack::{Entry, Folder, Kind, PackError};
use bundle::{BundleError, Contents, Limits, MANIFEST_PATH, MAX_FILE_NAMES_BYTES, Reason};
use serde_json::Value;

use crate::error::CliError;

/// The control plane enforces the limits of the plan.
const LIMITS: Limits =
    Limits { compressed: u64::MAX >> 8, unpacked: u64::MAX >> 8, entries: u64::MAX >> 16, names: MAX_FILE_NAMES_BYTES };

pub struct Packed {
    /// An unnamed temporary file.
    pub file: File,
    pub bytes: u64,
    pub contents: Contents,
}

/// Packs a folder.
pub fn pack(folder: &Path) -> Result<Packed, CliError> {
    if !folder.is_dir() {
        return Err(CliError::Usage(format!("{} is not a folder", folder.display())));
    }
    // Resolve the root once: it may be a symlink whose target changes during packing.
    let root = folder.canonicalize().map_err(CliError::file(folder))?;
    let mut file = tempfile::tempfile()?;
    bundle::pack::pack(&mut Root(&root), &LIMITS, &file).map_err(|error| pack_error(&root, error))?;
    file.rewind()?;
    let contents = bundle::read(&mut file, &LIMITS, |_| Ok(())).map_err(|error| match error {
        BundleError::Invalid { reason: Reason::ManifestNotJson, .. } => not_json(&root),
        error => bundle_error(error),
    })?;
    let bytes = file.metadata()?.len();
    Ok(Packed { file, bytes, contents })
}

/// A directory of the file system.
struct Root<'a>(&'a Path);

impl Folder for Root<'_> {
    type Id = ();

    fn list(&mut self, directory: &Path, _: Option<&()>) -> io::Result<Vec<Entry<()>>> {
        let entries = fs::read_dir(self.0.join(directory))?;
        entries
            .map(|entry| {
                let entry = entry?;
                Ok(Entry { name: entry.file_name(), kind: kind(entry.file_type()?), id: () })
            })
            .collect()
    }

    fn open(&mut self, path: &Path, (): &()) -> io::Result<(u64, impl Read)> {
        let file = File::open(self.0.join(path))?;
        Ok((file.metadata()?.len(), file))
    }

    fn read_ignore_file(&mut self, path: &Path, _: &Entry<()>) -> io::Result<String> {
        fs::read_to_string(self.0.join(path))
    }
}

/// Returns the kind of an entry, with the reason to reject one that is neither a file nor a folder.
fn kind(file_type: FileType) -> Kind {
    if file_type.is_file() {
        Kind::File
    } else if file_type.is_dir() {
        Kind::Directory
    } else if file_type.is_symlink() {
        Kind::Other(Reason::SymbolicLink)
    } else if file_type.is_fifo() {
        Kind::Other(Reason::Fifo)
    } else if file_type.is_char_device() {
        Kind::Other(Reason::CharacterDevice)
    } else if file_type.is_block_device() {
        Kind::Other(Reason::BlockDevice)
    } else {
        Kind::Other(Reason::UnknownType)
    }
}

fn pack_error(root: &Path, error: PackError) -> CliError {
    match error {
        PackError::Bundle(error) => bundle_error(error),
        PackError::Read { path, error } => CliError::file(&root.join(path))(error),
        PackError::Write(error) => error.into(),
        error @ PackError::IgnoreFile { .. } => CliError::Bundle(error.to_string()),
    }
}

fn bundle_error(error: BundleError) -> CliError {
    match error {
        BundleError::Io(error) | BundleError::Visit(error) => error.into(),
        BundleError::Invalid { reason: Reason::ManifestMissing, .. } => {
            CliError::Bundle(format!("{} Run `svc init` to create one.", Reason::ManifestMissing))
        }
        error => CliError::Bundle(error.to_string()),
    }
}

/// Returns the error of a manifest that is not JSON, with its position. The bundle reader does not return it.
fn not_json(root: &Path) -> CliError {
    let text = fs::read(manifest_path(root)).ok();
    let error = text.and_then(|text| serde_json::from_slice::<Value>(&text).err());
    let position = error.map(|error| format!(", line {}, column {}", error.line(), error.column()));
    CliError::Bundle(format!("{MANIFEST_PATH}{}: {}", position.unwrap_or_default(), Reason::ManifestNotJson))
}

/// Returns the path of the manifest.
pub fn manifest_path(folder: &Path) -> PathBuf {
    folder.join(MANIFEST_PATH)
}

pub fn has_manifest(folder: &Path) -> bool {
    fs::symlink_metadata(manifest_path(folder)).is_ok()
}
