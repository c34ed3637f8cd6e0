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
use crate::git_host::GitHost;

#[derive(clap::Args)]
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
    let mut host = GitHost::start(services, folder, Cluster::bench()?).await?;
    if args.clones + args.fetches + args.pushes > 0 {
        let servers = baselines::start(services, folder, &host).await?;
        services.supervise(transfers::compare(&host, folder, &servers, args)).await?;
    }
    if args.commits > 0 {
        browsing::measure(services, &mut host, folder, args).await?;
    }
    Ok(())
}
