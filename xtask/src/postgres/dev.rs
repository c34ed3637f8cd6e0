//! The development clusters: one for the control plane, one for the databases of projects.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::location::{self, Account};
use super::server::Server;
use super::temporary::stop_leftover;
use super::{Cluster, ClusterKind, binaries, database_url};
use crate::workspace;

/// The folders of the clusters of the control plane and of projects.
const CONTROL_PLANE: &str = "pg";
const PROJECTS: &str = "projects-pg";

impl Cluster {
    /// Starts the development cluster, or adopts it if it is running. Callers must not run concurrently.
    pub fn dev() -> Result<Self> {
        Self::start_dev(CONTROL_PLANE, None)
    }

    /// Starts the development cluster for the databases of projects, or adopts it if it is running. Callers must not
    /// run concurrently.
    pub fn dev_projects(listen: SocketAddr) -> Result<Self> {
        Self::start_dev(PROJECTS, Some(listen))
    }

    fn start_dev(name: &str, listen: Option<SocketAddr>) -> Result<Self> {
        let account = Account::find()?;
        let home = home(name, account)?;
        location::private_folder(&home, account)?;
        Self::start(ClusterKind::Dev, binaries::find(account)?, account, home, listen, None)
    }

    /// Returns the URL of a database in the development cluster, which another process runs.
    pub fn dev_url(database: &str) -> Result<String> {
        let checkout = workspace::root()?;
        let account = Account::find()?;
        let sockets = if checkout.join(".svc/dev").is_dir() {
            find_running(&home(CONTROL_PLANE, account)?, account)?
        } else {
            None
        };
        let sockets = sockets.with_context(|| {
            let checkout = checkout.display();
            format!(
                "no development database is running for {checkout}: start `cargo xtask dev`, without SVC_DATABASE_URL"
            )
        })?;
        Ok(database_url(&sockets, location::PORT, database))
    }

    /// Stops the development clusters and deletes their data.
    pub fn remove_dev() -> Result<()> {
        let account = Account::find()?;
        for name in [CONTROL_PLANE, PROJECTS] {
            let home = home(name, account)?;
            if home.exists() {
                stop_leftover(&home, account)?;
                fs::remove_dir_all(&home)?;
            }
        }
        Ok(())
    }
}

fn home(name: &str, account: Option<Account>) -> Result<PathBuf> {
    Ok(location::state_folder("dev", account)?.join(name))
}

/// Returns the socket folder of the cluster in `home`, if its server is ready.
fn find_running(home: &Path, account: Option<Account>) -> Result<Option<PathBuf>> {
    let data = home.join("data");
    if !data.is_dir() {
        return Ok(None);
    }
    let sockets = location::socket_folder(home, account)?;
    Ok(Server::find(&data, &sockets).map(|_| sockets))
}
