//! Packs a folder into a bundle. Packing is reproducible: the same files produce the same bytes on every machine.
//!
//! The bundle contains `svc.json`, `worker/` and `assets/`, without the files that `.svcignore` files exclude. The
//! crate `bundle`, which the platform uses too, validates the bundle before the upload.

use std::fs::{self, File, FileType};
use std::io::{self, BufWriter, Read, Seek as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use bundle::{BundleError, Contents, Limits, MANIFEST_PATH, Reason};
use flate2::{Compression, GzBuilder};
use ignore::WalkBuilder;

use crate::error::CliError;

const IGNORE_FILE: &str = ".svcignore";
/// The value of the gzip header's OS field for an unknown system (RFC 1952).
const UNKNOWN_OS: u8 = 255;
const NO_LIMITS: Limits = Limits { compressed: u64::MAX >> 8, unpacked: u64::MAX >> 8, entries: u64::MAX >> 16 };

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
    let folder = &folder.canonicalize().map_err(CliError::file(folder))?;
    let files = files(folder)?;
    let mut file = tempfile::tempfile()?;
    write(&mut file, folder, &files)?;
    file.rewind()?;
    let contents = bundle::read(&mut file, &NO_LIMITS, |_| Ok(())).map_err(bundle_error)?;
    let bytes = file.metadata()?.len();
    Ok(Packed { file, bytes, contents })
}

/// Lists the files to pack: the manifest first, then the rest sorted by path.
fn files(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let mut walk = WalkBuilder::new(folder);
    walk.standard_filters(false).add_custom_ignore_filename(IGNORE_FILE).filter_entry(|entry| {
        let top = entry.file_name();
        entry.depth() != 1 || top == MANIFEST_PATH || top == "worker" || top == "assets"
    });
    let mut files = Vec::new();
    for entry in walk.build() {
        let entry = entry.map_err(|error| CliError::Other(error.to_string()))?;
        // An ignore file has a malformed line. Continuing could publish a file that the line excludes.
        if let Some(error) = entry.error() {
            return Err(CliError::Bundle(error.to_string()));
        }
        let (Some(kind), Ok(path)) = (entry.file_type(), entry.path().strip_prefix(folder)) else { continue };
        if kind.is_dir() {
            check_ignore_file(&entry.path().join(IGNORE_FILE))?;
            continue;
        }
        if entry.file_name() == IGNORE_FILE {
            continue;
        }
        if let Some(reason) = rejection(kind) {
            return Err(bundle_error(BundleError::Invalid { reason, entry: Some(path.display().to_string()) }));
        }
        files.push(path.to_owned());
    }
    files.sort_by_key(|path| (path.as_os_str() != MANIFEST_PATH, path.as_os_str().as_bytes().to_owned()));
    Ok(files)
}

/// Fails if an ignore file exists but cannot be read. The walk would silently skip such a file.
fn check_ignore_file(path: &Path) -> Result<(), CliError> {
    match fs::read_to_string(path) {
        Err(error) if fs::symlink_metadata(path).is_ok() => {
            Err(CliError::Bundle(format!("{}: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

/// Returns the reason to reject an entry that is neither a file nor a folder.
fn rejection(kind: FileType) -> Option<Reason> {
    if kind.is_file() {
        None
    } else if kind.is_symlink() {
        Some(Reason::SymbolicLink)
    } else if kind.is_fifo() {
        Some(Reason::Fifo)
    } else if kind.is_char_device() {
        Some(Reason::CharacterDevice)
    } else if kind.is_block_device() {
        Some(Reason::BlockDevice)
    } else {
        Some(Reason::UnknownType)
    }
}

/// Writes a gzipped tar archive without timestamps, owners and platform fields.
fn write(output: &mut File, folder: &Path, files: &[PathBuf]) -> Result<(), CliError> {
    let gzip = GzBuilder::new().mtime(0).operating_system(UNKNOWN_OS);
    let mut archive = tar::Builder::new(gzip.write(BufWriter::new(output), Compression::new(6)));
    for path in files {
        let absolute = folder.join(path);
        let mut append = || {
            let file = File::open(&absolute)?;
            let size = file.metadata()?.len();
            let mut header = tar::Header::new_gnu();
            header.set_size(size);
            header.set_mode(0o644);
            archive.append_data(&mut header, path, ExactReader { file, remaining: size })
        };
        append().map_err(CliError::file(&absolute))?;
    }
    archive.into_inner()?.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok(())
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

/// Reads exactly the number of bytes that the tar header states, even if the file changes during packing.
struct ExactReader {
    file: File,
    remaining: u64,
}

impl Read for ExactReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = (&mut self.file).take(self.remaining).read(buffer)?;
        if read == 0 && self.remaining > 0 && !buffer.is_empty() {
            return Err(io::Error::other("the file shrank while it was being read"));
        }
        self.remaining -= read as u64;
        Ok(read)
    }
}

/// Returns the path of the manifest.
pub fn manifest_path(folder: &Path) -> PathBuf {
    folder.join(MANIFEST_PATH)
}

pub fn has_manifest(folder: &Path) -> bool {
    fs::symlink_metadata(manifest_path(folder)).is_ok()
}
