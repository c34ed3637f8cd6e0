//! `kill -9` of the git node and of the control plane while clients push to one branch.
//!
//! In each round, 20 clients push different commits on top of the same one. Every acknowledged push must be listed
//! once, the listed updates must form a chain, and the repository must be intact.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use tokio::process::Command;
use tokio::time::sleep;
use xtask::postgres::Cluster;
use xtask::services::Services;

use super::Outcome;
use super::report::Finding;
use crate::bench::machine::with_services;
use crate::git_host::{GitClient, GitHost, stdout};
use crate::random;

/// The number of rounds of a run with the default number of repetitions.
const ROUNDS: usize = 200;
const CLIENTS: usize = 20;
/// Every fifth round also kills the control plane.
const CONTROL_PLANE_EVERY: usize = 5;
/// The repository is checked after this many rounds, and at the end.
const CHECK_EVERY: usize = 20;
/// The maximum number of checks while packs disappear, and the interval between them.
const MAX_CHECKS: usize = 5;
const CHECK_PAUSE: Duration = Duration::from_secs(1);
/// The longest permitted time from a restart until the last update is listed.
const MAX_DELIVERY: Duration = Duration::from_secs(60);
const REPO: &str = "app";

pub async fn run(rounds: usize) -> Result<Outcome> {
    with_services(async |services, folder| measure(services, folder, (ROUNDS * rounds).div_ceil(3)).await).await
}

async fn measure(services: &mut Services, folder: &Path, rounds: usize) -> Result<Outcome> {
    let cluster = Cluster::bench()?;
    let database = cluster.url("postgres");
    let host = GitHost::start(services, folder, cluster).await?;
    host.create(REPO).await?;
    let mut pushers = Pushers::start(host.client.clone(), folder, REPO).await?;
    let (mut outcome, mut acknowledged, mut listed) = (Outcome::default(), Vec::new(), Vec::new());
    let (mut kills, mut longest, start) = (0, Duration::ZERO, Instant::now());
    for round in 0..rounds {
        let mut pushes: FuturesUnordered<_> = pushers.push().await?.into_iter().collect();
        let mut pushed: Vec<String> = Vec::new();
        if round % 2 == 0 {
            sleep(random::millis(0..1500)).await;
        } else {
            // The processes are killed immediately after the first acknowledgement.
            while pushed.is_empty()
                && let Some(push) = pushes.next().await
            {
                pushed.extend(push?);
            }
        }
        if round % CONTROL_PLANE_EVERY == 0 {
            host.server.program.kill_and_restart(services).await?;
            kills += 1;
        }
        host.node.program.kill_and_restart(services).await?;
        kills += 1;
        while let Some(push) = pushes.next().await {
            pushed.extend(push?);
        }
        if pushed.len() > 1 {
            outcome.violations.push(format!("{} pushes on top of one commit were acknowledged", pushed.len()));
        }
        acknowledged.extend(pushed);
        pushers.head = pushers.remote_head().await?;
        let delivered = Instant::now();
        extend(&host, &mut listed, &pushers.head).await?;
        longest = longest.max(delivered.elapsed());
        if round % CHECK_EVERY == 0 || round + 1 == rounds {
            check(&host.client, &host.directory(REPO).await?, &mut outcome).await?;
        }
    }
    let duration = start.elapsed();
    outcome.violations.extend(violations(&listed, &acknowledged));
    outcome.violations.extend(chaos::violations(&database, &[crate::bench::server::SEALING_KEY]).await?);
    let met = outcome.violations.is_empty() && !acknowledged.is_empty();
    outcome.findings.push(Finding::new(
        "kill -9 of git node and control plane while 20 clients push to one branch",
        "no acknowledged update lost; every update listed once, in order; `git fsck` finds nothing, except packs that a \
         repack is removing",
        met,
        format!(
            "{rounds} rounds, {kills} kills: {} updates acknowledged, {} listed; {} violations; the last update listed at \
             most {:.1} s after the restart; {:.1} s per round",
            acknowledged.len(),
            listed.len(),
            outcome.violations.len(),
            longest.as_secs_f64(),
            duration.as_secs_f64() / f64::from(u32::try_from(rounds.max(1))?),
        ),
    ));
    Ok(outcome)
}

/// The clients. They share one local repository, so that a client need not fetch the commits of the others.
pub struct Pushers {
    client: GitClient,
    repo: &'static str,
    folder: PathBuf,
    /// The commit on top of which the next ones are created.
    pub head: String,
    tree: String,
    created: u64,
}

