//! A folder as a bundle: the same files give the same bytes, on every machine and at any time.
//!
//! Only `svc.json`, `worker/` and `assets/` are looked at, less what `.svcignore` files name. Whether what remains is a
//! bundle is decided by the platform's own reader of bundles (crate `bundle`), before anything is sent.

use std::fs::{self, File, FileType};
use std::io::{self, BufWriter, Read, Seek as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use bundle::{Contents, Fault, Limits, MANIFEST_PATH, Reason};
use flate2::{Compression, GzBuilder};
use ignore::WalkBuilder;

use crate::failure::Failure;

const IGNORE_FILE: &str = ".svcignore";
/// What a gzip header says of the operating system: that it is not known (RFC 1952).
const NO_SYSTEM: u8 = 255;
const NO_LIMITS: Limits = Limits { compressed: u64::MAX >> 8, unpacked: u64::MAX >> 8, entries: u64::MAX >> 16 };

pub struct Packed {
    /// A file without a name.
    pub file: File,
    pub bytes: u64,
    pub contents: Contents,
}

/// Packs a folder.
pub fn pack(folder: &Path) -> Result<Packed, Failure> {
    if !folder.is_dir() {
        return Err(Failure::Usage(format!("{} is not a folder", folder.display())));
    }
    // The root may be a link, and may come to lead elsewhere meanwhile.
    let folder = &folder.canonicalize().map_err(Failure::file(folder))?;
    let files = files(folder)?;
    let mut file = tempfile::tempfile()?;
    write(&mut file, folder, &files)?;
    file.rewind()?;
    let contents = bundle::read(&mut file, &NO_LIMITS, |_| Ok(())).map_err(refused)?;
    let bytes = file.metadata()?.len();
    Ok(Packed { file, bytes, contents })
}

/// The manifest, and then every file by its name.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut walk = WalkBuilder::new(folder);
    walk.standard_filters(false).add_custom_ignore_filename(IGNORE_FILE).filter_entry(|entry| {
        let top = entry.file_name();
        entry.depth() != 1 || top == MANIFEST_PATH || top == "worker" || top == "assets"
    });
    let mut files = Vec::new();
    for entry in walk.build() {
        let entry = entry.map_err(|error| Failure::Other(error.to_string()))?;
        // Of lines that are not understood. What they were to keep back must not be published.
        if let Some(error) = entry.error() {
            return Err(Failure::Bundle(error.to_string()));
        }
        let (Some(kind), Ok(path)) = (entry.file_type(), entry.path().strip_prefix(folder)) else { continue };
        if kind.is_dir() {
            see_ignore_file(&entry.path().join(IGNORE_FILE))?;
            continue;
        }
        if entry.file_name() == IGNORE_FILE {
            continue;
        }
        if let Some(reason) = unfit(kind) {
            return Err(refused(Fault::Invalid { reason, entry: Some(path.display().to_string()) }));
        }
        files.push(path.to_owned());
    }
    files.sort_by_key(|path| (path.as_os_str() != MANIFEST_PATH, path.as_os_str().as_bytes().to_owned()));
    Ok(files)
}

/// Whether an ignore file, if there is one, can be read to its end: the walk takes one that cannot for none.
fn see_ignore_file(path: &Path) -> Result<(), Failure> {
    match fs::read_to_string(path) {
        Err(error) if fs::symlink_metadata(path).is_ok() => {
            Err(Failure::Bundle(format!("{}: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

/// Why what is neither a file nor a folder has no place in a bundle.
fn unfit(kind: FileType) -> Option<Reason> {
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

/// A gzipped tar that says nothing of times, owners and machines.
fn write(output: &mut File, folder: &Path, files: &[PathBuf]) -> Result<(), Failure> {
    let gzip = GzBuilder::new().mtime(0).operating_system(NO_SYSTEM);
    let mut archive = tar::Builder::new(gzip.write(BufWriter::new(output), Compression::new(6)));
    for path in files {
        let whole = folder.join(path);
        let mut append = || {
            let file = File::open(&whole)?;
            let size = file.metadata()?.len();
            let mut header = tar::Header::new_gnu();
            header.set_size(size);
            header.set_mode(0o644);
            archive.append_data(&mut header, path, Exactly { file, left: size })
        };
        append().map_err(Failure::file(&whole))?;
    }
    archive.into_inner()?.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok(())
}

fn refused(fault: Fault) -> Failure {
    match fault {
        Fault::Io(error) | Fault::Visit(error) => error.into(),
        Fault::Invalid { reason: Reason::ManifestMissing, .. } => {
            Failure::Bundle(format!("{} `svc init` writes one.", Reason::ManifestMissing))
        }
        fault => Failure::Bundle(fault.to_string()),
    }
}

/// As many bytes of a file as its header says: whatever somebody does to it meanwhile.
struct Exactly {
    file: File,
    left: u64,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = (&mut self.file).take(self.left).read(buffer)?;
        if read == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(io::Error::other("it became shorter while it was read"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

/// A path that the manifest may be at.
pub fn manifest(folder: &Path) -> PathBuf {
    folder.join(MANIFEST_PATH)
}

/// Whether there is a manifest.
pub fn has_manifest(folder: &Path) -> bool {
    fs::symlink_metadata(manifest(folder)).is_ok()
}
