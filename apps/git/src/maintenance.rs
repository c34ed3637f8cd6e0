//! Maintains repositories in the background: erases deleted ones, and repacks those that received pushes.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Seek as _, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use protocol::{GitNodeInfo, SecretValue};
use semaphores::KeyedSemaphores;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::core::Core;
use crate::git::{Git, output};
use crate::journal::Journal;
use crate::repository::{Repositories, Use};
use crate::storage::{SizeReporter, measure};

/// The interval between successful announcements to the control plane.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(60);
const ANNOUNCE_RETRY: Duration = Duration::from_secs(1);
/// The interval at which the node requests the list of deleted repositories.
const ERASE_INTERVAL: Duration = Duration::from_secs(60);
/// The interval at which the node checks which repositories to repack.
const REPACK_INTERVAL: Duration = Duration::from_secs(600);
/// The maximum number of repositories that are repacked at the same time.
const MAX_REPACKS: usize = 2;
/// The delay after which a repository that could not be repacked is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// The maximum duration of repacking a repository.
const MAX_GC: Duration = Duration::from_secs(3600);
/// The maximum duration of any other command.
const MAX_LIST: Duration = Duration::from_secs(120);
/// A repository with more packs than this is repacked.
const MAX_PACKS: usize = 20;
/// A repository is repacked if one of its 256 directories has more loose objects than this, which is about 2,000 in
/// all.
const MAX_LOOSE_PER_DIRECTORY: usize = 8;
/// The commit-graph is written again if the newer packs have more bytes than this.
const MAX_BYTES_WITHOUT_GRAPH: u64 = 1 << 20;
/// The prefix of the refs that keep commits from being removed. The API lists these commits as ref updates, but no
/// branch or tag contains them any more.
const KEPT: &str = "refs/svc/kept/";

/// Announces the internal listener.
pub async fn announce(core: Core, url: String, secret: String) {
    loop {
        let info = GitNodeInfo { url: url.clone(), secret: SecretValue::new(secret.clone()) };
        let delay = match core.announce(&info).await {
            Ok(()) => ANNOUNCE_INTERVAL,
            Err(error) => {
                tracing::warn!(%error, "failed to announce the node");
                ANNOUNCE_RETRY
            }
        };
        sleep(delay).await;
    }
}

/// Erases the deleted repositories that the control plane lists.
pub async fn erase(core: Core, repositories: Repositories, journal: Journal, sizes: SizeReporter) {
    let mut ticks = interval(ERASE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = erase_once(&core, &repositories, &journal, &sizes).await {
            tracing::warn!(error = format!("{error:#}"), "failed to erase deleted repositories");
        }
    }
}

async fn erase_once(
    core: &Core,
    repositories: &Repositories,
    journal: &Journal,
    sizes: &SizeReporter,
) -> anyhow::Result<()> {
    let mut erased = Vec::new();
    for id in core.erasable().await? {
        match repositories.erase(&id).await {
            Ok(()) => {
                tracing::info!(repository = id, "erased a deleted repository");
                journal.forget(&id);
                sizes.forget(&id);
                erased.push(id);
            }
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), repository = id, "failed to erase a deleted repository");
            }
        }
    }
    if !erased.is_empty() {
        core.erased(erased).await?;
    }
    Ok(())
}

/// Repacks the repositories that received many pushes, and writes commit-graphs.
pub struct Maintenance {
    core: Core,
    repositories: Repositories,
    journal: Journal,
    sizes: SizeReporter,
    /// Repacks leave this number of bytes free.
    min_free_bytes: u64,
    failures: Failures,
    /// The requests for the owners of repositories.
    requests: Semaphore,
    /// The turn of each owner.
    turns: KeyedSemaphores<String>,
    permits: Semaphore,
}

impl Maintenance {
    pub fn new(
        core: Core,
        repositories: Repositories,
        journal: Journal,
        sizes: SizeReporter,
        min_free_bytes: u64,
    ) -> Self {
        Self {
            core,
            repositories,
            journal,
            sizes,
            min_free_bytes,
            failures: Failures::default(),
            requests: Semaphore::new(1),
            turns: KeyedSemaphores::new(1),
            permits: Semaphore::new(MAX_REPACKS),
        }
    }

    /// Maintains the repositories that need it, at an interval. Runs until it is aborted.
    pub async fn run(self) {
        let mut ticks = interval(REPACK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut queued, mut running) = (HashSet::new(), FuturesUnordered::new());
        loop {
            tokio::select! {
                _ = ticks.tick() => match self.unmaintained().await {
                    Ok(ids) => {
                        for id in ids {
                            if self.failures.allow(&id) && queued.insert(id.clone()) {
                                running.push(self.maintain(id));
                            }
                        }
                    }
                    Err(error) => tracing::error!(%error, "the task that lists repositories to maintain failed"),
                },
                Some(id) = running.next() => {
                    queued.remove(&id);
                }
            }
        }
    }

