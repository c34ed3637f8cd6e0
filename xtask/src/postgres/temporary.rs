//! Test and benchmark clusters, and the temporary files of tests, which are deleted afterwards.

use std::fs::{self, File, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::fs::{StatVfs, StatVfsMountFlags};
use rustix::process::Signal;

use super::location::{self, Account};
use super::server::Server;
use super::{Cluster, ClusterKind, binaries};
use crate::workspace;

/// A file system in memory, if it exists.
const MEMORY: &str = "/dev/shm";

/// How the names of folders for the temporary files of tests end.
const FILES: &str = "-files";

/// The space in memory that a test cluster may need, in bytes.
const CLUSTER_SPACE: u64 = 2 << 30;

/// The space in memory that the other temporary files of tests may need, in bytes. Some tests store more than 1 GiB.
const FILES_SPACE: u64 = 8 << 30;

impl Cluster {
    /// Starts an empty test cluster, in memory if there is enough space.
    pub fn test() -> Result<Self> {
        Self::start_temporary(ClusterKind::Test, None, binaries::find)
    }

    /// Starts an empty durable cluster on disk, with Postgres' default settings.
    pub fn bench() -> Result<Self> {
        Self::start_temporary(ClusterKind::Bench, None, binaries::find)
    }

    /// Starts an empty durable cluster on disk for the databases of projects.
    pub fn bench_projects(listen: SocketAddr) -> Result<Self> {
        Self::start_temporary(ClusterKind::Bench, Some(listen), binaries::find)
    }

    /// Starts an empty benchmark cluster below a folder.
    pub fn bench_in(folder: &Path) -> Result<Self> {
        let account = Account::find()?;
        let home = folder.join("postgres");
        location::private_folder(&home, account)?;
        Self::start(ClusterKind::Bench, binaries::find(account)?, account, home, None, None)
    }

    pub(super) fn start_temporary(
        kind: ClusterKind,
        listen: Option<SocketAddr>,
        find: impl FnOnce(Option<Account>) -> Result<PathBuf>,
    ) -> Result<Self> {
        let account = Account::find()?;
        let bin = find(account)?;
        let state = location::state_folder("test", account)?;
        let _start_lock = lock_starts(&state)?;
        let (memory, prefix) = (Path::new(MEMORY), prefix()?);
        for parent in [memory, &state] {
            remove_leftovers(parent, &prefix, account)?;
        }
        let is_in_memory = kind == ClusterKind::Test && memory_with_space(CLUSTER_SPACE).is_some();
        let parent = if is_in_memory { memory } else { &state };
        let suffix = if listen.is_some() { "-projects" } else { "" };
        let home = parent.join(format!("{prefix}{}{suffix}", std::process::id()));
        location::private_folder(&home, account)?;
        let lock = lock(&home)?;
        Self::start(kind, bin, account, home, listen, Some(lock))
    }
}

/// A folder in memory for the temporary files of tests. It is deleted on drop.
pub struct TemporaryFiles {
    path: PathBuf,
    /// The folder of the lock of starts.
    state: PathBuf,
    /// Distinguishes the folder from one that a killed run left behind.
    _lock: File,
}

impl TemporaryFiles {
    /// Creates the folder, for all users, as some tests run programs as other users. Returns `None` if there is not
    /// enough space, or the file system does not allow programs. The next test cluster removes the folder of a killed
    /// run.
    pub fn in_memory() -> Result<Option<Self>> {
        if memory_with_space(FILES_SPACE).is_none_or(|it| it.f_flag.contains(StatVfsMountFlags::NOEXEC)) {
            return Ok(None);
        }
        let state = location::state_folder("test", Account::find()?)?;
        let _start_lock = lock_starts(&state)?;
        let path = Path::new(MEMORY).join(format!("{}{}{FILES}", prefix()?, std::process::id()));
        fs::create_dir(&path)?;
        let lock = lock(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o1777))?;
        Ok(Some(Self { path, state, _lock: lock }))
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryFiles {
    fn drop(&mut self) {
        // A concurrent start must not find a part of the folder.
        let _start_lock = lock_starts(&self.state);
        // If this fails, the next test cluster removes the folder.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Returns how the names of this checkout's temporary folders begin.
fn prefix() -> Result<String> {
    Ok(format!("svc-test-{}-", workspace::fingerprint(&workspace::root()?)))
}

/// Waits for other starts. Without this lock, a concurrent start could remove a new folder before it is locked.
fn lock_starts(state: &Path) -> Result<File> {
    let lock = File::create(state.join("lock"))?;
    lock.lock()?;
    Ok(lock)
}

fn lock(home: &Path) -> Result<File> {
    let lock = workspace::try_lock(&home.join("lock"))?;
    lock.with_context(|| format!("{} belongs to another process", home.display()))
}

/// Stops and deletes the test clusters of killed runs. Ignores the entries of other users, because all users can create
/// entries in memory.
fn remove_leftovers(parent: &Path, prefix: &str, account: Option<Account>) -> Result<()> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Ok(());
    };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)) {
        if !entry.metadata().is_ok_and(|found| location::is_own_folder(&found, account)) {
            continue;
        }
        let home = entry.path();
        let Some(_lock) = workspace::try_lock(&home.join("lock"))? else {
            continue;
        };
        if home.to_string_lossy().ends_with(FILES) {
            // Programs that the killed run started may still write files.
            if let Err(error) = fs::remove_dir_all(&home) {
                println!("  tests     cannot remove the files of a killed run in {}: {error}", home.display());
            }
            continue;
        }
        stop_leftover(&home, account)?;
        fs::remove_dir_all(&home)?;
    }
    Ok(())
}

