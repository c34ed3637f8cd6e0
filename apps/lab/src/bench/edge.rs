//! `bench edge`: compares a node with Debian's nginx. A server, a node and nginx run on this machine, from release
//! builds.

pub mod deploys;
mod nginx;
mod requests;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use xtask::services::Services;

use super::machine::with_release_build;
use super::platform::Platform;
use super::report::{Report, version};
use super::wrk;

pub use requests::page;

const TITLE: &str = "Static sites";
const ABOUT: &str = "\
Written by `cargo xtask bench edge`. A node and Debian's nginx, which has as many workers as the node and is tuned for
static files: it caches open files and, like the node, serves files that are already compressed with gzip.";

#[derive(clap::Args, PartialEq)]
pub struct Args {
    /// The number of static projects on the node; 0 skips this part
    #[arg(long, default_value_t = 1000)]
    projects: usize,
    /// The duration of each wrk run; 0 skips this part
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// The number of connections of wrk
    #[arg(long, default_value_t = 64)]
    connections: u32,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let programs = requests::Programs::find()?;
    with_release_build(async |services, folder| measure(services, folder, &args, &programs).await).await
}

async fn measure(services: &mut Services, folder: &Path, args: &Args, programs: &requests::Programs) -> Result<()> {
    let mut report = Report::new(TITLE, ABOUT, &[version(&programs.nginx, &["-v"])?])?;
    let platform = Platform::start(services, folder, Vec::new()).await?;
    if args.seconds > 0 {
        let nginx = nginx::start(services, folder, &programs.nginx).await?;
        let load = wrk::Load { wrk: &programs.wrk, seconds: args.seconds, connections: args.connections };
        services.supervise(requests::compare(&mut report, &platform, nginx, &load)).await?;
    }
    if args.projects > 0 {
        services.supervise(deploys::measure(&mut report, &platform, args.projects)).await?;
    }
    report.finish(args)
}
