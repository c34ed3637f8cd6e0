//! The directories of the repositories. Their names are ids, so that a rename moves nothing, and a new repository with
//! an old name is empty.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use daemon::if_exists;
use rustix::fs::{FlockOperation, flock};
use semaphores::KeyedSemaphores;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::git::Git;
use crate::hook::{HOOK_PROGRAM, HookSet};
use crate::leftovers::{self, remove_all};
use crate::sync;

/// The maximum time for which the cleanup waits for running git processes that change the repository. New processes
/// wait during this time.
const CLEAN_UP_WAIT: Duration = Duration::from_secs(20);

/// The configuration of git, except the maximum size of a push. git reads no other configuration: neither the system's
/// nor a user's.
const CONFIG: &str = "\
[core]
	bigFileThreshold = 32m
	fsync = committed,loose-object,reference
	packedGitLimit = 256m
	maxTreeDepth = 2048
	logAllRefUpdates = false
	alternateRefsCommand = true
[init]
	defaultObjectFormat = sha1
	defaultRefFormat = files
[safe]
	directory = *
[transfer]
	fsckObjects = true
	hideRefs = refs/svc
[receive]
	advertisePushOptions = true
	autogc = false
	denyDeleteCurrent = refuse
	unpackLimit = 1
[uploadpack]
	allowFilter = true
	allowAnySHA1InWant = true
[uploadarchive]
	allowUnreachable = false
[pack]
	threads = 2
	windowMemory = 64m
	writeBitmapHashCache = true
[repack]
	writeBitmaps = true
[gc]
	auto = 0
	autoDetach = false
	cruftPacks = true
[maintenance]
	auto = false
[protocol]
	allow = never
";

/// The repositories of the node. Cheap to clone.
#[derive(Clone)]
pub struct Repositories(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    git: Git,
    /// The locks of each repository in use.
    locks: Mutex<HashMap<String, Locks>>,
    /// The ids of the erased repositories. An access that was allowed before the erasure must not create the repository
    /// again.
    erased: Mutex<HashSet<String>>,
    /// The permit of each repository that is created, or whose `HEAD` is checked or changed.
    heads: KeyedSemaphores<String>,
    /// The lock of the directory, held until the process ends.
    _lock: File,
}

#[derive(Clone, Default)]
struct Locks {
    /// Each use holds this lock for reading. Erasure takes it for writing.
    uses: Arc<RwLock<()>>,
    /// Each git process that changes the repository holds this lock for reading. The cleanup takes it for writing.
    changes: Arc<RwLock<()>>,
}

/// A repository in use. It is not erased until this value is dropped.
pub struct Repository {
    pub path: PathBuf,
    changes: Arc<RwLock<()>>,
    change: Option<OwnedRwLockReadGuard<()>>,
    _use: OwnedRwLockReadGuard<()>,
}

/// Why a repository is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    Read,
    Change,
}

