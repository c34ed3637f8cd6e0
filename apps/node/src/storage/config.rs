//! The configuration of the object storage.

use std::time::Duration;

use objects::{S3Config, StoreConfig};

/// The configuration of the object storage.
#[derive(Debug, Clone)]
pub struct StorageConfig {
    /// The store of the blobs.
    pub store: StoreConfig,
    /// The interval of reports on usage.
    pub report_interval: Duration,
    /// A get ends if its receiver takes no data for this time.
    pub receiver_timeout: Duration,
    /// The delays before the sweeps that find the blobs which killed processes left.
    pub sweep_delays: &'static [Duration],
}

impl StorageConfig {
    /// Returns a text that identifies the store. An index describes exactly one store.
    pub(super) fn address(&self) -> String {
        match &self.store {
            StoreConfig::Folder(folder) => format!("file://{}", folder.display()),
            StoreConfig::S3(S3Config { bucket, prefix, endpoint, .. }) => {
                format!("{} s3://{bucket}/{prefix}", endpoint.as_deref().unwrap_or_default())
            }
        }
    }
}
