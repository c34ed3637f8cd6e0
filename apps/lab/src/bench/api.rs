//! `bench`: the control API beside Postgres alone, beside a bare actix-web program, and beside itself with a hundred
//! thousand times as much to keep.

mod bare;
mod changes;
mod lab;
mod limit;
mod memory;
mod pgbench;
mod recorded;
mod scale;
mod seed;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum as _;
use xtask::postgres::Cluster;
use xtask::services::Services;

use super::machine::measured;
use super::report::Report;
use super::wrk::Wrk;
use lab::{Lab, Part};

pub use lab::Args;

const ABOUT: &str = "\
Written by `cargo xtask bench`. Release build; Postgres with `fsync` on; client, server and Postgres share the machine, over
loopback and a unix socket. Every ratio is of runs taken in turns; figures are medians of them, errors their sum.";

pub async fn run(args: Args) -> Result<ExitCode> {
    let wrk = Wrk::find()?;
    measured(async |services, folder| measure(services, folder, &args, &wrk).await).await
}

async fn measure(services: &mut Services, folder: &Path, args: &Args, wrk: &Wrk) -> Result<()> {
    let cluster = Cluster::bench()?;
    let lab =
        Lab { folder, bin: cluster.bin().to_owned(), log: cluster.log(), url: cluster.url("postgres"), args, wrk };
    services.postgres = Some(cluster);
    let mut report = Report::new("Benchmarks", ABOUT, &[&lab.bin.join("postgres"), Path::new("rustc")])?;
    for part in &args.parts {
        match part {
            Part::Limit => limit::compare(services, &lab, &mut report).await?,
            Part::Fixed => bare::compare(services, &lab, &mut report).await?,
            Part::Scale => scale::compare(services, &lab, &mut report).await?,
            Part::Memory => memory::measure(services, &lab, &mut report).await?,
        }
    }
    if args.parts.len() == Part::value_variants().len() { report.write("docs/benchmarks.md") } else { Ok(()) }
}
