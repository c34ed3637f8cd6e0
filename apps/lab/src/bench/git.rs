//! `bench git`: clones, fetches and pushes compared with `git http-backend` behind nginx and with OpenSSH, and browsing
//! of a large repository. A server, a git node and the baselines run on this machine, from release builds.

mod baselines;
mod browsing;
mod transfers;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use xtask::postgres::Cluster;
use xtask::services::Services;

use super::machine::with_release_build;
use super::report::{Report, version};
use crate::git_host::GitHost;

const TITLE: &str = "Git";
const ABOUT: &str = "\
Written by `cargo xtask bench git`. A git node, which syncs each push to the disk; `git http-backend` behind nginx; and
OpenSSH. git is the client of all three, with the same repositories at each.";

#[derive(clap::Args, PartialEq)]
pub struct Args {
    /// The number of clones of a repository of 100 MB; 0 skips this part
    #[arg(long, default_value_t = 5)]
    clones: usize,
    /// The number of small fetches; 0 skips this part
    #[arg(long, default_value_t = 1000)]
    fetches: usize,
    /// The number of pushes of one commit; 0 skips this part
    #[arg(long, default_value_t = 100)]
    pushes: usize,
    /// The number of commits of the repository that is browsed; 0 skips this part
    #[arg(long, default_value_t = 100_000)]
    commits: usize,
    /// The number of requests to each endpoint of browsing
    #[arg(long, default_value_t = 300)]
    requests: usize,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    with_release_build(async |services, folder| measure(services, folder, &args).await).await
}

async fn measure(services: &mut Services, folder: &Path, args: &Args) -> Result<()> {
    let host = GitHost::start(services, folder, Cluster::bench()?).await?;
    let (mut servers, mut skipped) = (Vec::new(), Vec::new());
    if args.clones + args.fetches + args.pushes > 0 {
        for baseline in baselines::start(services, folder, &host).await? {
            match baseline {
                Ok(baseline) => servers.push(baseline),
                Err(reason) => skipped.push(reason),
            }
        }
    }
    let mut versions = vec![version("git", &["--version"])?];
    versions.extend(servers.iter().map(|baseline| baseline.version.clone()));
    let mut report = Report::new(TITLE, ABOUT, &versions)?;
    skipped.iter().try_for_each(|reason| report.skip(reason))?;
    if !servers.is_empty() {
        services.supervise(transfers::compare(&mut report, &host, folder, &servers, args)).await?;
    }
    if args.commits > 0 {
        browsing::measure(&mut report, services, &host, folder, args).await?;
    }
    report.finish(args)
}
