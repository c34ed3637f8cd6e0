//! The options of the API benchmarks, and the databases and servers that they measure.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use diesel_async::SimpleAsyncConnection as _;
use kernel::Secret;
use store::migrations::{self, Migrator};
use xtask::services::Services;

use crate::bench::server::Server;
use crate::bench::wrk::{Load, Wrk};

#[derive(clap::Args)]
#[group(id = "api")]
pub struct Args {
    /// How long each run takes
    #[arg(long, default_value_t = 5)]
    pub(super) seconds: u32,
    /// Runs of each, in turns
    #[arg(long, default_value_t = 3)]
    pub(super) rounds: usize,
    /// Connections to Postgres, the server's and pgbench's
    #[arg(long, default_value_t = 8)]
    pub(super) connections: u32,
    /// Projects of the large database
    #[arg(long, default_value_t = 1_000_000)]
    pub(super) projects: u32,
    /// The parts to measure; the page is written after a run of all parts
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["limit", "fixed", "scale", "memory"])]
    pub(super) parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Compare with Postgres
    Limit,
    /// Compare with a bare actix-web program
    Fixed,
    /// Compare with a small database
    Scale,
    /// Memory and start
    Memory,
}

/// The environment of a run.
pub struct Lab<'a> {
    pub(super) folder: &'a Path,
    /// The programs of Postgres.
    pub(super) bin: PathBuf,
    /// The log of Postgres.
    pub(super) log: PathBuf,
    /// The address of the initial database.
    pub(super) url: String,
    pub(super) args: &'a Args,
    pub(super) wrk: &'a Wrk,
}

impl Lab<'_> {
    /// Creates a migrated database and returns its address.
    pub async fn database(&self, name: &str) -> Result<String> {
        let mut connection = migrations::connect(Secret::new(self.url.clone())).await?;
        connection.batch_execute(&format!("CREATE DATABASE {name}")).await?;
        let url = self.url.strip_suffix("postgres").context("the address ends in another database")?;
        let url = format!("{url}{name}");
        Migrator::default().up(&mut migrations::connect(Secret::new(url.clone())).await?).await?;
        Ok(url)
    }

    /// A server on such a database.
    pub async fn server(&self, services: &mut Services, name: &str, url: String) -> Result<Server> {
        let folder = self.folder.join(name);
        fs::create_dir(&folder)?;
        let connections = [("SVC_DATABASE_CONNECTIONS", self.args.connections.to_string())];
        Server::start(services, &folder, url, &connections).await
    }

    /// Uses twice as many connections as the server has to Postgres, so that Postgres is the bottleneck.
    pub fn load(&self) -> Load<'_> {
        Load { wrk: self.wrk, seconds: self.args.seconds, connections: self.args.connections * 2 }
    }
}
