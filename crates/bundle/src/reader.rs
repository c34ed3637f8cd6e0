//! The rules of a bundle, applied to an archive as it goes by.

use std::io::{self, Read};

use crate::archive::{Archive, Entry};
use crate::header::Kind;
use crate::names::Names;
use crate::source::Source;
use crate::{Fault, Limit, MANIFEST_MAX_BYTES, MANIFEST_PATH, Manifest, Reason, path};

/// How many directories without an entry of their own there may be, on average, to an entry. What packs directories has
/// none, and names alone cannot fill the memory.
const IMPLIED_PER_ENTRY: u64 = 4;

/// How much of a bundle is taken. A bundle of exactly a limit's size is within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the upload as it is sent.
    pub compressed: u64,
    /// Bytes of content of all files together, `svc.json` included. Beside these an archive may have 4 KiB per entry
    /// allowed and 1 MiB of headers and padding; a stream that goes on beyond that is over this limit, too.
    pub unpacked: u64,
    /// Entries of the archive: files and directories, `svc.json` and `./` included. Extended headers belong to their
    /// entry and do not count. Of directories that are no entries, and only in the names of others, there may be four
    /// times as many; more are over this limit, too.
    pub entries: u64,
}

/// A regular file of a bundle, as the visitor gets it.
pub struct File<'a> {
    /// Relative, UTF-8, of one or more segments separated by `/`, none of them empty, `.` or `..`; either `svc.json` or
    /// under `worker/` or `assets/`; at most [`NAME_MAX_BYTES`](crate::NAME_MAX_BYTES) long.
    pub path: &'a str,
    /// Bytes of [`File::content`].
    pub size: u64,
    /// The content, once. What is left unread is skipped. When it gives an error, [`read`] returns the cause, whatever
    /// the visitor makes of it.
    pub content: &'a mut dyn Read,
}

/// What a valid bundle holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Contents {
    /// The parsed `svc.json`.
    pub manifest: Manifest,
    /// Whether there is worker code; then the manifest's [`main_path`](Manifest::main_path) is among it.
    pub has_worker: bool,
    /// Files under `assets/`.
    pub asset_count: u32,
    /// Bytes of content of all files, as [`Limits::unpacked`] counts them.
    pub unpacked_bytes: u64,
    /// Entries of the archive, as [`Limits::entries`] counts them.
    pub entry_count: u64,
}

/// Reads a whole bundle, from the first byte of the gzip header to the end of `input`, and calls `visit` for every
/// regular file in the order of the archive.
///
/// `input` is buffered inside, and not read on after a fault.
///
/// # Errors
///
/// See [`Fault`]. The first one met ends the reading.
pub fn read<R: Read>(
    input: R,
    limits: &Limits,
    mut visit: impl FnMut(File<'_>) -> io::Result<()>,
) -> Result<Contents, Fault> {
    let mut archive = Archive::new(Source::new(input, limits));
    let mut census = Census::new(limits);
    while let Some(entry) = archive.next()? {
        read_entry(&mut archive, &entry, &mut census, &mut visit).map_err(|fault| fault.at(&entry.name))?;
    }
    census.conclude()
}

fn read_entry<R: Read>(
    archive: &mut Archive<R>,
    entry: &Entry,
    census: &mut Census<'_>,
    visit: &mut impl FnMut(File<'_>) -> io::Result<()>,
) -> Result<(), Fault> {
    let Some(path) = census.admit(entry)? else {
        return Ok(());
    };
    let mut content = archive.content(entry);
    let visited = if path == MANIFEST_PATH {
        let text = content.take_whole()?;
        census.manifest = Some(Manifest::parse(&text)?);
        visit(File { path, size: entry.size, content: &mut text.as_slice() })
    } else {
        visit(File { path, size: entry.size, content: &mut content })
    };
    content.finish(visited)
}

/// What has gone by so far.
struct Census<'a> {
    limits: &'a Limits,
    names: Names,
    manifest: Option<Manifest>,
    has_worker: bool,
    asset_count: u32,
    unpacked_bytes: u64,
    entry_count: u64,
}

impl<'a> Census<'a> {
    fn new(limits: &'a Limits) -> Self {
        Self {
            limits,
            names: Names::default(),
            manifest: None,
            has_worker: false,
            asset_count: 0,
            unpacked_bytes: 0,
            entry_count: 0,
        }
    }

    /// Answers the path if there is content to be visited.
    fn admit<'e>(&mut self, entry: &'e Entry) -> Result<Option<&'e str>, Fault> {
        self.entry_count += 1;
        if self.entry_count > self.limits.entries {
            return Err(Fault::TooLarge { limit: Limit::Entries, max: self.limits.entries });
        }
        let Some(path) = path::parse(&entry.name, entry.kind)? else {
            return Ok(None);
        };
        self.names.insert(path, entry.kind)?;
        if self.names.implied() > self.limits.entries.saturating_mul(IMPLIED_PER_ENTRY) {
            return Err(Fault::TooLarge { limit: Limit::Entries, max: self.limits.entries });
        }
        // An empty directory counts as worker code: whoever packed it meant there to be some.
        self.has_worker |= path == "worker" || path.starts_with("worker/");
        if entry.kind == Kind::Directory {
            return Ok(None);
        }
        self.unpacked_bytes = self.unpacked_bytes.saturating_add(entry.size);
        if self.unpacked_bytes > self.limits.unpacked {
            return Err(Fault::TooLarge { limit: Limit::Unpacked, max: self.limits.unpacked });
        }
        if path == MANIFEST_PATH && entry.size > MANIFEST_MAX_BYTES {
            return Err(Reason::ManifestTooLarge.into());
        }
        self.asset_count = self.asset_count.saturating_add(path.starts_with("assets/").into());
        Ok(Some(path))
    }

    fn conclude(self) -> Result<Contents, Fault> {
        let manifest = self.manifest.ok_or_else(|| Reason::ManifestMissing.at(MANIFEST_PATH.as_bytes()))?;
        if !self.has_worker && self.asset_count == 0 {
            return Err(Reason::NothingToDeploy.into());
        }
        // A static site has no main and need not, unless its manifest says that it has.
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
