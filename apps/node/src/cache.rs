//! The node's directory.
//!
//! | path | content |
//! |---|---|
//! | `blobs/ab/abcd…` | contents of assets and modules, by SHA-256; versions that share a content share the file |
//! | `blobs/ab/abcd….br`, `.gz` | the same contents, compressed |
//! | `sites/abcd….json` | the index of a bundle, by the bundle's SHA-256: written after all blobs, removed before them; the mtime is the last use |
//! | `desired.json`, `platform.json` | the last desired state, and the platform settings |
//! | `environments/abcd…` | the secrets and grants of a project, sealed, by the SHA-256 of its id |
//! | `certificates/abcd…` | an issued certificate with its key, sealed, by the SHA-256 of its id |
//! | `access.key` | the key that signs access cookies |
//! | `ai/` | the journal of AI calls (`ai::journal`) |
//! | `storage.redb` | the index of the object storage (`storage::index`) |
//! | `restores/` | the archives that are being restored (`database::backup::spool`); emptied at startup |
//! | `tmp/` | files that are being written; emptied at startup |
//! | `run/` | the folders of the worker processes; emptied at startup |
//! | `lock` | locked while a node uses the directory |
//!
//! No file name is taken from a bundle. This module writes a file to `tmp/`, syncs it and renames it, so the file is
//! complete or absent. It does not sync sealed files. Bundles that are served or desired are pinned. Above the size limit,
//! or if the disk is too full to store a bundle, the other bundles are evicted, least recently used first. A crash at
//! any point is safe: the next eviction removes blobs without an index. A damaged bundle keeps its index, so its intact
//! blobs are served until it is fetched again.

mod certificates;
mod environments;
mod eviction;
mod repair;

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::fs::{self, DirBuilder, File, Metadata, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use actix_web::http::header::HeaderValue;
use anyhow::{Context as _, bail};
use daemon::if_exists;
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
use crate::seal::{Purpose, SealingKey};

/// The node's directory, locked by this process. All methods block.
pub struct Cache {
    dir: PathBuf,
    temporaries: AtomicU64,
    /// The limit of the space on disk that blobs and indexes take, in bytes.
    max_bytes: u64,
    /// The approximate space on disk of blobs and indexes; each eviction recounts it.
    bytes: AtomicU64,
    eviction_due: AtomicBool,
    /// The evictions in succession that found an addition in progress.
    blocked_evictions: AtomicU32,
    /// Whether a write failed because the disk is full.
    is_disk_full: AtomicBool,
    /// The bundles that are never evicted.
    pinned: Mutex<HashSet<Digest>>,
    /// Additions hold a shared lock, removals an exclusive one.
    removal_lock: RwLock<()>,
    /// Seals the environments.
    key: SealingKey,
    /// Seals the certificates.
    certificate_key: SealingKey,
    _lock: File,
}

/// A stored content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blob {
    /// The digest of the uncompressed content.
    pub content: Digest,
    pub coding: Coding,
}

/// A temporary file, removed when dropped.
pub struct TemporaryFile {
    path: PathBuf,
    /// Open for reading and writing.
    pub file: File,
}

impl Cache {
    /// Locks the directory and creates missing folders.
    pub fn open(config: &Config) -> anyhow::Result<Self> {
        let dir = &config.dir;
        let derive = |purpose| SealingKey::derive(config.authorization.as_bytes(), purpose);
        let (key, certificate_key) = (derive(Purpose::SavedEnvironments)?, derive(Purpose::SavedCertificates)?);
        Self::prepare(dir, config.cache_bytes, key, certificate_key)
            .with_context(|| format!("the directory {} cannot be used", dir.display()))
    }

    /// Opens a cache in this folder.
    #[cfg(test)]
    pub fn in_dir(dir: &Path) -> std::sync::Arc<Self> {
        let key = || SealingKey::random().unwrap();
        Self::prepare(dir, 1 << 30, key(), key()).unwrap().into()
    }

