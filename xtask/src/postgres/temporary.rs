//! Test and benchmark clusters, which are deleted afterwards.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use rustix::process::Signal;

use super::location::{self, Account};
use super::server::Server;
use super::{Cluster, ClusterKind, binaries};
use crate::workspace;

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
        // Without this lock, a concurrent start could remove the new cluster before it is locked.
        let start_lock = File::create(state.join("lock"))?;
        start_lock.lock()?;
        let prefix = format!("svc-test-{}-", workspace::fingerprint(&workspace::root()?));
        let memory = Path::new("/dev/shm");
        for parent in [memory, &state] {
            remove_leftovers(parent, &prefix, account)?;
        }
        let parent = if kind == ClusterKind::Test && has_space(memory) { memory } else { &state };
        let suffix = if listen.is_some() { "-projects" } else { "" };
        let home = parent.join(format!("{prefix}{}{suffix}", std::process::id()));
        location::private_folder(&home, account)?;
        let lock = workspace::try_lock(&home.join("lock"))?;
        ensure!(lock.is_some(), "{} belongs to another process", home.display());
        Self::start(kind, bin, account, home, listen, lock)
    }
}

/// Stops and deletes the test clusters of killed runs.
fn remove_leftovers(parent: &Path, prefix: &str, account: Option<Account>) -> Result<()> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Ok(());
    };
    for home in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)) {
        let home = home.path();
        let Some(_lock) = workspace::try_lock(&home.join("lock"))? else {
            continue;
        };
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

fn has_space(memory: &Path) -> bool {
    const ENOUGH: u64 = 2 << 30;
    rustix::fs::statvfs(memory).is_ok_and(|it| it.f_bavail.saturating_mul(it.f_frsize) >= ENOUGH)
}
