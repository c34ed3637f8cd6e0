//! `bench`: compares the control API with plain Postgres, with a bare actix-web server, and with itself on a database
//! with 100,000 times as many projects.

mod bare_actix;
mod changes;
mod environment;
mod memory;
pub mod pgbench;
mod postgres_limit;
mod recorder;
mod scale;
mod seed;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use xtask::postgres::Cluster;
use xtask::services::Services;

use super::machine::with_release_build;
use super::report::{Report, version};
use super::wrk::Wrk;
use environment::{Environment, Part};

pub use environment::Args;

const TITLE: &str = "Control API";
const ABOUT: &str = "\
Written by `cargo xtask bench`. The server uses a durable Postgres over a unix socket, writes only warnings to its log,
and serves clients over loopback.";

pub async fn run(args: Args) -> Result<ExitCode> {
    let wrk = Wrk::find()?;
    with_release_build(async |services, folder| measure(services, folder, &args, &wrk).await).await
}

async fn measure(services: &mut Services, folder: &Path, args: &Args, wrk: &Wrk) -> Result<()> {
    let cluster = Cluster::bench()?;
    let lab = Environment {
        folder,
        bin: cluster.bin().to_owned(),
        log: cluster.log(),
        url: cluster.url("postgres"),
        args,
        wrk,
    };
    services.postgres = Some(cluster);
    let versions = [version(lab.bin.join("postgres"), &["--version"])?, version("rustc", &["--version"])?];
    let mut report = Report::new(TITLE, ABOUT, &versions)?;
    for part in &args.parts {
        match part {
            Part::Limit => postgres_limit::compare(services, &lab, &mut report).await?,
            Part::Fixed => bare_actix::compare(services, &lab, &mut report).await?,
            Part::Scale => scale::compare(services, &lab, &mut report).await?,
            Part::Memory => memory::measure(services, &lab, &mut report).await?,
        }
    }
    report.finish(args)
}
