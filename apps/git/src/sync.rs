//! Syncs the files of a push to the disk.
//!
//! git would sync the files one after the other. The node syncs them concurrently, because a file system
//! writes concurrent syncs together, so that all of them take about as long as one.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, bail};
use tokio::sync::Semaphore;

use crate::update::Update;

/// The maximum number of concurrent syncs of a push.
const MAX_THREADS: usize = 8;
/// The maximum number of threads of the node that only sync files. If they are all in use, a push syncs its files with
/// its own thread.
static THREADS: Semaphore = Semaphore::const_new(64);
/// The maximum number of times that the packs are listed for a push. A repack can remove packs after they were listed.
const MAX_LISTINGS: usize = 10;

/// The packs of a repository that the node synced, or failed to sync, since its start. Packs that no longer exist are
/// dropped.
#[derive(Debug, Default)]
pub struct Packs {
    synced: HashSet<String>,
    failed: HashSet<String>,
}

/// A sync of packs failed. Linux reports a failed write once, and a later sync of the same file succeeds although the
/// disk does not have its contents.
#[derive(Debug, thiserror::Error)]
#[error("the disk failed to store a pack of this repository; an operator must check the repository")]
pub struct FailedPacks;

/// A file that is not synced.
#[derive(Debug)]
struct Failure {
    path: PathBuf,
    error: io::Error,
    /// Whether the file was opened, so that the error is the result of the sync.
    is_opened: bool,
}

impl Packs {
    /// Syncs the packs that are not synced yet, and the new values of a push's refs. git must have locked the refs, and
    /// must not have changed them.
    ///
    /// The push's objects can be in the pack of another push, so all packs are synced, not only those of this push.
    ///
    /// # Errors
    /// Returns [`FailedPacks`] if a sync of the packs failed, now or earlier.
    pub fn sync_push(&mut self, repository: &Path, updates: &[Update]) -> anyhow::Result<()> {
        let folder = repository.join("objects/pack");
        // Deletes refs from the file `packed-refs`, if that contains them.
        let packed_refs = repository.join("packed-refs.new");
        for _ in 0..MAX_LISTINGS {
            let packs = self.unsynced(&folder)?;
            let mut files = pack_files(&folder, &packs);
            files.extend(updates.iter().filter(|update| update.new.is_some()).map(|update| lock(repository, update)));
            if updates.iter().any(|update| update.new.is_none()) {
                files.push(packed_refs.clone());
            }
            let mut failures = sync_all(&files);
            failures.retain(|failure| !(failure.is_missing() && failure.path == packed_refs));
            // git writes this file only if `pack.writeReverseIndex` is set.
            failures.retain(|it| !(it.is_missing() && it.path.extension().is_some_and(|it| it == "rev")));
            let (of_packs, others): (Vec<_>, Vec<_>) =
                failures.into_iter().partition(|failure| failure.path.starts_with(&folder));
            if of_packs.iter().any(|failure| failure.is_opened) {
                self.failed.extend(packs);
                of_packs.iter().for_each(Failure::log);
                return Err(FailedPacks.into());
            }
            if let Some(failure) = of_packs.iter().find(|failure| !failure.is_missing()) {
                bail!("cannot open {}: {}", failure.path.display(), failure.error);
            }
            if of_packs.is_empty() {
                self.synced.extend(packs);
                return first(others).context("cannot sync the refs of a push");
            }
        }
        bail!("packs were removed each time they were listed")
    }

    /// Lists the packs that are not synced yet.
    fn unsynced(&mut self, folder: &Path) -> anyhow::Result<Vec<String>> {
        let mut existing = HashSet::new();
        for entry in fs::read_dir(folder)? {
            // git creates the index last, and does not read a pack without an index.
            if let Some(pack) = entry?.file_name().to_str().and_then(|name| name.strip_suffix(".idx")) {
                existing.insert(pack.to_owned());
            }
        }
        self.synced.retain(|pack| existing.contains(pack));
        self.failed.retain(|pack| existing.contains(pack));
        if !self.failed.is_empty() {
            return Err(FailedPacks.into());
        }
        Ok(existing.into_iter().filter(|pack| !self.synced.contains(pack)).collect())
    }
}

impl Failure {
    fn is_missing(&self) -> bool {
        !self.is_opened && self.error.kind() == io::ErrorKind::NotFound
    }

    fn log(&self) {
        tracing::error!(error = %self.error, path = %self.path.display(), "failed to sync a file");
    }
}

/// Syncs files and folders concurrently.
pub fn all(paths: &[PathBuf]) -> io::Result<()> {
    first(sync_all(paths))
}

/// Syncs files like [`all`], together with the folders of refs. The deletion of the last ref in a folder removes the
/// folder, so the folders may be missing.
pub fn with_ref_folders(files: &[PathBuf], folders: &[PathBuf]) -> io::Result<()> {
    let mut failures = sync_all(&[files, folders].concat());
    failures.retain(|failure| !(failure.is_missing() && folders.contains(&failure.path)));
    first(failures)
}

/// Returns the folders that contain these refs, up to the directory of the repository. A change of a ref renames or
/// removes its file, and can create folders. The deletion of a ref can also replace the file `packed-refs`, which is in
/// the directory of the repository.
pub fn ref_folders<'a>(repository: &Path, names: impl IntoIterator<Item = &'a str>) -> Vec<PathBuf> {
    let above = names.into_iter().flat_map(|name| Path::new(name).ancestors().skip(1));
    let folders: BTreeSet<_> = above.map(|above| repository.join(above)).collect();
    folders.into_iter().collect()
}

