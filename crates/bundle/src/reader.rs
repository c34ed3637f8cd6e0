//! Reads an archive and applies the rules of the bundle format.

use std::io::{self, Read};

use crate::archive::{Archive, Entry};
use crate::header::EntryKind;
use crate::names::NameIndex;
use crate::source::Source;
use crate::{BundleError, Limit, MANIFEST_PATH, MAX_MANIFEST_BYTES, Manifest, Reason, path};

/// The largest number of directories without their own entry, as a multiple of the allowed entries. Archives of tools
/// that write directory entries contain no such directories. The limit keeps long names from exhausting memory.
const MAX_IMPLIED_PER_ENTRY: u64 = 4;

/// The [`Limits::names`] of new bundles. A node keeps the names of the bundles that it serves in memory.
pub const MAX_FILE_NAMES_BYTES: u64 = 2 << 20;

/// The size limits of a bundle, inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the compressed upload.
    pub compressed: u64,
    /// Bytes of content of all files, including `svc.json`. In addition, an archive may contain headers and padding of
    /// 4 KiB per allowed entry plus 1 MiB; a longer stream also exceeds this limit.
    pub unpacked: u64,
    /// Entries of the archive: files and directories, including `svc.json` and `./`. Extended headers do not count.
    /// Directories without an entry, which occur only as parents of other names, have four times this limit.
    pub entries: u64,
    /// Bytes of the names of all files, as in [`File::path`].
    pub names: u64,
}

/// A regular file of a bundle, passed to the visitor.
pub struct File<'a> {
    /// A relative UTF-8 path: `svc.json`, or a path under `worker/` or `assets/`. Its segments are separated by `/`,
    /// and none is empty, `.` or `..`. At most [`MAX_NAME_BYTES`](crate::MAX_NAME_BYTES) long.
    pub path: &'a str,
    /// Bytes of [`File::content`].
    pub size: u64,
    /// The content. The reader skips the part that the visitor leaves unread. After a read error, [`read`] returns the
    /// cause, even if the visitor ignores the error.
    pub content: &'a mut dyn Read,
}

/// A summary of a valid bundle.
#[derive(Debug, Clone, PartialEq)]
pub struct Contents {
    /// The parsed `svc.json`.
    pub manifest: Manifest,
    /// Whether the bundle contains worker code, including the manifest's [`main_path`](Manifest::main_path).
    pub has_worker: bool,
    /// Files under `assets/`.
    pub asset_count: u32,
    /// Bytes of content of all files, as [`Limits::unpacked`] counts them.
    pub unpacked_bytes: u64,
    /// Entries of the archive, as [`Limits::entries`] counts them.
    pub entry_count: u64,
}

/// Reads a whole bundle, from the gzip header to the end of `input`, and calls `visit` for every regular file in
/// archive order. Buffers `input`, and stops reading at the first error.
///
/// # Errors
///
/// Returns a [`BundleError`].
pub fn read<R: Read>(
    input: R,
    limits: &Limits,
    mut visit: impl FnMut(File<'_>) -> io::Result<()>,
) -> Result<Contents, BundleError> {
    let mut archive = Archive::new(Source::new(input, limits));
    let mut validator = Validator::new(limits);
    while let Some(entry) = archive.next()? {
        read_entry(&mut archive, &entry, &mut validator, &mut visit).map_err(|error| error.at(&entry.name))?;
    }
    validator.finish()
}

fn read_entry<R: Read>(
    archive: &mut Archive<R>,
    entry: &Entry,
    validator: &mut Validator<'_>,
    visit: &mut impl FnMut(File<'_>) -> io::Result<()>,
) -> Result<(), BundleError> {
    let Some(path) = validator.check_entry(entry)? else {
        return Ok(());
    };
    let mut content = archive.content(entry);
    let visit_result = if path == MANIFEST_PATH {
        let text = content.read_all()?;
        validator.manifest = Some(Manifest::parse(&text)?);
        visit(File { path, size: entry.size, content: &mut text.as_slice() })
    } else {
        visit(File { path, size: entry.size, content: &mut content })
    };
    content.finish(visit_result)
}

/// The validation state of a bundle.
struct Validator<'a> {
    limits: &'a Limits,
    names: NameIndex,
    file_names_bytes: u64,
    manifest: Option<Manifest>,
    has_worker: bool,
    asset_count: u32,
    unpacked_bytes: u64,
    entry_count: u64,
}

impl<'a> Validator<'a> {
    fn new(limits: &'a Limits) -> Self {
        Self {
            limits,
            names: NameIndex::default(),
            file_names_bytes: 0,
            manifest: None,
            has_worker: false,
            asset_count: 0,
            unpacked_bytes: 0,
            entry_count: 0,
        }
    }

    /// Validates an entry. Returns the path of a file, and `None` for a directory.
    fn check_entry<'e>(&mut self, entry: &'e Entry) -> Result<Option<&'e str>, BundleError> {
        self.entry_count += 1;
        if self.entry_count > self.limits.entries {
            return Err(BundleError::TooLarge { limit: Limit::Entries, max: self.limits.entries });
        }
        let Some(path) = path::parse(&entry.name, entry.kind)? else {
            return Ok(None);
        };
        self.names.insert(path, entry.kind)?;
        if self.names.implied_directories() > self.limits.entries.saturating_mul(MAX_IMPLIED_PER_ENTRY) {
            return Err(BundleError::TooLarge { limit: Limit::Entries, max: self.limits.entries });
        }
        // The directory `worker` counts as worker code even if it is empty, so that a bundle with missing worker code
        // is rejected.
        self.has_worker |= path == "worker" || path.starts_with("worker/");
        if entry.kind == EntryKind::Directory {
            return Ok(None);
        }
        self.file_names_bytes += path.len() as u64;
        if self.file_names_bytes > self.limits.names {
            return Err(BundleError::TooLarge { limit: Limit::Names, max: self.limits.names });
        }
        self.unpacked_bytes = self.unpacked_bytes.saturating_add(entry.size);
        if self.unpacked_bytes > self.limits.unpacked {
            return Err(BundleError::TooLarge { limit: Limit::Unpacked, max: self.limits.unpacked });
        }
        if path == MANIFEST_PATH && entry.size > MAX_MANIFEST_BYTES {
            return Err(Reason::ManifestTooLarge.into());
        }
        self.asset_count = self.asset_count.saturating_add(path.starts_with("assets/").into());
        Ok(Some(path))
    }

    fn finish(self) -> Result<Contents, BundleError> {
        let manifest = self.manifest.ok_or_else(|| Reason::ManifestMissing.at(MANIFEST_PATH.as_bytes()))?;
        if !self.has_worker && self.asset_count == 0 {
            return Err(Reason::NothingToDeploy.into());
        }
        // A static site needs no main, unless its manifest names one.
        let main = manifest.main_path();
        let main_present = main.starts_with("worker/") && self.names.has_file(main);
        if (self.has_worker || manifest.main.is_some()) && !main_present {
            return Err(Reason::MainMissing.at(main.as_bytes()));
        }
        Ok(Contents {
            manifest,
            has_worker: self.has_worker,
            asset_count: self.asset_count,
            unpacked_bytes: self.unpacked_bytes,
            entry_count: self.entry_count,
        })
    }
}
