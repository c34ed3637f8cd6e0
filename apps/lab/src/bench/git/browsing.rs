//! Browsing of a repository with many commits, and with a directory of many entries, through the API.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::time::sleep;
use xtask::services::Services;
use xtask::workspace::print_step;

use super::Args;
use crate::bench::report::Report;
use crate::bench::run::percentiles;
use crate::git_host::{GitHost, stdout};
use crate::usage;

/// The number of entries of the large directory.
const ENTRIES: usize = 50_000;
/// The number of branches and tags.
const REFS: usize = 1_000;
/// How long the node may take to maintain the repository.
const MAX_MAINTENANCE: Duration = Duration::from_secs(600);
const REPO: &str = "history";

/// Adds a row for each request.
pub async fn measure(
    report: &mut Report,
    services: &mut Services,
    host: &GitHost,
    folder: &Path,
    args: &Args,
) -> Result<()> {
    let start = Instant::now();
    push(host, folder, args.commits).await?;
    print_step("History", "pushed", start);
    let graph = host.directory(REPO).await?.join("objects/info/commit-graph");
    let start = Instant::now();
    // The node begins maintenance at its start, so it is restarted.
    host.node.program.kill_and_restart(services).await?;
    while !graph.exists() {
        ensure!(start.elapsed() < MAX_MAINTENANCE, "the node does not maintain the repository");
        sleep(Duration::from_millis(200)).await;
    }
    print_step("Graph", "written", start);
    report.paragraph(&format!(
        "**Browsing.** {} sequential requests to each endpoint of the API. The repository has {} commits, a directory \
         of {ENTRIES} entries, and {REFS} branches and tags.",
        args.requests, args.commits
    ))?;
    report.columns(&["request", "p50 ms", "p99 ms", "max ms"])?;
    for path in [
        "/refs",
        "/tree",
        "/tree?path=large",
        "/blob?path=README.md",
        "/blob?path=large/entry49999",
        "/commits",
        "/commits?limit=200",
        "/commits?path=src",
        "/commits?path=src/part7/file7",
        "/commits?path=large",
        "/commits?path=large/entry49999",
        "/commits?path=README.md",
    ] {
        let mut durations = Vec::new();
        for number in 0..=args.requests {
            let start = Instant::now();
            host.read(REPO, path).await.with_context(|| path.to_owned())?;
            if number > 0 {
                durations.push(start.elapsed().as_secs_f64() * 1000.0);
            }
        }
        let [p50, p99, max] = percentiles(durations, [50, 99, 100]).map(|ms| format!("{ms:.1}"));
        report.row(&[&format!("`{path}`"), &p50, &p99, &max])?;
    }
    let (current, peak) = usage::memory(host.node.program.pid())?;
    report.paragraph(&format!("The node then used {current:.0} MB of memory, and at most {peak:.0} MB before."))
}

async fn push(host: &GitHost, folder: &Path, commits: usize) -> Result<()> {
    let work = folder.join("history");
    fs::create_dir(&work)?;
    stdout(host.client.git(&work).args(["init", "--quiet", "--bare", "--initial-branch=main"])).await?;
    let mut import = host.client.git(&work);
    let mut import = import.args(["fast-import", "--quiet"]).stdin(Stdio::piped()).spawn()?;
    let input = import.stdin.take().context("git has an input")?.into_owned_fd()?;
    tokio::task::block_in_place(|| write_history(fs::File::from(input), commits))?;
    ensure!(import.wait().await?.success(), "git fast-import failed");
    host.create(REPO).await?;
    stdout(host.client.git(&work).args(["push", "--quiet", &host.client.url(REPO), "refs/heads/*", "refs/tags/*"]))
        .await
        .map(drop)
}

/// Writes a history. Each commit changes one of 1,000 files in 100 directories. Every 1,000th commit also changes an
/// entry of the large directory.
fn write_history(input: fs::File, commits: usize) -> Result<()> {
    let mut input = BufWriter::new(input);
    for number in 0..commits {
        let mut text = String::new();
        writeln!(
            text,
            "commit refs/heads/main\nmark :{}\ncommitter Ada <ada@example.org> {} +0000",
            number + 1,
            1_600_000_000 + number * 60
        )?;
        let message = format!("Commit {number}");
        writeln!(text, "data {}\n{message}", message.len())?;
        let mut file =
            |path: &str, contents: &str| writeln!(text, "M 644 inline {path}\ndata {}\n{contents}", contents.len());
        if number == 0 {
            file("README.md", "# History")?;
            for entry in 0..ENTRIES {
                file(&format!("large/entry{entry:05}"), &format!("{entry}"))?;
            }
        }
        file(&format!("src/part{}/file{}", number % 100, number % 1000), &format!("contents {number}"))?;
        if number % 1000 == 999 {
            file(&format!("large/entry{:05}", number % 49_999), &format!("changed {number}"))?;
        }
        input.write_all(text.as_bytes())?;
    }
    for number in 0..REFS / 2 {
        let mark = commits - number % commits;
        write!(input, "reset refs/heads/branch{number}\nfrom :{mark}\n\n")?;
        write!(input, "reset refs/tags/v{number}\nfrom :{mark}\n\n")?;
    }
    Ok(input.flush()?)
}
