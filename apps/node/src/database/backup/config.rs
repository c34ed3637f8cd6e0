//! The configuration of backups.

use std::path::PathBuf;
use std::time::Duration;

use objects::StoreConfig;

/// The configuration of backups.
#[derive(Debug, Clone)]
pub struct BackupConfig {
    /// The store of the generations and the exports.
    pub store: StoreConfig,
    /// The interval of scheduled backups.
    pub interval: Duration,
    /// The folder for the archives that are being restored. The node deletes its content at the start.
    pub spool: PathBuf,
}
