//! `bench databases`: databases of projects, from the API to Postgres. A server, a node and a Postgres cluster for the
//! databases run on this machine, from release builds.

mod backup;
mod cluster;
mod database;
mod enabling;
mod idle;
mod queries;
mod revocation;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use xtask::services::Services;
use xtask::workerd;

use super::machine::with_release_build;
use super::platform::Platform;
use super::report::{Report, version};
use super::wrk::{Load, Wrk};

pub use cluster::ProjectCluster;
pub use database::Database;
pub use idle::add as add_idle;

const TITLE: &str = "Databases of projects";
const ABOUT: &str = "\
Written by `cargo xtask bench databases`. The node manages the databases in a durable Postgres on the same machine.
Workers reach them with `env.db`, and clients of Postgres directly.";

#[derive(clap::Args, PartialEq)]
pub struct Args {
    /// The duration of each run of wrk and pgbench; 0 skips this part
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// The number of connections of wrk and pgbench
    #[arg(long, default_value_t = 8)]
    connections: u32,
    /// The number of databases that are enabled one after the other; 0 skips this part
    #[arg(long, default_value_t = 20)]
    sequential: usize,
    /// The number of databases that are enabled at the same time; 0 skips this part
    #[arg(long, default_value_t = 200)]
    concurrent: usize,
    /// The number of tokens that are revoked; 0 skips this part
    #[arg(long, default_value_t = 20)]
    revocations: usize,
    /// The approximate size of the dump in MB; 0 skips this part
    #[arg(long, default_value_t = 57)]
    dump_megabytes: u32,
    /// The number of idle databases; 0 skips this part
    #[arg(long, default_value_t = 500)]
    idle: usize,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    let wrk = Wrk::find()?;
    with_release_build(async |services, folder| measure(services, folder, &args, &wrk).await).await
}

async fn measure(services: &mut Services, folder: &Path, args: &Args, wrk: &Wrk) -> Result<()> {
    let workerd = workerd::find().context("this benchmark needs workerd")?;
    let cluster = ProjectCluster::start(services, folder)?;
    let versions = [version(cluster.program("postgres")?, &["--version"])?, version(&workerd, &["--version"])?];
    let mut settings = cluster.settings();
    settings.push(("SVC_NODE_WORKERD", workerd.display().to_string()));
    let platform = Platform::start(services, folder, settings).await?;
    let mut report = Report::new(TITLE, ABOUT, &versions)?;
    // The idle node is measured before it has databases.
    let before = if args.idle > 0 { Some(services.supervise(idle::Cost::measure(&platform)).await?) } else { None };
    if args.seconds > 0 {
        let load = Load { wrk, seconds: args.seconds, connections: args.connections };
        services.supervise(queries::compare(&mut report, &platform, &cluster, folder, &load)).await?;
    }
    if args.sequential > 0 {
        services.supervise(enabling::compare(&mut report, &platform, &cluster, args.sequential)).await?;
    }
    if args.concurrent > 0 {
        services.supervise(enabling::enable_together(&mut report, &platform, args.concurrent)).await?;
    }
    if args.revocations > 0 {
        services.supervise(revocation::measure(&mut report, &platform, args.revocations)).await?;
    }
    if args.dump_megabytes > 0 {
        services.supervise(backup::measure(&mut report, &platform, args.dump_megabytes)).await?;
    }
    if let Some(before) = before {
        services.supervise(idle::measure(&mut report, &platform, args.idle, &before)).await?;
    }
    report.finish(args)
}
