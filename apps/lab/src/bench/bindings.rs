//! `bench bindings`: secrets and object storage, from the API to worker code. A server, a node and an S3 server run on
//! this machine, from release builds.

mod projects;
mod secrets;
mod storage;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use xtask::services::Services;
use xtask::workerd;

use super::machine::with_release_build;
use super::platform::Platform;
use super::report::{Report, version};
use super::wrk::{Load, Wrk};

pub use storage::S3;

const TITLE: &str = "Secrets and object storage";
const ABOUT: &str = "\
Written by `cargo xtask bench bindings`. Workers of a node read secrets and objects. The S3 server, `s3s-fs`, stores the
objects in a folder and runs in the process of the benchmark.";

#[derive(clap::Args, PartialEq)]
pub struct Args {
    /// The number of changes of a secret; 0 skips this part
    #[arg(long, default_value_t = 100)]
    changes: usize,
    /// The duration of each wrk run; 0 skips this part
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// The number of connections of wrk
    #[arg(long, default_value_t = 64)]
    connections: u32,
    /// The number of projects with ten secrets each; 0 skips this part
    #[arg(long, default_value_t = 1000)]
    projects: usize,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let wrk = Wrk::find()?;
    with_release_build(async |services, folder| measure(services, folder, &args, &wrk).await).await
}

async fn measure(services: &mut Services, folder: &Path, args: &Args, wrk: &Wrk) -> Result<()> {
    let workerd = workerd::find().context("this benchmark needs workerd")?;
    let mut report = Report::new(TITLE, ABOUT, &[version(&workerd, &["--version"])?])?;
    let s3 = S3::start(folder).await?;
    let mut settings = vec![("SVC_NODE_WORKERD", workerd.display().to_string())];
    settings.extend(s3.settings(s3.0.address()));
    let platform = Platform::start(services, folder, settings).await?;
    if args.changes > 0 {
        services.supervise(secrets::measure(&mut report, &platform, args.changes)).await?;
    }
    if args.seconds > 0 {
        let load = Load { wrk, seconds: args.seconds, connections: args.connections };
        services.supervise(storage::compare(&mut report, &platform, &s3, &load)).await?;
    }
    if args.projects > 0 {
        projects::measure(&mut report, &platform, services, args.projects).await?;
    }
    report.finish(args)
}