    fn prepare(dir: &Path, max_bytes: u64, key: SealingKey, certificate_key: SealingKey) -> anyhow::Result<Self> {
        create_private_dir(dir)?;
        let lock = File::create(dir.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("another node uses it"),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        for emptied in ["tmp", "run"] {
            if_exists(fs::remove_dir_all(dir.join(emptied)))?;
        }
        for folder in ["tmp", "run", "blobs", "sites", "environments", "certificates"] {
            create_private_dir(&dir.join(folder))?;
        }
        Ok(Self {
            dir: dir.to_owned(),
            temporaries: AtomicU64::new(0),
            max_bytes,
            bytes: AtomicU64::new(0),
            // A crash may have left blobs without an index.
            eviction_due: AtomicBool::new(true),
            blocked_evictions: AtomicU32::new(0),
            is_disk_full: AtomicBool::new(false),
            pinned: Mutex::default(),
            removal_lock: RwLock::default(),
            key,
            certificate_key,
            _lock: lock,
        })
    }

    /// Returns the folder that holds the folders of worker processes.
    pub fn run_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// Creates a temporary file.
    pub fn temporary(&self) -> io::Result<TemporaryFile> {
        let number = self.temporaries.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join("tmp").join(number.to_string());
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(TemporaryFile { path, file })
    }

    /// Returns the path of a blob.
    pub fn blob_path(&self, blob: impl Into<Blob>) -> PathBuf {
        let Blob { content, coding } = blob.into();
        let name = content.hex();
        let folder = self.dir.join("blobs").join(name.get(..2).unwrap_or_default());
        folder.join(match coding {
            Coding::Identity => name,
            Coding::Gzip => name + ".gz",
            Coding::Brotli => name + ".br",
        })
    }

    /// Returns the size of a blob, if it is stored.
    pub fn size(&self, blob: Blob) -> io::Result<Option<u64>> {
        size_of(&self.blob_path(blob))
    }

    /// Stores a blob. Replaces an existing file of another size, because it is damaged.
    pub fn add_blob(&self, blob: impl Into<Blob>, temporary: TemporaryFile) -> io::Result<()> {
        let path = self.blob_path(blob);
        let size = temporary.file.metadata()?.len();
        if size_of(&path)? == Some(size) {
            return Ok(());
        }
        create_private_dir(parent(&path))?;
        self.count(temporary.persist(&path)?);
        Ok(())
    }

    /// Blocks evictions while the caller adds blobs and their index; without an index, an eviction would remove the
    /// blobs.
    pub fn block_eviction(&self) -> RwLockReadGuard<'_, ()> {
        self.removal_lock.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the index of a bundle, if the bundle is stored completely.
    pub fn index(&self, bundle: Digest) -> io::Result<Option<Index>> {
        Ok(read(&self.index_path(bundle))?.filter(Index::is_complete))
    }

    /// Writes the index of a bundle, which marks the bundle as complete. All its blobs must be stored.
    pub fn add_index(&self, bundle: Digest, index: &Index) -> io::Result<()> {
        // A rename is durable only after the directory is synced.
        let blobs = index.contents().map(|asset| self.blob_path(asset.content));
        let folders: BTreeSet<PathBuf> = blobs.map(|path| parent(&path).to_owned()).collect();
        folders.iter().try_for_each(|folder| sync(folder))?;
        sync(&self.dir.join("blobs"))?;
        let path = self.index_path(bundle);
        let replaced = if_exists(fs::metadata(&path))?.map_or(0, |metadata| disk_size(&metadata));
        self.write(&path, index)?;
        self.count(disk_size(&fs::metadata(&path)?).saturating_sub(replaced));
        Ok(())
    }

    /// Replaces the index of a bundle, unless the bundle was removed.
    pub fn update_index(&self, bundle: Digest, index: &Index) -> io::Result<()> {
        let _guard = self.block_eviction();
        if self.index_path(bundle).try_exists()? { self.add_index(bundle, index) } else { Ok(()) }
    }

    /// Records that a bundle was served until now, if it is still stored.
    pub fn record_use(&self, bundle: Digest) -> io::Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        match utimensat(CWD, self.index_path(bundle), &times, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            recorded => Ok(recorded?),
        }
    }