    /// Returns the repositories that need maintenance.
    async fn unmaintained(&self) -> Result<Vec<String>, JoinError> {
        let repositories = self.repositories.clone();
        spawn_blocking(move || {
            let is_unmaintained =
                |id: &String| repositories.path(id).is_ok_and(|path| is_fragmented(&path) || needs_graph(&path));
            repositories.all().into_iter().filter(is_unmaintained).collect()
        })
        .await
    }

    /// Maintains a repository when it is its turn. Returns its id.
    async fn maintain(&self, id: String) -> String {
        if let Err(error) = self.maintain_in_turn(&id).await {
            tracing::warn!(error = format!("{error:#}"), repository = id, "failed to repack a repository");
        }
        id
    }

    async fn maintain_in_turn(&self, id: &str) -> anyhow::Result<()> {
        let request = self.requests.acquire().await?;
        let Some(owner) = self.core.objects(id).await?.owner else { return Ok(()) };
        drop(request);
        // The turn is acquired before the permit, so an owner has only one place in the queue for it.
        let _turn = self.turns.of(owner).acquire_owned().await?;
        let _permit = self.permits.acquire().await?;
        self.repack(id).await
    }

    async fn repack(&self, id: &str) -> anyhow::Result<()> {
        let Self { core, repositories, journal, sizes, failures, .. } = self;
        let found = repositories.find(id, Use::Change).await?;
        let Some(repository) = found else { return Ok(()) };
        if !is_fragmented(&repository.path) || !self.has_space(id, &repository.path).await? {
            if needs_graph(&repository.path) {
                let written = write_graph(repositories.git(), &repository.path).await;
                failures.record(id, &written);
                if written.is_err() {
                    sizes.report_change(id.to_owned(), repository, true);
                }
                return written;
            }
            return Ok(());
        }
        // Read the journal first: an update that is delivered between the two reads is then in the journal's list. In
        // the opposite order, both lists could lack it.
        let mut kept: HashSet<String> = journal.undelivered_objects(id).await?.into_iter().collect();
        kept.extend(core.objects(id).await?.objects);
        let repacked = repack_keeping(repositories.git(), &repository.path, &kept).await;
        failures.record(id, &repacked);
        // A failed command may have been killed, and then leaves lock files and an incomplete pack.
        sizes.report_change(id.to_owned(), repository, repacked.is_err());
        repacked
    }

    /// Returns whether the disk has space for a repack, which writes a copy of the repository before it removes the old
    /// packs. Each repack leaves space for a copy of the same size to each concurrent one, so that all of them fit.
    async fn has_space(&self, id: &str, path: &Path) -> anyhow::Result<bool> {
        let path = path.to_owned();
        let size_bytes = spawn_blocking(move || measure(&path)).await??;
        let needed = self.min_free_bytes.saturating_add(size_bytes.saturating_mul(MAX_REPACKS as u64));
        let has_space = self.repositories.free_bytes()? >= needed;
        if !has_space {
            tracing::warn!(repository = id, size_bytes, "too little free space in SVC_GIT_DIR to repack a repository");
        }
        Ok(has_space)
    }
}

/// The times of the last failures of git, by repository. The failures of other operations are not recorded: these
/// operations are cheap, and are repeated at the next interval.
#[derive(Default)]
struct Failures(Mutex<HashMap<String, Instant>>);

impl Failures {
    /// Returns whether git may process a repository.
    fn allow(&self, id: &str) -> bool {
        self.lock().get(id).is_none_or(|last| last.elapsed() >= RETRY_INTERVAL)
    }

