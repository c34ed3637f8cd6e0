//! The node's directory.
//!
//! | path | |
//! |---|---|
//! | `blobs/ab/abcd…` | contents of assets and modules, by their SHA-256: one that a new version shares with the old is stored once |
//! | `blobs/ab/abcd….br`, `.gz` | the same contents, compressed |
//! | `sites/abcd….json` | the index of a bundle, by the bundle's SHA-256; written when all its blobs are on disk, gone before any of them is; as old as the last time that the bundle was served |
//! | `desired.json`, `platform.json` | what was to be served last, and where visitors are sent to sign in |
//! | `access.key` | what the passes of visitors to protected sites are signed with |
//! | `tmp/` | what is being written; emptied at the start |
//! | `run/` | what the running workers were started from; emptied at the start |
//! | `lock` | held while a node uses the directory |
//!
//! No name in it comes out of a bundle. A file appears under its name complete and on disk, or not at all. What is
//! served or wanted stays; beyond a bound the rest goes, longest unused first. So the order of deaths does not matter:
//! whatever is left without an index goes with the next sweep.

mod repair;
mod sweep;

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use actix_web::http::header::HeaderValue;
use anyhow::{Context as _, bail};
use protocol::Platform;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::coding::Coding;
use crate::config::Config;
use crate::desired::Placements;
use crate::digest::Digest;
use crate::index::Index;

/// The directory, held by this process. Everything blocks.
pub struct Cache {
    dir: PathBuf,
    temporaries: AtomicU64,
    /// How many bytes the blobs may have.
    bound: u64,
    /// How many they have, about: every sweep counts anew.
    bytes: AtomicU64,
    sweep_due: AtomicBool,
    /// The bundles that no sweep takes.
    kept: Mutex<HashSet<Digest>>,
    /// Shared by those who add, held alone by who takes away.
    turn: RwLock<()>,
    _lock: File,
}

/// A stored content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blob {
    /// The digest of the content as it was deployed.
    pub content: Digest,
    /// What it is stored in.
    pub coding: Coding,
}

/// A file under a name that nobody knows, gone when dropped.
pub struct Temporary {
    path: PathBuf,
    /// For reading and writing.
    pub file: File,
}

impl Cache {
    /// Takes the directory, and creates what it lacks.
    pub fn open(config: &Config) -> anyhow::Result<Self> {
        let dir = &config.dir;
        Self::prepare(dir, config.cache_bytes)
            .with_context(|| format!("the directory {} cannot be used", dir.display()))
    }

    fn prepare(dir: &Path, bound: u64) -> anyhow::Result<Self> {
        create(dir)?;
        let lock = File::create(dir.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("another node uses it"),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        for emptied in ["tmp", "run"].map(|name| dir.join(name)) {
            if emptied.exists() {
                fs::remove_dir_all(&emptied)?;
            }
        }
        for folder in ["tmp", "run", "blobs", "sites"] {
            create(&dir.join(folder))?;
        }
        Ok(Self {
            dir: dir.to_owned(),
            temporaries: AtomicU64::new(0),
            bound,
            bytes: AtomicU64::new(0),
            // For what a death left behind.
            sweep_due: AtomicBool::new(true),
            kept: Mutex::default(),
            turn: RwLock::default(),
            _lock: lock,
        })
    }

    /// Where workers are started from.
    pub fn run(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// A new temporary file.
    pub fn temporary(&self) -> io::Result<Temporary> {
        let number = self.temporaries.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join("tmp").join(number.to_string());
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Temporary { path, file })
    }

    /// Where that content is.
    pub fn blob(&self, blob: impl Into<Blob>) -> PathBuf {
        let Blob { content, coding } = blob.into();
        let name = content.hex();
        let folder = self.dir.join("blobs").join(name.get(..2).unwrap_or_default());
        folder.join(match coding {
            Coding::Identity => name,
            Coding::Gzip => name + ".gz",
            Coding::Brotli => name + ".br",
        })
    }

    /// The size of a content that is here.
    pub fn size(&self, blob: Blob) -> io::Result<Option<u64>> {
        size_of(&self.blob(blob))
    }

    /// Files a content under its name. One that has another size there is damaged, and replaced.
    pub fn add_blob(&self, blob: impl Into<Blob>, temporary: Temporary) -> io::Result<()> {
        let path = self.blob(blob);
        let size = temporary.file.metadata()?.len();
        if size_of(&path)? == Some(size) {
            return Ok(());
        }
        create(parent(&path))?;
        temporary.keep_as(&path)?;
        if self.bytes.fetch_add(size, Ordering::Relaxed) + size > self.bound {
            self.ask_for_sweep();
        }
        Ok(())
    }

    /// Keeps what is added from being taken for left behind until its index is written.
    pub fn adding(&self) -> RwLockReadGuard<'_, ()> {
        self.turn.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The index of a bundle that is here as a whole.
    pub fn index(&self, bundle: Digest) -> io::Result<Option<Index>> {
        Ok(read(&self.index_path(bundle))?.filter(Index::is_whole))
    }

    /// Writes the index of a bundle, which says that the bundle is here. All its blobs must have been filed.
    pub fn add_index(&self, bundle: Digest, index: &Index) -> io::Result<()> {
        // A renamed file is sure to have its name only once the directory is on disk.
        let blobs = index.contents().map(|asset| self.blob(asset.content));
        let folders: BTreeSet<PathBuf> = blobs.map(|path| parent(&path).to_owned()).collect();
        folders.iter().try_for_each(|folder| sync(folder))?;
        sync(&self.dir.join("blobs"))?;
        self.write(&self.index_path(bundle), index)
    }

    /// Writes the index of a bundle that is here anew, unless the bundle has gone.
    pub fn update_index(&self, bundle: Digest, index: &Index) -> io::Result<()> {
        let _adding = self.adding();
        if self.index_path(bundle).try_exists()? { self.add_index(bundle, index) } else { Ok(()) }
    }

    /// Notes that a bundle, if it is still here, was served until now.
    pub fn note_use(&self, bundle: Digest) -> io::Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        match utimensat(CWD, self.index_path(bundle), &times, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            noted => Ok(noted?),
        }
    }