impl Pushers {
    /// Pushes the first commit to an empty repository.
    pub async fn start(client: GitClient, folder: &Path, repo: &'static str) -> Result<Self> {
        let folder = folder.join("clients");
        std::fs::create_dir(&folder)?;
        stdout(client.git(&folder).args(["init", "--quiet", "--initial-branch=main"])).await?;
        std::fs::write(folder.join("file"), "contents")?;
        stdout(client.git(&folder).args(["add", "file"])).await?;
        let tree = stdout(client.git(&folder).arg("write-tree")).await?;
        let mut pushers = Self { client, repo, folder, head: String::new(), tree, created: 0 };
        pushers.head = pushers.commit().await?;
        let refspec = format!("{}:refs/heads/main", pushers.head);
        let mut push = pushers.client.git(&pushers.folder);
        stdout(push.args(["push", "--quiet", &pushers.client.url(repo), &refspec])).await?;
        Ok(pushers)
    }

    /// Creates a commit on top of the branch.
    pub async fn commit(&mut self) -> Result<String> {
        self.created += 1;
        let mut command = self.client.git(&self.folder);
        command.args(["commit-tree", &self.tree, "-m", &format!("Commit {}", self.created)]);
        if !self.head.is_empty() {
            command.args(["-p", &self.head]);
        }
        stdout(&mut command).await
    }

    /// Starts the pushes of a round. Each returns its commit if it was acknowledged.
    async fn push(&mut self) -> Result<Vec<impl Future<Output = Result<Option<String>>> + use<>>> {
        let mut pushes = Vec::new();
        for number in 0..CLIENTS {
            let commit = self.commit().await?;
            pushes.push((self.push_of(&commit, number % 2 == 1), commit));
        }
        let started = pushes.into_iter().map(|(mut push, commit)| {
            let mut child = push.spawn()?;
            Ok(async move { Ok(child.wait().await?.success().then_some(commit)) })
        });
        started.collect()
    }

    /// Returns the command that pushes a commit to the branch.
    pub fn push_of(&self, commit: &str, over_ssh: bool) -> Command {
        let url = if over_ssh { self.client.ssh_url(self.repo) } else { self.client.url(self.repo) };
        let mut push = self.client.git(&self.folder);
        push.args(["push", "--quiet", &url, &format!("{commit}:refs/heads/main")]);
        push.stdout(Stdio::null()).stderr(Stdio::null());
        push
    }

    /// Returns the commit of the branch at the node.
    pub async fn remote_head(&self) -> Result<String> {
        let mut list = self.client.git(&self.folder);
        let listed = stdout(list.args(["ls-remote", &self.client.url(self.repo), "refs/heads/main"])).await?;
        Ok(listed.split('\t').next().context("the branch has a commit")?.to_owned())
    }
}

/// An update of the branch: the commits before and after it.
pub type Update = (Option<String>, Option<String>);

/// Waits until an update to this commit is listed. Then appends the updates that were listed since the last call.
async fn extend(host: &GitHost, known: &mut Vec<Update>, head: &str) -> Result<()> {
    let start = Instant::now();
    loop {
        let page = host.read(REPO, "/ref-updates").await?;
        let commit = |update: &Value, name: &str| update.get(name).and_then(Value::as_str).map(str::to_owned);
        let items = page.get("items").and_then(Value::as_array).context("no items")?;
        let listed: Vec<Update> = items.iter().rev().map(|it| (commit(it, "old"), commit(it, "new"))).collect();
        if listed.last().is_some_and(|(_, new)| new.as_deref() == Some(head)) {
            let last = known.last().cloned();
            let next = listed.iter().rposition(|update| Some(update) == last.as_ref()).map_or(0, |at| at + 1);
            known.extend(listed.into_iter().skip(next));
            return Ok(());
        }
        ensure!(start.elapsed() < MAX_DELIVERY, "the update to {head} is not listed");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Runs `git fsck` in the directory of a repository at the node. If the node repacks the repository at the same time,
/// packs disappear after `git fsck` has listed them. So a finding about a pack is a violation only if it remains.
pub async fn check(client: &GitClient, directory: &Path, outcome: &mut Outcome) -> Result<()> {
    for number in 1.. {
        let checked = client.git(directory).args(["fsck", "--full", "--no-dangling"]).output().await?;
        if checked.status.success() {
            break;
        }
        let findings = [checked.stderr, checked.stdout].concat();
        let findings = String::from_utf8_lossy(&findings);
        if number == MAX_CHECKS || !findings.contains("packfile") {
            outcome.violations.push(format!("git fsck: {}", findings.lines().next().unwrap_or_default()));
            break;
        }
        sleep(CHECK_PAUSE).await;
    }
    Ok(())
}

/// Returns descriptions of the updates that are missing, listed twice, or not in order.
pub fn violations(listed: &[Update], acknowledged: &[String]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut before = &None;
    for (old, new) in listed {
        if old != before {
            violations.push(format!("the update to {new:?} follows {before:?}, but has the old commit {old:?}"));
        }
        before = new;
    }
    for commit in acknowledged {
        let count = listed.iter().filter(|(_, new)| new.as_ref() == Some(commit)).count();
        if count != 1 {
            violations.push(format!("the acknowledged update to {commit} is listed {count} times"));
        }
    }
    violations
}
