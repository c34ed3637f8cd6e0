//! Packs a folder into a bundle. Packing is reproducible: the same files produce the same bytes on every machine.
//!
//! The bundle contains `svc.json`, `worker/` and `assets/`, without the files that `.svcignore` files exclude. The
//! [`Folder`] is a directory of a file system, or the tree of a commit.

mod ignores;
mod writer;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::pack::ignores::Ignores;
use crate::pack::writer::Writer;
use crate::{BundleError, Limit, Limits, MANIFEST_PATH, MAX_NAME_BYTES, Reason};

const IGNORE_FILE: &str = ".svcignore";
/// The largest number of lines in all ignore files of a folder. Each pattern takes memory while its directory is
/// listed.
const MAX_IGNORE_LINES: usize = 1_000;

/// The largest number of files and directories that are listed, as a multiple of the allowed entries. Ignored files are
/// listed too, but do not become entries.
const MAX_LISTED_PER_ENTRY: u64 = 8;

/// A folder to pack.
pub trait Folder {
    /// Identifies an entry, in addition to its path.
    type Id;

    /// Lists a directory, in any order. The path is relative to the folder, and empty for the folder itself, which has
    /// no id.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read.
    fn list(&mut self, directory: &Path, id: Option<&Self::Id>) -> io::Result<Vec<Entry<Self::Id>>>;

    /// Opens a file. Returns its size and its content.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    fn open(&mut self, file: &Path, id: &Self::Id) -> io::Result<(u64, impl Read)>;

    /// Reads an entry with the name `.svcignore` as text.
    ///
    /// # Errors
    /// Returns an error if the entry is not a file of UTF-8 text.
    fn read_ignore_file(&mut self, file: &Path, entry: &Entry<Self::Id>) -> io::Result<String>;
}

/// An entry of a directory.
#[derive(Debug, Clone)]
pub struct Entry<Id> {
    /// The name, without its directory.
    pub name: OsString,
    /// The kind, which decides whether it can be packed.
    pub kind: Kind,
    /// The id of the entry in the folder.
    pub id: Id,
}

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Another entry, with the reason why it cannot be packed.
    Other(Reason),
}

/// The reason why a folder cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// An entry breaks a rule of the bundle format, or the bundle exceeds a limit.
    #[error(transparent)]
    Bundle(BundleError),
    /// An ignore file cannot be read, or is malformed. Continuing could publish a file that it excludes.
    #[error("{}: {error}", path.display())]
    IgnoreFile {
        /// The path of the ignore file in the folder.
        path: PathBuf,
        /// The cause, with the line if it is malformed.
        #[source]
        error: io::Error,
    },
    /// A file or directory cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The path in the folder.
        path: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// The bundle cannot be written.
    #[error("the bundle cannot be written: {0}")]
    Write(#[source] io::Error),
}

/// A directory to list.
struct Directory<Id> {
    path: PathBuf,
    id: Option<Id>,
    /// The ignore files of the directory's parents.
    ignores: Option<Rc<Ignores>>,
}

/// Packs a folder. The bundle is not validated, except for the limits and the kinds of its entries: [`crate::read`]
/// validates it.
///
/// # Errors
/// Returns a [`PackError`]. The output is then incomplete.
pub fn pack<F: Folder>(folder: &mut F, limits: &Limits, output: impl Write) -> Result<(), PackError> {
    let files = list_files(folder, limits)?;
    let mut writer = Writer::new(output, limits);
    for (path, id) in files {
        let (size, content) = folder.open(&path, &id).map_err(|error| PackError::Read { path: path.clone(), error })?;
        writer.append(&path, size, content)?;
    }
    writer.finish()
}

/// Lists the files to pack: the manifest first, then the rest sorted by path.
fn list_files<F: Folder>(folder: &mut F, limits: &Limits) -> Result<Vec<(PathBuf, F::Id)>, PackError> {
    let max_listed = limits.entries.saturating_mul(MAX_LISTED_PER_ENTRY);
    let mut directories = vec![Directory { path: PathBuf::new(), id: None, ignores: None }];
    let (mut files, mut names_bytes, mut listed, mut ignore_lines) = (Vec::new(), 0, 0, 0);
    while let Some(Directory { path: directory, id, mut ignores }) = directories.pop() {
        let entries = folder.list(&directory, id.as_ref());
        let entries = entries.map_err(|error| PackError::Read { path: directory.clone(), error })?;
        if let Some(entry) = entries.iter().find(|entry| entry.name == IGNORE_FILE) {
            let path = directory.join(IGNORE_FILE);
            let added = folder.read_ignore_file(&path, entry).and_then(|text| {
                ignore_lines += text.lines().count();
                if ignore_lines > MAX_IGNORE_LINES {
                    let message = format!("the ignore files have more than {MAX_IGNORE_LINES} lines in all");
                    return Err(io::Error::other(message));
                }
                Ignores::parse(&text, directory.clone(), ignores.clone()).map_err(io::Error::other)
            });
            ignores = Some(Rc::new(added.map_err(|error| PackError::IgnoreFile { path, error })?));
        }
        for Entry { name, kind, id } in entries {
            let is_root = directory.as_os_str().is_empty();
            let is_packed = !is_root || name == MANIFEST_PATH || name == "worker" || name == "assets";
            if name == IGNORE_FILE || !is_packed {
                continue;
            }
            listed += 1;
            if listed > max_listed {
                return Err(too_large(Limit::Entries, limits.entries));
            }
            let path = child(&directory, &name);
            if ignores.as_ref().is_some_and(|ignores| ignores.excludes(&path, kind == Kind::Directory)) {
                continue;
            }
            if path.as_os_str().len() > MAX_NAME_BYTES {
                return Err(PackError::Bundle(Reason::NameTooLong.at(path.as_os_str().as_encoded_bytes())));
            }
            match kind {
                Kind::File => {
                    names_bytes += path.as_os_str().len() as u64;
                    files.push((path, id));
                }
                Kind::Directory => directories.push(Directory { path, id: Some(id), ignores: ignores.clone() }),
                Kind::Other(reason) => {
                    return Err(PackError::Bundle(reason.at(path.as_os_str().as_encoded_bytes())));
                }
            }
            if files.len() as u64 > limits.entries {
                return Err(too_large(Limit::Entries, limits.entries));
            }
            if names_bytes > limits.names {
                return Err(too_large(Limit::Names, limits.names));
            }
        }
    }
    files.sort_by(|(one, _), (other, _)| {
        let key = |path: &Path| (path.as_os_str() != MANIFEST_PATH, path.as_os_str().as_encoded_bytes().to_vec());
        key(one).cmp(&key(other))
    });
    Ok(files)
}

/// Returns the path of an entry. Unlike `Path::join`, an absolute name does not replace the directory.
fn child(directory: &Path, name: &OsString) -> PathBuf {
    let mut path = directory.as_os_str().to_owned();
    if !path.is_empty() {
        path.push("/");
    }
    path.push(name);
    path.into()
}

const fn too_large(limit: Limit, max: u64) -> PackError {
    PackError::Bundle(BundleError::TooLarge { limit, max })
}