impl Repositories {
    /// Opens the directory, which no other process may use.
    pub fn open(dir: &Path, max_push_bytes: u64) -> anyhow::Result<Self> {
        fs::create_dir_all(dir.join("repos")).context("cannot create the directory")?;
        let dir = dir.canonicalize()?;
        ensure!(dir.to_str().is_some(), "its path is not UTF-8");
        let lock = File::create(dir.join("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).context("another process uses the directory")?;
        // The directory of repositories whose creation was interrupted.
        let unfinished = dir.join("new");
        remove_all(&unfinished)?;
        fs::create_dir_all(&unfinished)?;
        fs::create_dir_all(dir.join("home"))?;
        fs::write(dir.join("gitconfig"), format!("{CONFIG}[receive]\n\tmaxInputSize = {max_push_bytes}\n"))?;
        let git = Git::new(&dir)?;
        Ok(Self(Arc::new(Inner {
            dir,
            git,
            locks: Mutex::default(),
            erased: Mutex::default(),
            heads: KeyedSemaphores::new(1),
            _lock: lock,
        })))
    }

    /// Copies the program of the hooks into the directory, so that an upgrade of the installed program does not affect
    /// the running node. No git process may be running.
    pub fn install_hooks(&self) -> anyhow::Result<()> {
        let dir = &self.0.dir;
        let installed = std::env::current_exe().context("cannot find the program svc-git")?;
        let installed = installed.with_file_name(HOOK_PROGRAM);
        let mut program = File::open(&installed).with_context(|| format!("cannot open {}", installed.display()))?;
        let mut copy = tempfile::NamedTempFile::new_in(dir.join("new"))?;
        io::copy(&mut program, &mut copy)?;
        copy.as_file().set_permissions(Permissions::from_mode(0o700))?;
        copy.as_file().sync_all()?;
        let program = dir.join(HOOK_PROGRAM);
        // The system does not execute a file that is open for writing.
        drop(copy.persist(&program)?);
        for set in HookSet::ALL {
            let hooks = dir.join(set.folder());
            remove_all(&hooks)?;
            fs::create_dir_all(&hooks)?;
            for name in set.hooks() {
                symlink(&program, hooks.join(name))?;
            }
        }
        self.git().check_hooks(HookSet::Deploy)
    }

    /// Returns the runner of git commands.
    pub fn git(&self) -> &Git {
        &self.0.git
    }

    /// Returns the repository of an authorized access. The first access creates it. Sets `HEAD` to the default branch.
    pub async fn open_or_create(&self, id: &str, default_branch: &str, reason: Use) -> anyhow::Result<Repository> {
        let repository = self.using(id, reason).await?;
        let is_erased = self.0.erased.lock().unwrap_or_else(PoisonError::into_inner).contains(id);
        ensure!(!is_erased, "the repository was erased after the access was allowed");
        let head = self.0.heads.of(id.to_owned()).acquire_owned().await?;
        let (this, path, branch) = (self.clone(), repository.path.clone(), default_branch.to_owned());
        spawn_blocking(move || {
            let _head = head;
            this.prepare(&path, &branch)
        })
        .await??;
        Ok(repository)
    }

    /// Returns a repository; `None` if it was never accessed.
    pub async fn find(&self, id: &str, reason: Use) -> anyhow::Result<Option<Repository>> {
        let repository = self.using(id, reason).await?;
        Ok(repository.path.is_dir().then_some(repository))
    }

    async fn using(&self, id: &str, reason: Use) -> anyhow::Result<Repository> {
        let path = self.path(id)?;
        let Locks { uses, changes } = self.locks(id);
        let _use = uses.read_owned().await;
        let change = match reason {
            Use::Read => None,
            Use::Change => Some(Arc::clone(&changes).read_owned().await),
        };
        Ok(Repository { path, changes, change, _use })
    }

    /// Returns the directory of a repository. Its parent directory is named by the last characters of the id, which are
    /// random.
    pub fn path(&self, id: &str) -> anyhow::Result<PathBuf> {
        let is_id = id.starts_with("rep_") && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        ensure!(is_id && id.len() > 6, "the control plane sent a malformed id of a repository");
        let shard = id.get(id.len() - 2..).unwrap_or_default();
        Ok(self.0.dir.join("repos").join(shard).join(id))
    }

    fn locks(&self, id: &str) -> Locks {
        let mut all = self.0.locks.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known, locks| known == id || Arc::strong_count(&locks.uses) > 1);
        all.entry(id.to_owned()).or_default().clone()
    }

    fn prepare(&self, path: &Path, branch: &str) -> anyhow::Result<()> {
        let head = format!("ref: refs/heads/{branch}\n");
        if !path.is_dir() {
            let new = tempfile::Builder::new().tempdir_in(self.0.dir.join("new"))?;
            let created = new.path().join("repository");
            let mut init = self.0.git.maintenance(None);
            init.args(["init", "--quiet", "--bare", "--template="]).arg(&created);
            ensure!(init.status()?.success(), "git init failed");
            fs::write(created.join("HEAD"), &head)?;
            sync::all(&contents(&created)?)?;
            let shard = path.parent().context("a repository has a parent directory")?;
            fs::create_dir_all(shard)?;
            fs::rename(&created, path)?;
            sync::all(&[shard.to_owned(), self.0.dir.join("repos")])?;
            return Ok(());
        }
        if fs::read_to_string(path.join("HEAD"))? != head {
            let mut new = tempfile::NamedTempFile::new_in(path)?;
            new.write_all(head.as_bytes())?;
            new.as_file().sync_all()?;
            new.persist(path.join("HEAD"))?;
            sync::all(&[path.to_owned()])?;
        }
        Ok(())
    }

    /// Waits until the repository is not in use, and erases it.
    pub async fn erase(&self, id: &str) -> anyhow::Result<()> {
        let path = self.path(id)?;
        let _use: OwnedRwLockWriteGuard<()> = self.locks(id).uses.write_owned().await;
        self.0.erased.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
        let trash = self.0.dir.join("new").join(id);
        spawn_blocking(move || {
            if_exists(fs::rename(&path, &trash))?;
            remove_all(&trash)
        })
        .await??;
        Ok(())
    }

    /// Returns the ids of all repositories on the disk.
    pub fn all(&self) -> Vec<String> {
        let list = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().flatten();
        let repositories = list(self.0.dir.join("repos")).flat_map(|shard| list(shard.path()));
        repositories.filter_map(|repository| repository.file_name().into_string().ok()).collect()
    }

    /// Creates a temporary file without a name.
    pub fn temporary_file(&self) -> io::Result<File> {
        tempfile::tempfile_in(self.0.dir.join("new"))
    }

    /// Returns the free space of the file system, in bytes.
    pub fn free_bytes(&self) -> io::Result<u64> {
        daemon::free_bytes(&self.0.dir)
    }

    /// Returns the directory of the journal.
    pub fn journal_dir(&self) -> PathBuf {
        self.0.dir.join("journal")
    }

    /// Returns the path of the hooks' socket.
    pub fn socket(&self) -> PathBuf {
        self.0.dir.join("hook.sock")
    }

    /// Returns the file of the SSH host key.
    pub fn host_key(&self) -> PathBuf {
        self.0.dir.join("ssh_host_ed25519_key")
    }
}

impl Repository {
    /// Removes the files that a killed git process of this use left behind. Waits until no other process changes the
    /// repository.
    pub async fn clean_up(mut self) {
        self.change = None;
        loop {
            // While this function waits for the lock, later changes wait too.
            if let Ok(alone) = timeout(CLEAN_UP_WAIT, Arc::clone(&self.changes).write_owned()).await {
                let path = self.path.clone();
                let removed = spawn_blocking(move || {
                    let _alone = alone;
                    leftovers::remove(&path)
                });
                match removed.await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::error!(error = format!("{error:#}"), "failed to remove leftovers"),
                    Err(error) => tracing::error!(%error, "the task that removes leftovers failed"),
                }
                return;
            }
            sleep(CLEAN_UP_WAIT * 3).await;
        }
    }
}