    /// What the control plane told of the platform last.
    pub fn platform(&self) -> io::Result<Option<Platform>> {
        read(&self.dir.join("platform.json"))
    }

    /// Keeps that for the next start.
    pub fn save_platform(&self, platform: &Platform) -> io::Result<()> {
        self.write(&self.dir.join("platform.json"), platform)
    }

    /// Where the key is that visitors' passes are signed with.
    pub fn access_key(&self) -> PathBuf {
        self.dir.join("access.key")
    }

    /// What was to be served last.
    pub fn placements(&self) -> io::Result<Option<Placements>> {
        read(&self.placements_path())
    }

    /// Keeps what is to be served for the next start.
    pub fn save_placements(&self, placements: &Placements) -> io::Result<()> {
        self.write(&self.placements_path(), placements)
    }

    fn index_path(&self, bundle: Digest) -> PathBuf {
        self.dir.join("sites").join(format!("{}.json", bundle.hex()))
    }

    fn placements_path(&self) -> PathBuf {
        self.dir.join("desired.json")
    }

    fn write(&self, path: &Path, document: &impl Serialize) -> io::Result<()> {
        let temporary = self.temporary()?;
        (&temporary.file).write_all(&serde_json::to_vec(document)?)?;
        temporary.keep_as(path)?;
        sync(parent(path))
    }
}

impl Temporary {
    fn keep_as(self, path: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, path)
    }
}

impl From<Digest> for Blob {
    fn from(content: Digest) -> Self {
        Self { content, coding: Coding::Identity }
    }
}

impl Blob {
    /// Its strong entity tag.
    pub fn etag(&self) -> HeaderValue {
        let tag = HeaderValue::try_from(format!("\"{self}\""));
        tag.unwrap_or_else(|_| HeaderValue::from_static("\"\""))
    }
}

impl fmt::Display for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.content.hex())?;
        match self.coding {
            Coding::Identity => Ok(()),
            coding => write!(f, "-{}", coding.name()),
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Of one that was kept, nothing is left under this name.
        let _ = fs::remove_file(&self.path);
    }
}

/// A document that does not parse is as good as none: the control plane has what was in it.
fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let parsed = serde_json::from_slice(&bytes);
    Ok(parsed.inspect_err(|error| tracing::error!(path = %path.display(), %error, "damaged; taken as absent")).ok())
}

/// The size of a file that is there.
fn size_of(path: &Path) -> io::Result<Option<u64>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a file that may be gone already.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What is served may be for invited eyes only, so no other user of the machine may look.
fn create(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}