    /// Returns the last known platform settings.
    pub fn platform(&self) -> io::Result<Option<Platform>> {
        read(&self.dir.join("platform.json"))
    }

    /// Saves the platform settings for the next start.
    pub fn save_platform(&self, platform: &Platform) -> io::Result<()> {
        self.write(&self.dir.join("platform.json"), platform)
    }

    /// Returns the path of the key that signs access cookies.
    pub fn access_key(&self) -> PathBuf {
        self.dir.join("access.key")
    }

    /// Returns the placements at the last save.
    pub fn placements(&self) -> io::Result<Option<Placements>> {
        read(&self.placements_path())
    }

    /// Saves the placements for the next start.
    pub fn save_placements(&self, placements: &Placements) -> io::Result<()> {
        self.write(&self.placements_path(), placements)
    }

    /// Counts space that a new file takes.
    fn count(&self, bytes: u64) {
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > self.max_bytes {
            self.request_eviction();
        }
    }

    fn index_path(&self, bundle: Digest) -> PathBuf {
        self.dir.join("sites").join(format!("{}.json", bundle.hex()))
    }

    fn placements_path(&self) -> PathBuf {
        self.dir.join("desired.json")
    }

    /// Replaces a file without a sync. After a power failure, the file may be missing, damaged or old.
    fn replace_unsynced(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let temporary = self.temporary()?;
        (&temporary.file).write_all(content)?;
        fs::rename(&temporary.path, path)
    }

    fn write(&self, path: &Path, document: &impl Serialize) -> io::Result<()> {
        let temporary = self.temporary()?;
        (&temporary.file).write_all(&serde_json::to_vec(document)?)?;
        temporary.persist(path)?;
        sync(parent(path))
    }
}

impl TemporaryFile {
    /// Moves the file to its final path. Returns the space that it takes on disk.
    fn persist(self, path: &Path) -> io::Result<u64> {
        self.file.sync_all()?;
        fs::rename(&self.path, path)?;
        Ok(disk_size(&self.file.metadata()?))
    }
}

impl From<Digest> for Blob {
    fn from(content: Digest) -> Self {
        Self { content, coding: Coding::Identity }
    }
}

impl Blob {
    /// Returns the strong entity tag.
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

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // Fails if the file was renamed to its final path.
        let _ = fs::remove_file(&self.path);
    }
}

/// Reads a document. Returns `None` if the file is missing or does not parse, because the control plane has the data
/// too.
fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let Some(bytes) = if_exists(fs::read(path))? else { return Ok(None) };
    let parsed = serde_json::from_slice(&bytes);
    Ok(parsed
        .inspect_err(|error| tracing::error!(path = %path.display(), %error, "failed to parse a file; ignoring it"))
        .ok())
}

/// Returns the size of a file, if it exists.
fn size_of(path: &Path) -> io::Result<Option<u64>> {
    Ok(if_exists(fs::metadata(path))?.map(|metadata| metadata.len()))
}

/// Returns the space that a file takes on disk. Each file counts at least a block, because an empty file takes an
/// inode, and at least its length, because some file systems, such as ZFS, allocate the blocks later.
fn disk_size(metadata: &Metadata) -> u64 {
    const UNIT: u64 = 512;
    (metadata.blocks() * UNIT).max(metadata.len()).max(4096)
}

/// Removes a file if it exists.
fn remove(path: &Path) -> io::Result<()> {
    if_exists(fs::remove_file(path)).map(drop)
}

/// Creates a folder that only the node's user may read: sites may be protected.
pub fn create_private_dir(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}