    /// Records the result of git.
    fn record<T>(&self, id: &str, result: &anyhow::Result<T>) {
        match result {
            Ok(_) => self.lock().remove(id),
            Err(_) => self.lock().insert(id.to_owned(), Instant::now()),
        };
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn repack_keeping(git: &Git, repository: &Path, kept: &HashSet<String>) -> anyhow::Result<()> {
    keep(git, repository, kept).await?;
    let mut command = git.maintenance(Some(repository));
    // A push can make a commit unreachable while this command runs, but the commit must stay readable. So nothing is
    // pruned.
    command.args(["gc", "--quiet", "--prune=never"]);
    output(command, MAX_GC).await.context("git gc failed")?;
    write_graph(git, repository).await
}

async fn write_graph(git: &Git, repository: &Path) -> anyhow::Result<()> {
    let mut command = git.maintenance(Some(repository));
    command.args(["commit-graph", "write", "--reachable", "--changed-paths", "--no-progress"]);
    output(command, MAX_GC).await.context("git commit-graph failed")?;
    Ok(())
}

fn is_fragmented(path: &Path) -> bool {
    let count = |directory: &str, suffix: &str| {
        let entries = fs::read_dir(path.join("objects").join(directory)).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(suffix)).count()
    };
    count("pack", ".pack") > MAX_PACKS || count("17", "") > MAX_LOOSE_PER_DIRECTORY
}

/// Returns whether the packs that the commit-graph does not cover are large.
fn needs_graph(path: &Path) -> bool {
    let written = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let graph = written(&path.join("objects/info/commit-graph"));
    let packs = fs::read_dir(path.join("objects/pack")).into_iter().flatten().flatten();
    let packs = packs.filter(|entry| entry.file_name().to_string_lossy().ends_with(".pack"));
    let newer = packs.filter(|entry| graph.is_none() || written(&entry.path()) > graph);
    newer.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum::<u64>() > MAX_BYTES_WITHOUT_GRAPH
}

/// Protects these objects from garbage collection, and releases the protected objects that are not in the list.
async fn keep(git: &Git, repository: &Path, kept: &HashSet<String>) -> anyhow::Result<()> {
    let command = |arguments: &[&str], input: &str| {
        let mut command = git.maintenance(Some(repository));
        command.args(arguments).stdin(stdin_of(input)?);
        anyhow::Ok(command)
    };
    let listed = output(command(&["for-each-ref", "--format=%(objectname)", KEPT], "")?, MAX_LIST).await;
    let listed = String::from_utf8(listed.context("git for-each-ref failed")?)?;
    let listed: HashSet<&str> = listed.lines().collect();
    let new: String = kept.iter().filter(|id| !listed.contains(id.as_str())).map(|id| format!("{id}\n")).collect();
    let existing = output(command(&["cat-file", "--batch-check=%(objectname) %(objecttype)"], &new)?, MAX_LIST).await;
    let existing = String::from_utf8(existing.context("git cat-file failed")?)?;
    let existing = existing.lines().filter_map(|line| line.split_once(' ')).filter(|(_, kind)| *kind != "missing");
    let mut commands: String = existing.map(|(id, _)| format!("create {KEPT}{id} {id}\n")).collect();
    commands.extend(listed.iter().filter(|id| !kept.contains(**id)).map(|id| format!("delete {KEPT}{id}\n")));
    if !commands.is_empty() {
        let updated = output(command(&["update-ref", "--stdin"], &commands)?, MAX_LIST).await;
        updated.context("git update-ref failed")?;
    }
    Ok(())
}

/// Returns a standard input that contains the text.
fn stdin_of(text: &str) -> io::Result<Stdio> {
    let mut file = tempfile::tempfile()?;
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(Stdio::from(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The control plane of this node does not respond.
    fn maintenance() -> (tempfile::TempDir, Maintenance) {
        let core = Core::unreachable();
        let (folder, repositories) = Repositories::temporary();
        let (journal, _changed) = Journal::open(&repositories).unwrap();
        (folder, Maintenance::new(core.clone(), repositories, journal, SizeReporter::new(core), 0))
    }

    #[tokio::test]
    async fn only_failures_of_git_postpone_a_repack() {
        let (_folder, maintenance) = maintenance();
        let Maintenance { repositories, failures, .. } = &maintenance;
        let id = "rep_0000000000000001";
        let path = repositories.open_or_create(id, "main", Use::Read).await.unwrap().path;
        for number in 0..=MAX_PACKS {
            fs::write(path.join(format!("objects/pack/pack-{number}.pack")), "").unwrap();
        }
        // The control plane does not list the objects to keep.
        assert!(maintenance.repack(id).await.is_err());
        assert!(failures.allow(id));
        // This is not a repository any more.
        fs::remove_file(path.join("HEAD")).unwrap();
        failures.record(id, &repack_keeping(repositories.git(), &path, &HashSet::new()).await);
        assert!(!failures.allow(id));
    }

    #[tokio::test]
    async fn lock_of_a_killed_commit_graph_is_removed() {
        let (_folder, maintenance) = maintenance();
        let repositories = &maintenance.repositories;
        let id = "rep_0000000000000001";
        let path = repositories.open_or_create(id, "main", Use::Read).await.unwrap().path;
        let mut import = repositories.git().maintenance(Some(&path));
        let commit = "commit refs/heads/main\ncommitter Ada <ada@example.org> 0 +0000\ndata 0\n";
        import.args(["fast-import", "--quiet"]).stdin(stdin_of(commit).unwrap());
        assert!(import.status().unwrap().success());
        let pack = fs::File::create(path.join("objects/pack/pack-1.pack")).unwrap();
        pack.set_len(MAX_BYTES_WITHOUT_GRAPH + 1).unwrap();
        fs::write(path.join("objects/info/commit-graph.lock"), "").unwrap();
        assert!(maintenance.repack(id).await.is_err());
        // Lets the cleanup begin. The next attempt waits until it ends.
        tokio::task::yield_now().await;
        maintenance.repack(id).await.unwrap();
        assert!(path.join("objects/info/commit-graph").is_file());
    }
}
