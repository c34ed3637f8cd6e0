//! Maintenance of repositories: erasure of deleted ones, and the repacking of those that received pushes. It runs
//! outside of requests.

use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use protocol::{GitNodeInfo, SecretValue};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::core::Core;
use crate::git::Git;
use crate::journal::Journal;
use crate::repository::Repositories;

/// The interval of announcements to the control plane, after a successful one.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(60);
const ANNOUNCE_RETRY: Duration = Duration::from_secs(1);
/// The interval at which deleted repositories are looked up.
const ERASE_INTERVAL: Duration = Duration::from_secs(60);
/// The interval at which repositories are looked through.
const REPACK_INTERVAL: Duration = Duration::from_secs(600);
/// A repository with more packs is repacked.
const MAX_PACKS: usize = 20;
/// A repository with more loose objects in one of its 256 directories is repacked: about 2,000 in all.
const MAX_LOOSE_PER_DIRECTORY: usize = 8;
/// The refs of commits that `ref-updates` lists, and that no other ref reaches any more.
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

/// Erases deleted repositories that the control plane lists.
pub async fn erase(core: Core, repositories: Repositories) {
    let mut ticks = interval(ERASE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = erase_once(&core, &repositories).await {
            tracing::warn!(error = format!("{error:#}"), "failed to erase deleted repositories");
        }
    }
}

async fn erase_once(core: &Core, repositories: &Repositories) -> anyhow::Result<()> {
    let erasable = core.erasable().await?;
    for id in &erasable {
        repositories.erase(id).await?;
        tracing::info!(repository = id, "erased a deleted repository");
    }
    if !erasable.is_empty() {
        core.erased(erasable).await?;
    }
    Ok(())
}

/// Repacks repositories that received many pushes.
pub async fn repack(core: Core, repositories: Repositories, journal: Journal) {
    let mut ticks = interval(REPACK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for id in repositories.all() {
            if let Err(error) = repack_one(&core, &repositories, &journal, &id).await {
                tracing::warn!(error = format!("{error:#}"), repository = id, "failed to repack a repository");
            }
        }
    }
}

async fn repack_one(core: &Core, repositories: &Repositories, journal: &Journal, id: &str) -> anyhow::Result<()> {
    let Some(repository) = repositories.find(id).await?.filter(|it| is_fragmented(&it.path)) else { return Ok(()) };
    // Before the request: an update that is delivered during it is in at least one of both lists.
    let mut kept: HashSet<String> = journal.undelivered_objects(id).into_iter().collect();
    kept.extend(core.listed_objects(id).await?);
    let git = repositories.git().clone();
    spawn_blocking(move || {
        keep(&git, &repository.path, &kept)?;
        let run = |arguments: &[&str]| {
            let mut command = git.maintenance(Some(&repository.path));
            ensure!(command.args(arguments).status()?.success(), "git {} failed", arguments.join(" "));
            Ok(())
        };
        // A push can make a commit unreachable at the same time. It is not pruned.
        run(&["gc", "--quiet", "--no-detach", "--prune=never"])?;
        run(&["commit-graph", "write", "--reachable", "--changed-paths", "--no-progress"])
    })
    .await?
}

fn is_fragmented(path: &Path) -> bool {
    let count = |directory: &str, suffix: &str| {
        let entries = fs::read_dir(path.join("objects").join(directory)).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(suffix)).count()
    };
    count("pack", ".pack") > MAX_PACKS || count("17", "") > MAX_LOOSE_PER_DIRECTORY
}

/// Keeps these objects from garbage collection, and no others.
fn keep(git: &Git, repository: &Path, kept: &HashSet<String>) -> anyhow::Result<()> {
    let list = git
        .maintenance(Some(repository))
        .args(["for-each-ref", "--format=%(objectname)", KEPT])
        .stdout(Stdio::piped())
        .output()?;
    let listed = String::from_utf8(list.stdout)?;
    let listed: HashSet<&str> = listed.lines().collect();
    let exists = |id: &&String| {
        let mut command = git.maintenance(Some(repository));
        command.args(["cat-file", "-e", id]).status().is_ok_and(|status| status.success())
    };
    let new = kept.iter().filter(|id| !listed.contains(id.as_str())).filter(exists);
    let mut commands: String = new.map(|id| format!("create {KEPT}{id} {id}\n")).collect();
    commands.extend(listed.iter().filter(|id| !kept.contains(**id)).map(|id| format!("delete {KEPT}{id}\n")));
    if commands.is_empty() {
        return Ok(());
    }
    let mut command: Command = git.maintenance(Some(repository));
    let mut child = command.args(["update-ref", "--stdin"]).stdin(Stdio::piped()).spawn()?;
    child.stdin.take().context("git has an input")?.write_all(commands.as_bytes())?;
    ensure!(child.wait()?.success(), "git update-ref failed");
    Ok(())
}