/// Stops a server whose data is about to be deleted.
pub(super) fn stop_leftover(home: &Path, account: Option<Account>) -> Result<()> {
    if let Some(mut server) = Server::find(&home.join("data"), &location::socket_folder(home, account)?) {
        server.stop(Signal::QUIT);
    }
    Ok(())
}

/// Returns the state of the file system in memory if this number of bytes is free.
fn memory_with_space(bytes: u64) -> Option<StatVfs> {
    rustix::fs::statvfs(MEMORY).ok().filter(|it| it.f_bavail.saturating_mul(it.f_frsize) >= bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use rustix::process::geteuid;

    use super::*;

    const PREFIX: &str = "svc-test-0-";

    #[test]
    fn folders_of_killed_runs_are_deleted() {
        let parent = tempfile::tempdir().unwrap();
        let [killed, running, link] = ["1", "2", "3"].map(|name| parent.path().join(format!("{PREFIX}{name}")));
        fs::create_dir(&killed).unwrap();
        fs::create_dir(&running).unwrap();
        let _lock = lock(&running).unwrap();
        let linked = tempfile::tempdir().unwrap();
        symlink(linked.path(), &link).unwrap();
        remove_leftovers(parent.path(), PREFIX, None).unwrap();
        assert_eq!([&killed, &running, &link].map(|path| path.exists()), [false, true, true]);
        assert_eq!(fs::read_dir(linked.path()).unwrap().count(), 0);
    }

    #[test]
    fn folders_of_other_users_are_ignored() {
        if !geteuid().is_root() {
            return eprintln!("SKIPPED: only root can create folders of other users");
        }
        let parent = tempfile::tempdir().unwrap();
        let (file, folder) = (parent.path().join("file"), parent.path().join(format!("{PREFIX}1")));
        fs::write(&file, "content").unwrap();
        fs::create_dir(&folder).unwrap();
        symlink(&file, folder.join("lock")).unwrap();
        chown(&folder, Some(65_534), Some(65_534)).unwrap();
        remove_leftovers(parent.path(), PREFIX, None).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "content");
        assert!(folder.exists());
    }
}
