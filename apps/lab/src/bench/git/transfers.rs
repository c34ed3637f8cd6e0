//! Measures clones, fetches and pushes, alternately at a baseline and at the node.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use kernel::ClockRng;
use tokio::process::Command;

use super::Args;
use super::baselines::Baseline;
use crate::bench::report::Report;
use crate::bench::run::percentiles;
use crate::git_host::{GitHost, stdout};

/// The files of the large repository, and their size in bytes. They cannot be compressed.
const FILES: usize = 200;
const FILE_BYTES: usize = 500_000;
/// The number of commits of the small repository.
const SMALL_COMMITS: usize = 10;
/// The repository that the baselines also sync to the disk before they report a push. By default, git syncs neither
/// refs nor loose objects, and the node always does.
const SYNCED: &str = "synced";

/// Adds two rows for each operation and transport: the baseline and the node.
pub async fn compare(
    report: &mut Report,
    host: &GitHost,
    folder: &Path,
    baselines: &[Baseline],
    args: &Args,
) -> Result<()> {
    report.paragraph(&format!(
        "**Transfers.** {} clones, {} fetches and {} pushes at each program. By default, git syncs neither refs nor \
         loose objects to the disk.",
        args.clones, args.fetches, args.pushes
    ))?;
    report.columns(&["operation", "program", "p50 ms", "p99 ms", "ratio of p50"])?;
    let client = Client::start(host, folder, baselines).await?;
    for baseline in baselines {
        let node = |name: &str| if baseline.over_ssh { host.client.ssh_url(name) } else { host.client.url(name) };
        let transport = if baseline.over_ssh { "SSH" } else { "HTTP" };
        if args.clones > 0 {
            let sides = [baseline.url("large"), node("large")];
            let runs = client.repeat(args.clones, &sides, async |url| client.clone(url).await).await?;
            add(report, &format!("clone of 100 MB, {transport}"), baseline, runs)?;
        }
        if args.fetches > 0 {
            let sides = [baseline.url("small"), node("small")];
            let runs = client.repeat(args.fetches, &sides, async |url| client.fetch(url).await).await?;
            add(report, &format!("small fetch, {transport}"), baseline, runs)?;
        }
        if args.pushes > 0 {
            for (name, suffix) in [("pushed", ""), (SYNCED, ", both synced to the disk")] {
                let sides = [baseline.url(name), node(name)];
                let runs = client.repeat(args.pushes, &sides, async |url| client.push(name, url).await).await?;
                add(report, &format!("push of one commit{suffix}, {transport}"), baseline, runs)?;
            }
        }
    }
    Ok(())
}

/// The durations at the baseline and at the node, in milliseconds.
type Runs = [Vec<f64>; 2];

fn add(report: &mut Report, operation: &str, baseline: &Baseline, runs: Runs) -> Result<()> {
    let [base, node] = runs.map(|durations| percentiles(durations, [50, 99]));
    for (operation, program, [p50, p99]) in [(operation, baseline.name, base), ("", "svc-git", node)] {
        let ratio = format!("{:.2}", p50 / base[0]);
        report.row(&[operation, program, &format!("{p50:.1}"), &format!("{p99:.1}"), &ratio])?;
    }
    Ok(())
}

/// The client, with a repository for fetches and pushes.
struct Client<'a> {
    host: &'a GitHost,
    folder: PathBuf,
}

