//! The node's directory.
//!
//! | path | |
//! |---|---|
//! | `blobs/ab/abcd…` | contents of assets, by their SHA-256: an asset that a new version shares with the old is stored once |
//! | `sites/abcd….json` | the index of a bundle, by the bundle's SHA-256; written when all its blobs are on disk |
//! | `desired.json` | what was to be served last |
//! | `tmp/` | what is being written; emptied at the start |
//! | `lock` | held while a node uses the directory |
//!
//! No name in it comes out of a bundle. A file appears under its name complete and on disk, or not at all. Nothing is
//! deleted while a node runs, so a request that began on an old version finishes on it; eviction is yet to come, also of
//! what a bundle left behind that turned out bad halfway.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::desired::Placements;
use crate::digest::Digest;
use crate::index::Index;

/// The directory, held by this process. Everything blocks.
pub struct Cache {
    dir: PathBuf,
    temporaries: AtomicU64,
    _lock: File,
}

/// A file under a name that nobody knows, gone when dropped.
pub struct Temporary {
    path: PathBuf,
    /// For reading and writing.
    pub file: File,
}

impl Cache {
    /// Takes the directory, and creates what it lacks.
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        Self::prepare(dir).with_context(|| format!("the directory {} cannot be used", dir.display()))
    }

    fn prepare(dir: &Path) -> anyhow::Result<Self> {
        create(dir)?;
        let lock = File::create(dir.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("another node uses it"),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let tmp = dir.join("tmp");
        if tmp.exists() {
            fs::remove_dir_all(&tmp)?;
        }
        for folder in ["tmp", "blobs", "sites"] {
            create(&dir.join(folder))?;
        }
        Ok(Self { dir: dir.to_owned(), temporaries: AtomicU64::new(0), _lock: lock })
    }

    /// A new temporary file.
    pub fn temporary(&self) -> io::Result<Temporary> {
        let number = self.temporaries.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join("tmp").join(number.to_string());
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        Ok(Temporary { path, file })
    }

    /// Where the content of that digest is.
    pub fn blob(&self, content: Digest) -> PathBuf {
        let name = content.hex();
        self.dir.join("blobs").join(name.get(..2).unwrap_or_default()).join(name)
    }

    /// Files a content under its digest.
    pub fn add_blob(&self, content: Digest, temporary: Temporary) -> io::Result<()> {
        let path = self.blob(content);
        if path.try_exists()? {
            return Ok(());
        }
        create(parent(&path))?;
        temporary.keep_as(&path)
    }

    /// The index of a bundle that is here.
    pub fn index(&self, bundle: Digest) -> io::Result<Option<Index>> {
        read(&self.index_path(bundle))
    }

    /// Writes the index of a bundle, which says that the bundle is here. All its blobs must have been filed.
    pub fn add_index(&self, bundle: Digest, index: &Index) -> io::Result<()> {
        // A renamed file is sure to have its name only once the directory is on disk.
        let blobs = index.assets.values().map(|asset| self.blob(asset.content));
        let folders: BTreeSet<PathBuf> = blobs.map(|path| parent(&path).to_owned()).collect();
        folders.iter().try_for_each(|folder| sync(folder))?;
        sync(&self.dir.join("blobs"))?;
        self.write(&self.index_path(bundle), index)
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
