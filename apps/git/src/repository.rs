//! The directories of the repositories: by id, so that a rename moves nothing and a new repository of an old name is
//! empty.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, bail, ensure};
use rustix::fs::{FlockOperation, flock};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::git::Git;
use crate::hook::Hook;

/// The configuration of git. It is the only one: git reads neither the system's nor a user's.
const CONFIG: &str = "\
[core]
	bigFileThreshold = 32m
	fsync = committed,loose-object,reference
	packedGitLimit = 256m
	logAllRefUpdates = false
[safe]
	directory = *
[transfer]
	fsckObjects = true
	hideRefs = refs/svc
[receive]
	maxInputSize = 2147483648
	advertisePushOptions = true
	autogc = false
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
    /// The uses of each repository. Erasure and maintenance exclude each other and, for erasure, all uses.
    uses: Mutex<HashMap<String, Arc<RwLock<()>>>>,
    /// Serializes creations and changes of `HEAD`.
    heads: Mutex<()>,
    /// Held until the process ends.
    _lock: File,
}

/// A repository in use. Until it is dropped, the repository is not erased.
pub struct Repository {
    pub path: PathBuf,
    _use: OwnedRwLockReadGuard<()>,
}

impl Repositories {
    /// Opens the directory, which no other process may use.
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(dir.join("repos")).context("cannot create the directory")?;
        let dir = dir.canonicalize()?;
        ensure!(dir.to_str().is_some(), "its path is not UTF-8");
        let lock = File::create(dir.join("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).context("another process uses the directory")?;
        // Creations that did not end.
        let unfinished = dir.join("new");
        remove_all(&unfinished)?;
        fs::create_dir_all(&unfinished)?;
        fs::create_dir_all(dir.join("home"))?;
        fs::write(dir.join("gitconfig"), CONFIG)?;
        let hooks = dir.join("hooks");
        remove_all(&hooks)?;
        fs::create_dir_all(&hooks)?;
        let program = std::env::current_exe().context("cannot find the program svc-git")?;
        for (name, _) in Hook::ALL {
            symlink(&program, hooks.join(name))?;
        }
        let git = Git::new(&dir)?;
        Ok(Self(Arc::new(Inner { dir, git, uses: Mutex::default(), heads: Mutex::default(), _lock: lock })))
    }

    /// The programs of git.
    pub fn git(&self) -> &Git {
        &self.0.git
    }

    /// Returns a repository of an authorized access. Creates it on the first one, and lets `HEAD` name the default branch.
    pub async fn open_or_create(&self, id: &str, default_branch: &str) -> anyhow::Result<Repository> {
        let repository = self.using(id).await?;
        let (this, path, branch) = (self.clone(), repository.path.clone(), default_branch.to_owned());
        tokio::task::spawn_blocking(move || this.prepare(&path, &branch)).await??;
        Ok(repository)
    }

    /// Returns a repository; `None` if it was never accessed.
    pub async fn find(&self, id: &str) -> anyhow::Result<Option<Repository>> {
        let repository = self.using(id).await?;
        Ok(repository.path.is_dir().then_some(repository))
    }

    async fn using(&self, id: &str) -> anyhow::Result<Repository> {
        let path = self.path(id)?;
        Ok(Repository { path, _use: self.uses(id).read_owned().await })
    }

    /// The directory of a repository. The first directory is the end of the id, which is random.
    pub fn path(&self, id: &str) -> anyhow::Result<PathBuf> {
        let is_id = id.starts_with("rep_") && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        ensure!(is_id && id.len() > 6, "the control plane sent a malformed id of a repository");
        let shard = id.get(id.len() - 2..).unwrap_or_default();
        Ok(self.0.dir.join("repos").join(shard).join(id))
    }

    fn uses(&self, id: &str) -> Arc<RwLock<()>> {
        let mut uses = self.0.uses.lock().unwrap_or_else(PoisonError::into_inner);
        uses.retain(|known, uses| known == id || Arc::strong_count(uses) > 1);
        Arc::clone(uses.entry(id.to_owned()).or_default())
    }

    fn prepare(&self, path: &Path, branch: &str) -> anyhow::Result<()> {
        let _heads = self.0.heads.lock().unwrap_or_else(PoisonError::into_inner);
        let head = format!("ref: refs/heads/{branch}\n");
        if !path.is_dir() {
            let new = tempfile::Builder::new().tempdir_in(self.0.dir.join("new"))?;
            let created = new.path().join("repository");
            let mut init = self.0.git.maintenance(None);
            init.args(["init", "--quiet", "--bare", "--template="]).arg(&created);
            ensure!(init.status()?.success(), "git init failed");
            fs::write(created.join("HEAD"), &head)?;
            let shard = path.parent().context("a repository has a parent directory")?;
            fs::create_dir_all(shard)?;
            fs::rename(&created, path)?;
            File::open(shard)?.sync_all()?;
            return Ok(());
        }
        if fs::read_to_string(path.join("HEAD"))? != head {
            let mut new = tempfile::NamedTempFile::new_in(path)?;
            new.write_all(head.as_bytes())?;
            new.persist(path.join("HEAD"))?;
        }
        Ok(())
    }

    /// Waits until the repository is not in use, and erases it.
    pub async fn erase(&self, id: &str) -> anyhow::Result<()> {
        let path = self.path(id)?;
        let _use: OwnedRwLockWriteGuard<()> = self.uses(id).write_owned().await;
        let trash = self.0.dir.join("new").join(id);
        tokio::task::spawn_blocking(move || {
            match fs::rename(&path, &trash) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                renamed => renamed?,
            }
            remove_all(&trash)
        })
        .await??;
        Ok(())
    }