impl<'a> Client<'a> {
    /// Creates the repositories, and pushes the same contents to the node and the baselines.
    async fn start(host: &'a GitHost, folder: &Path, baselines: &[Baseline]) -> Result<Self> {
        let client = Self { host, folder: folder.join("client") };
        fs::create_dir(&client.folder)?;
        for name in ["large", "small", "pushed", SYNCED] {
            let work = client.folder.join(name);
            fs::create_dir(&work)?;
            client.run(&work, &["init", "--quiet", "--initial-branch=main"]).await?;
            let (files, bytes, commits) =
                if name == "large" { (FILES, FILE_BYTES, 1) } else { (1, 100, SMALL_COMMITS) };
            for commit in 0..commits {
                for file in 0..files {
                    let seed = ClockRng::system().bytes::<32>();
                    fs::write(work.join(format!("file{file}")), noise(&seed, bytes))?;
                }
                client.run(&work, &["add", "--all"]).await?;
                client.run(&work, &["commit", "--quiet", "-m", &format!("Commit {commit}")]).await?;
            }
            host.create(name).await?;
            client.run(&work, &["push", "--quiet", &host.client.url(name), "main"]).await?;
            if let Some(baseline) = baselines.first() {
                let bare = baseline.repositories.join(format!("{name}.git"));
                client
                    .run(
                        &client.folder,
                        &[
                            "clone",
                            "--quiet",
                            "--bare",
                            &format!("file://{}", work.display()),
                            &bare.display().to_string(),
                        ],
                    )
                    .await?;
                client.run(&bare, &["config", "http.receivepack", "true"]).await?;
                if name == SYNCED {
                    client.run(&bare, &["config", "core.fsync", "all"]).await?;
                }
            }
        }
        Ok(client)
    }

    fn git(&self, folder: &Path) -> Command {
        self.host.client.git(folder)
    }

    async fn run(&self, folder: &Path, arguments: &[&str]) -> Result<String> {
        stdout(self.git(folder).args(arguments)).await
    }

    /// Runs an operation alternately for both URLs. The first run for each URL is not measured.
    async fn repeat(
        &self,
        count: usize,
        urls: &[String; 2],
        operation: impl AsyncFn(&str) -> Result<Duration>,
    ) -> Result<Runs> {
        let mut runs = Runs::default();
        for number in 0..=count {
            for (url, durations) in urls.iter().zip(&mut runs) {
                let duration = operation(url).await?;
                if number > 0 {
                    durations.push(duration.as_secs_f64() * 1000.0);
                }
            }
        }
        Ok(runs)
    }

    async fn clone(&self, url: &str) -> Result<Duration> {
        let target = self.folder.join("clone");
        let start = Instant::now();
        self.run(&self.folder, &["clone", "--quiet", "--bare", url, "clone"]).await?;
        let duration = start.elapsed();
        fs::remove_dir_all(target)?;
        Ok(duration)
    }

    /// Fetches all commits of the small repository again, although the client already has them.
    async fn fetch(&self, url: &str) -> Result<Duration> {
        let start = Instant::now();
        let arguments =
            ["fetch", "--quiet", "--refetch", "--no-write-fetch-head", "--no-auto-maintenance", url, "main"];
        self.run(&self.folder.join("small"), &arguments).await?;
        Ok(start.elapsed())
    }

    /// Pushes a new commit of the repository with this name.
    async fn push(&self, name: &str, url: &str) -> Result<Duration> {
        let side = if url.contains("/ada/site/") { "node" } else { "baseline" };
        let (work, tracking) = (self.folder.join(name), format!("refs/sides/{side}"));
        let parent = self.run(&work, &["rev-parse", "--verify", "--quiet", &tracking]).await;
        let parent = parent.unwrap_or_else(|_| "main".to_owned());
        let commit = self.run(&work, &["commit-tree", "main^{tree}", "-p", &parent, "-m", "Another"]).await?;
        let start = Instant::now();
        self.run(&work, &["push", "--quiet", url, &format!("{commit}:refs/heads/main")]).await?;
        let duration = start.elapsed();
        self.run(&work, &["update-ref", &tracking, &commit]).await?;
        Ok(duration)
    }
}

/// Returns bytes that cannot be compressed.
fn noise(seed: &[u8], length: usize) -> Vec<u8> {
    let mut state = seed.iter().fold(1_u64, |state, byte| state.wrapping_mul(1_099_511_628_211) ^ u64::from(*byte)) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).flatten().take(length).collect()
}