/// Returns a folder, with all files and folders in it.
fn contents(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut contents = vec![folder.to_owned()];
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            contents.extend(self::contents(&entry.path())?);
        } else {
            contents.push(entry.path());
        }
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Repositories {
        /// Opens an empty folder, which is removed when it is dropped.
        pub fn temporary() -> (tempfile::TempDir, Self) {
            let folder = tempfile::tempdir().unwrap();
            let repositories = Self::open(folder.path(), 1 << 20).unwrap();
            (folder, repositories)
        }
    }

    #[tokio::test]
    async fn erased_repository_is_not_created_again() {
        let (_folder, repositories) = Repositories::temporary();
        let (id, other) = ("rep_0000000000000001", "rep_0000000000000002");
        let repository = repositories.open_or_create(id, "main", Use::Read).await.unwrap();
        let path = repository.path.clone();
        assert!(path.join("HEAD").is_file());
        drop(repository);
        repositories.erase(id).await.unwrap();
        // This access was allowed before the erasure.
        assert!(repositories.open_or_create(id, "main", Use::Change).await.is_err());
        assert!(!path.exists());
        assert!(repositories.open_or_create(other, "main", Use::Change).await.is_ok());
    }

    #[tokio::test]
    async fn leftovers_are_removed_after_other_changes() {
        let (_folder, repositories) = Repositories::temporary();
        let open = || repositories.open_or_create("rep_0000000000000001", "main", Use::Change);
        let (killed, other) = (open().await.unwrap(), open().await.unwrap());
        let lock = killed.path.join("refs/heads/main.lock");
        let keep = killed.path.join("objects/pack/pack-1.keep");
        fs::write(&lock, "").unwrap();
        fs::write(&keep, "").unwrap();
        let clean_up = tokio::spawn(killed.clean_up());
        tokio::task::yield_now().await;
        assert!(lock.exists());
        drop(other);
        // A change that begins later waits for the cleanup.
        let _next = open().await.unwrap();
        assert!(!lock.exists() && !keep.exists());
        clean_up.await.unwrap();
    }
}