    /// The ids of all repositories on the disk.
    pub fn all(&self) -> Vec<String> {
        let list = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().flatten();
        let repositories = list(self.0.dir.join("repos")).flat_map(|shard| list(shard.path()));
        repositories.filter_map(|repository| repository.file_name().into_string().ok()).collect()
    }

    /// Creates a temporary file without a name.
    pub fn temporary_file(&self) -> io::Result<File> {
        tempfile::tempfile_in(self.0.dir.join("new"))
    }

    /// The directory of the journal.
    pub fn journal_dir(&self) -> PathBuf {
        self.0.dir.join("journal")
    }

    /// The socket of the hooks.
    pub fn socket(&self) -> PathBuf {
        self.0.dir.join("hook.sock")
    }

    /// The file of the SSH host key.
    pub fn host_key(&self) -> PathBuf {
        self.0.dir.join("ssh_host_ed25519_key")
    }

    /// Removes the locks and incomplete packs of killed processes. No process of git may run.
    pub fn remove_leftovers(path: &Path) -> anyhow::Result<()> {
        for entry in fs::read_dir(path.join("objects"))? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("tmp_objdir-incoming-") {
                remove_all(&entry.path())?;
            }
        }
        for name in ["HEAD.lock", "packed-refs.lock", "config.lock", "shallow.lock", "gc.pid.lock"] {
            remove_file(&path.join(name))?;
        }
        let mut directories = vec![path.join("refs")];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    directories.push(entry.path());
                } else if entry.path().extension().is_some_and(|extension| extension == "lock") {
                    remove_file(&entry.path())?;
                }
            }
        }
        Ok(())
    }
}

fn remove_all(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes a file, if it exists.
pub fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Ends the processes that an earlier run of the node left: those whose environment names this socket.
pub fn end_leftover_processes(socket: &Path) -> anyhow::Result<()> {
    let marker = format!("{}={}", crate::hook::SOCKET, socket.display());
    for _ in 0..100 {
        let mut found = false;
        // Only Linux has it.
        let Ok(processes) = fs::read_dir("/proc") else { return Ok(()) };
        for entry in processes.flatten() {
            let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // It may have ended.
            let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
            if environment.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes()) {
                found = true;
                if let Some(process) = rustix::process::Pid::from_raw(process) {
                    // It may have ended.
                    let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
                }
            }
        }
        if !found {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    bail!("processes of an earlier run do not end")
}
