//! The configuration of the databases.

use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::{DatabaseServer, NodeInfo};

use super::backup::config::BackupConfig;
use super::server::Server;
use crate::worker::available_memory;

/// The configuration of the databases. `Debug` shows no credentials.
#[derive(Debug, Clone)]
pub struct DatabaseConfig {
    /// The Postgres cluster, with the login of its superuser.
    pub server: Server,
    /// The cluster as clients reach it. The node announces it to the control plane.
    pub announced: DatabaseServer,
    /// The client programs of Postgres.
    pub programs: Programs,
    /// The configuration of the backups, if the node has a store for them.
    pub backups: Option<BackupConfig>,
}

/// The client programs of Postgres.
#[derive(Debug, Clone)]
pub struct Programs {
    pub pg_dump: PathBuf,
    pub pg_restore: PathBuf,
    /// The program `svc-node`, which starts the client programs so that they end with the node.
    pub launcher: PathBuf,
    pub limits: ProgramLimits,
}

/// The limits of the client programs. A dump that reaches one of the first two limits fails, and is not repeated for the
/// same operation.
#[derive(Debug, Clone, Copy)]
pub struct ProgramLimits {
    /// The largest address space of a program. `pg_dump` holds a few hundred bytes for each object of a database.
    pub memory_bytes: u64,
    /// The longest time of a dump. A longer dump would keep one of the few permits from other databases.
    pub dump_time: Duration,
    /// The longest time of a short dump of the schedule, with its check. Long dumps run one at a time.
    pub short_dump_time: Duration,
    /// The longest time of a long dump, or of one of an operation, with its check, for each 5 GiB of the database's size
    /// limit.
    pub long_dump_time: Duration,
    /// The longest time of an export, with its check. After the same time, the control plane ends the export.
    pub export_time: Duration,
    /// The shortest time for which the dump of an operation is repeated after the same error of Postgres.
    pub repeated_error_time: Duration,
}

impl Default for ProgramLimits {
    fn default() -> Self {
        Self {
            // At most six programs run at the same time: four dumps and two restores.
            memory_bytes: (available_memory() / 8).clamp(256 << 20, 2 << 30),
            dump_time: Duration::from_secs(6 * 60 * 60),
            short_dump_time: Duration::from_secs(5 * 60),
            long_dump_time: Duration::from_secs(60 * 60),
            export_time: Duration::from_secs(10 * 60),
            repeated_error_time: Duration::from_secs(10 * 60),
        }
    }
}

impl Programs {
    /// Returns the programs in a folder. The launcher is the running executable, even if the file on disk was replaced.
    pub fn of(folder: &Path) -> Self {
        let [pg_dump, pg_restore] = ["pg_dump", "pg_restore"].map(|name| folder.join(name));
        let launcher = PathBuf::from("/proc/self/exe");
        Self { pg_dump, pg_restore, launcher, limits: ProgramLimits::default() }
    }
}

impl DatabaseConfig {
    /// Returns the announcement of a node with this configuration.
    pub fn node_info(config: Option<&Self>) -> NodeInfo {
        NodeInfo { database: config.map(|config| config.announced.clone()) }
    }
}
