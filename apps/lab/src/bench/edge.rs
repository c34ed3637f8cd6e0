//! `bench edge`: a real server, a real node and Debian's nginx, all on this machine and all of a release build.

mod deploys;
mod nginx;
mod platform;
mod requests;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use xtask::services::Services;

use super::machine::measured;
use super::wrk;
use platform::Platform;

#[derive(clap::Args)]
pub struct Args {
    /// How many static projects the node serves in the end; 0 leaves that part out
    #[arg(long, default_value_t = 1000)]
    projects: usize,
    /// How long each run of wrk takes; 0 leaves that part out
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// How many connections wrk holds open
    #[arg(long, default_value_t = 64)]
    connections: u32,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let programs = requests::Programs::find()?;
    measured(async |services, folder| measure(services, folder, &args, &programs).await).await
}

async fn measure(services: &mut Services, folder: &Path, args: &Args, programs: &requests::Programs) -> Result<()> {
    let platform = Platform::start(services, folder).await?;
    if args.seconds > 0 {
        let nginx = nginx::start(services, folder, &programs.nginx).await?;
        let load = wrk::Load { wrk: &programs.wrk, seconds: args.seconds, connections: args.connections };
        services.during(requests::compare(&platform, nginx, &load)).await?;
    }
    if args.projects > 0 {
        services.during(deploys::measure(&platform, args.projects)).await?;
    }
    Ok(())
}