/// Returns the files of these packs, and their folder.
fn pack_files(folder: &Path, packs: &[String]) -> Vec<PathBuf> {
    let files = |pack: &String| ["pack", "idx", "rev"].map(|extension| folder.join(format!("{pack}.{extension}")));
    let mut files: Vec<_> = packs.iter().flat_map(files).collect();
    if !files.is_empty() {
        files.push(folder.to_owned());
    }
    files
}

/// Returns the file with the new value of a locked ref.
fn lock(repository: &Path, update: &Update) -> PathBuf {
    repository.join(format!("{}.lock", update.name))
}

fn first(failures: Vec<Failure>) -> io::Result<()> {
    failures.into_iter().next().map_or(Ok(()), |Failure { path, error, .. }| {
        Err(io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    })
}

/// Syncs files and folders concurrently. Each thread opens one file at a time.
fn sync_all(paths: &[PathBuf]) -> Vec<Failure> {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let sync_next = || {
        while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(failure) = sync_one(path) {
                failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
            }
        }
    };
    thread::scope(|scope| {
        let sync_next = &sync_next;
        for _ in 1..paths.len().min(MAX_THREADS) {
            let Ok(permit) = THREADS.try_acquire() else { break };
            let thread = thread::Builder::new().spawn_scoped(scope, move || {
                let _permit = permit;
                sync_next();
            });
            if thread.is_err() {
                // The threads that exist sync all files.
                break;
            }
        }
        sync_next();
    });
    failures.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn sync_one(path: &Path) -> Result<(), Failure> {
    let failure = |is_opened| move |error| Failure { path: path.to_owned(), error, is_opened };
    File::open(path).map_err(failure(false))?.sync_all().map_err(failure(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(new: Option<&str>) -> Update {
        Update { name: "refs/heads/a".to_owned(), old: None, new: new.map(Into::into) }
    }

    /// Creates the files of packs.
    fn repository(files: &[&str]) -> tempfile::TempDir {
        let repository = tempfile::tempdir().unwrap();
        fs::create_dir_all(repository.path().join("objects/pack")).unwrap();
        fs::create_dir_all(repository.path().join("refs/heads")).unwrap();
        for name in files {
            fs::write(repository.path().join("objects/pack").join(name), "").unwrap();
        }
        repository
    }

    #[test]
    fn new_value_of_each_ref_is_required() {
        let repository = repository(&["a.pack", "a.idx"]);
        let (path, mut packs) = (repository.path(), Packs::default());
        packs.sync_push(path, &[update(None)]).unwrap();
        packs.sync_push(path, &[update(Some("1"))]).unwrap_err();
        fs::write(path.join("refs/heads/a.lock"), "1").unwrap();
        packs.sync_push(path, &[update(Some("1")), update(None)]).unwrap();
    }

    /// A push of the same objects can remove the file `.keep` of this push.
    #[test]
    fn each_pack_is_synced_once() {
        let repository = repository(&["a.keep", "a.pack", "a.idx", "a.rev", "b.pack", "b.idx", "c.pack"]);
        let folder = repository.path().join("objects/pack");
        let mut packs = Packs::default();
        let mut unsynced = packs.unsynced(&folder).unwrap();
        unsynced.sort();
        assert_eq!(unsynced, ["a", "b"]);
        let files = pack_files(&folder, &unsynced);
        for name in ["a.pack", "a.idx", "a.rev", "b.pack", "b.idx"] {
            assert!(files.contains(&folder.join(name)), "{name}");
        }
        assert!(files.contains(&folder));
        packs.sync_push(repository.path(), &[]).unwrap();
        assert!(packs.unsynced(&folder).unwrap().is_empty());
        fs::write(folder.join("c.idx"), "").unwrap();
        assert_eq!(packs.unsynced(&folder).unwrap(), ["c"]);
        fs::remove_file(folder.join("a.idx")).unwrap();
        packs.unsynced(&folder).unwrap();
        assert_eq!(packs.synced, HashSet::from(["b".to_owned()]));
    }

    #[test]
    fn missing_pack_of_an_index_is_an_error() {
        let repository = repository(&["a.idx"]);
        let error = Packs::default().sync_push(repository.path(), &[]).unwrap_err().to_string();
        assert!(error.contains("removed each time"), "{error}");
    }

    #[test]
    fn failed_pack_is_refused_until_it_is_gone() {
        let repository = repository(&["a.pack", "a.idx"]);
        let mut packs = Packs::default();
        packs.failed.insert("a".to_owned());
        for _ in 0..2 {
            assert!(packs.sync_push(repository.path(), &[]).unwrap_err().is::<FailedPacks>());
        }
        fs::remove_file(repository.path().join("objects/pack/a.idx")).unwrap();
        packs.sync_push(repository.path(), &[]).unwrap();
    }

    /// The kernel can open a device, and refuses to sync it.
    #[cfg(target_os = "linux")]
    #[test]
    fn failed_sync_is_remembered() {
        let repository = repository(&["a.idx"]);
        let pack = repository.path().join("objects/pack/a.pack");
        std::os::unix::fs::symlink("/dev/null", &pack).unwrap();
        let mut packs = Packs::default();
        assert!(packs.sync_push(repository.path(), &[]).unwrap_err().is::<FailedPacks>());
        fs::remove_file(&pack).unwrap();
        fs::write(&pack, "").unwrap();
        assert!(packs.sync_push(repository.path(), &[]).unwrap_err().is::<FailedPacks>());
    }

    #[test]
    fn folders_of_refs_reach_the_directory_of_the_repository() {
        let repository = repository(&[]);
        let folders = ref_folders(repository.path(), ["refs/heads/a", "refs/heads/gone/a"]);
        let expected = ["", "refs", "refs/heads", "refs/heads/gone"].map(|folder| repository.path().join(folder));
        assert_eq!(folders, expected);
        with_ref_folders(&[], &folders).unwrap();
        all(&folders).unwrap_err();
    }
}
