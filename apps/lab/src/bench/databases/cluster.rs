//! The Postgres cluster of a node, with the databases of projects.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;
use xtask::postgres::Cluster;
use xtask::services::Services;

use testkit::reserved_address;

/// A running cluster. It ends with the services.
pub struct ProjectCluster {
    /// The address for clients with a password.
    pub listen: SocketAddr,
    /// The URL of the superuser.
    pub url: String,
    /// The folders of the server's programs, and of the clients.
    programs: [PathBuf; 2],
    pub backups: PathBuf,
}

impl ProjectCluster {
    /// Starts an empty, durable cluster.
    pub fn start(services: &mut Services, folder: &Path) -> Result<Self> {
        let listen = reserved_address();
        let cluster = Cluster::bench_projects(listen)?;
        let programs = [cluster.bin().to_owned(), cluster.bin_with_clients(&[])?];
        let url = cluster.url("postgres");
        services.projects_postgres = Some(cluster);
        Ok(Self { listen, url, programs, backups: folder.join("backups") })
    }

    /// Returns the settings of a node with this cluster.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let [_, clients] = &self.programs;
        vec![
            ("SVC_NODE_DATABASE_URL", self.url.clone()),
            ("SVC_NODE_DATABASE_ADDRESS", self.listen.to_string()),
            ("SVC_NODE_DATABASE_SSLMODE", "disable".to_owned()),
            ("SVC_NODE_PG_BIN", clients.display().to_string()),
            ("SVC_NODE_BACKUPS", format!("file://{}", self.backups.display())),
        ]
    }

    /// Returns the path of a program of Postgres.
    pub fn program(&self, name: &str) -> Result<PathBuf> {
        let found = self.programs.iter().map(|folder| folder.join(name)).find(|program| program.is_file());
        found.with_context(|| format!("this Postgres installation has no {name} (Debian: postgresql-contrib)"))
    }

    /// Runs a program of Postgres as the superuser, and returns its output.
    pub async fn run(&self, name: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(self.program(name)?);
        let command = command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let output = command.output().await?;
        ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        Ok(String::from_utf8(output.stdout)?)
    }
}
