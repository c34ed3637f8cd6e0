//! The configuration of a store from the settings of a process.

use settings::{Error, Secret, Setting, Settings};

use crate::{S3Config, StoreAddress, StoreConfig, Timeouts};

/// The settings with the credentials of a store. A bucket requires both; a folder ignores them.
pub struct CredentialSettings<'a> {
    /// The name of the setting with the store's address, for errors.
    pub store: &'static str,
    pub access_key_id: &'a Setting<Option<String>>,
    pub secret_access_key: &'a Setting<Option<Secret>>,
}

/// The properties of a bucket that its address does not contain.
pub struct BucketOptions {
    pub region: String,
    /// The URL of a server other than Amazon's.
    pub endpoint: Option<String>,
    pub session_token: Option<Secret>,
    pub timeouts: Timeouts,
}

impl CredentialSettings<'_> {
    /// Returns the configuration of the store at an address. Calls `options` only for a bucket.
    ///
    /// # Errors
    /// Returns an error if a credential of a bucket is missing, or the error of `options`.
    pub fn store(
        &self,
        settings: &Settings,
        address: StoreAddress,
        options: impl FnOnce() -> Result<BucketOptions, Error>,
    ) -> Result<StoreConfig, Error> {
        let (bucket, prefix) = match address {
            StoreAddress::Folder(folder) => return Ok(StoreConfig::Folder(folder)),
            StoreAddress::Bucket { bucket, prefix } => (bucket, prefix),
        };
        let required = format!("required if {} is an S3 bucket", self.store);
        let BucketOptions { region, endpoint, session_token, timeouts } = options()?;
        let (access_key_id, secret) = (settings.opt(self.access_key_id)?, settings.opt(self.secret_access_key)?);
        Ok(StoreConfig::S3(S3Config {
            bucket,
            prefix,
            region,
            endpoint,
            access_key_id: access_key_id.ok_or_else(|| self.access_key_id.malformed(&required))?,
            secret_access_key: secret.ok_or_else(|| self.secret_access_key.malformed(&required))?,
            session_token,
            timeouts,
        }))
    }
}
