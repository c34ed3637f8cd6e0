//! The options of the API benchmarks, and their databases and servers.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use diesel_async::SimpleAsyncConnection as _;
use kernel::Secret;
use store::migrations::{self, Migrator};
use xtask::services::Services;

use crate::bench::server::Server;
use crate::bench::wrk::{Load, Wrk};

/// The connections to Postgres that a server opens by default.
pub const CONNECTIONS: u32 = 16;

#[derive(clap::Args, PartialEq)]
#[group(id = "api")]
pub struct Args {
    /// The duration of each run
    #[arg(long, default_value_t = 5)]
    pub(super) seconds: u32,
    /// The number of runs per side, alternating
    #[arg(long, default_value_t = 3)]
    pub(super) rounds: usize,
    /// Projects in the large database
    #[arg(long, default_value_t = 1_000_000)]
    pub(super) projects: u32,
    /// The parts to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["limit", "fixed", "scale", "memory"])]
    pub(super) parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Compare with pgbench
    Limit,
    /// Compare static responses with a bare actix-web server
    Fixed,
    /// Compare a large database with a small one
    Scale,
    /// Memory and startup time
    Memory,
}

/// The environment of a benchmark run.
pub struct Environment<'a> {
    pub(super) folder: &'a Path,
    /// The folder with the Postgres programs.
    pub(super) bin: PathBuf,
    /// The Postgres log.
    pub(super) log: PathBuf,
    /// The URL of the initial database.
    pub(super) url: String,
    pub(super) args: &'a Args,
    pub(super) wrk: &'a Wrk,
}

impl Environment<'_> {
    /// Creates a migrated database and returns its URL.
    pub async fn database(&self, name: &str) -> Result<String> {
        let mut connection = migrations::connect(Secret::new(self.url.clone())).await?;
        connection.batch_execute(&format!("CREATE DATABASE {name}")).await?;
        let url = self.url.strip_suffix("postgres").context("the URL names another database")?;
        let url = format!("{url}{name}");
        Migrator::default().up(&mut migrations::connect(Secret::new(url.clone())).await?).await?;
        Ok(url)
    }

    /// Starts a server on a migrated database, with this number of connections to Postgres.
    pub async fn server(&self, services: &mut Services, name: &str, url: String, connections: u32) -> Result<Server> {
        let folder = self.folder.join(name);
        fs::create_dir(&folder)?;
        let connections = [("SVC_DATABASE_CONNECTIONS", connections.to_string())];
        Server::start(services, &folder, url, &connections).await
    }

    /// Returns a load with twice as many connections as the server has to Postgres, so that Postgres is the bottleneck.
    pub fn load(&self, connections: u32) -> Load<'_> {
        Load { wrk: self.wrk, seconds: self.args.seconds, connections: connections * 2 }
    }
}
