//! `bench`: the control API beside Postgres alone, beside a bare actix-web program, and beside itself with a hundred
//! thousand times as much to keep.

mod bare;
mod changes;
mod limit;
mod memory;
mod pgbench;
mod recorded;
mod scale;
mod seed;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;
use diesel_async::SimpleAsyncConnection as _;
use kernel::Secret;
use store::migrations::{self, Migrator};
use xtask::postgres::Cluster;
use xtask::services::Services;

use super::measured;
use super::report::Report;
use super::server::Server;
use super::wrk::{Load, Wrk};

#[derive(clap::Args)]
#[group(id = "api")]
pub struct Args {
    /// How long each run takes
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Runs of each, in turns
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Connections to Postgres, the server's and pgbench's
    #[arg(long, default_value_t = 8)]
    connections: u32,
    /// Projects of the large database
    #[arg(long, default_value_t = 1_000_000)]
    projects: u32,
    /// What is measured; the page is written when that is everything
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["limit", "fixed", "scale", "memory"])]
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Beside Postgres alone
    Limit,
    /// Beside a bare actix-web program
    Fixed,
    /// Beside a small database
    Scale,
    /// Memory and start
    Memory,
}

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

/// Where it is measured, and how.
struct Lab<'a> {
    folder: &'a Path,
    /// The programs of Postgres.
    bin: PathBuf,
    /// What it logs.
    log: PathBuf,
    /// Of the database that is there from the beginning.
    url: String,
    args: &'a Args,
    wrk: &'a Wrk,
}

impl Lab<'_> {
    /// A migrated database of its own. Gives its address.
    async fn database(&self, name: &str) -> Result<String> {
        let mut connection = migrations::connect(Secret::new(self.url.clone())).await?;
        connection.batch_execute(&format!("CREATE DATABASE {name}")).await?;
        let url = self.url.strip_suffix("postgres").context("the address ends in another database")?;
        let url = format!("{url}{name}");
        Migrator::default().up(&mut migrations::connect(Secret::new(url.clone())).await?).await?;
        Ok(url)
    }

    /// A server on such a database.
    async fn server(&self, services: &mut Services, name: &str, url: String) -> Result<Server> {
        let folder = self.folder.join(name);
        fs::create_dir(&folder)?;
        let connections = [("SVC_DATABASE_CONNECTIONS", self.args.connections.to_string())];
        Server::start(services, &folder, url, &connections).await
    }

    /// Twice as many connections as there are to Postgres, so that those are what is busy.
    fn load(&self) -> Load<'_> {
        Load { wrk: self.wrk, seconds: self.args.seconds, connections: self.args.connections * 2 }
    }
}
