//! The object stores of a node.

use std::time::Duration;

use objects::{BucketOptions, CredentialSettings, StoreAddress, StoreConfig, Timeouts};
use reqwest::Url;
use settings::{Error, Interval, Secret, Setting, Settings};

use super::{
    BACKUP_INTERVAL, BACKUPS, BACKUPS_ACCESS_KEY_ID, BACKUPS_ENDPOINT_URL, BACKUPS_REGION, BACKUPS_SECRET_ACCESS_KEY,
    BACKUPS_SESSION_TOKEN, DIR, STORAGE, STORAGE_ACCESS_KEY_ID, STORAGE_ENDPOINT_URL, STORAGE_REGION,
    STORAGE_REPORT_INTERVAL, STORAGE_SECRET_ACCESS_KEY, STORAGE_SESSION_TOKEN, base_address,
};
use crate::database::backup::config::BackupConfig;
use crate::storage::config::StorageConfig;

/// Both timeouts are shorter than the timeout of an operation on an object (`STORE_TIMEOUT`). A part of an upload must
/// be sent within the read timeout.
const STORAGE_TIMEOUTS: Timeouts = Timeouts { read: Duration::from_secs(18), retry: Duration::from_secs(15) };
/// A visitor who pauses a download for longer must resume it with a range request.
const STORAGE_RECEIVER_TIMEOUT: Duration = Duration::from_secs(60);
/// The store may receive or execute the last requests of a killed process after the first sweep. S3 needs up to minutes
/// to assemble an object of several parts.
const STORAGE_SWEEP_DELAYS: [Duration; 3] = [Duration::ZERO, Duration::from_secs(15), Duration::from_secs(600)];
/// A backup may wait for a slow store. A failed backup is repeated.
const BACKUP_TIMEOUTS: Timeouts = Timeouts { read: Duration::from_secs(60), retry: Duration::from_secs(60) };

pub(super) fn storage(settings: &Settings) -> Result<Option<StorageConfig>, Error> {
    let Interval(report_interval) = settings.get(&STORAGE_REPORT_INTERVAL)?;
    let store = StoreSettings {
        address: &STORAGE,
        access_key_id: &STORAGE_ACCESS_KEY_ID,
        secret_access_key: &STORAGE_SECRET_ACCESS_KEY,
        session_token: &STORAGE_SESSION_TOKEN,
        region: &STORAGE_REGION,
        endpoint_url: &STORAGE_ENDPOINT_URL,
        timeouts: STORAGE_TIMEOUTS,
    };
    let (receiver_timeout, sweep_delays) = (STORAGE_RECEIVER_TIMEOUT, &STORAGE_SWEEP_DELAYS);
    Ok(store.read(settings)?.map(|store| StorageConfig { store, report_interval, receiver_timeout, sweep_delays }))
}

pub(super) fn backups(settings: &Settings) -> Result<Option<BackupConfig>, Error> {
    let Interval(interval) = settings.get(&BACKUP_INTERVAL)?;
    let store = StoreSettings {
        address: &BACKUPS,
        access_key_id: &BACKUPS_ACCESS_KEY_ID,
        secret_access_key: &BACKUPS_SECRET_ACCESS_KEY,
        session_token: &BACKUPS_SESSION_TOKEN,
        region: &BACKUPS_REGION,
        endpoint_url: &BACKUPS_ENDPOINT_URL,
        timeouts: BACKUP_TIMEOUTS,
    };
    let spool = settings.get(&DIR)?.join("restores");
    Ok(store.read(settings)?.map(|store| BackupConfig { store, interval, spool }))
}

/// The settings of an object store. Their names begin with the name of the first one, the store's address.
struct StoreSettings {
    address: &'static Setting<Option<StoreAddress>>,
    access_key_id: &'static Setting<Option<String>>,
    secret_access_key: &'static Setting<Option<Secret>>,
    session_token: &'static Setting<Option<Secret>>,
    region: &'static Setting<String>,
    endpoint_url: &'static Setting<Option<Url>>,
    timeouts: Timeouts,
}

impl StoreSettings {
    /// Parses every setting even without an address, so that a malformed value is always reported.
    fn read(&self, settings: &Settings) -> Result<Option<StoreConfig>, Error> {
        let (region, endpoint) = (settings.get(self.region)?, settings.opt(self.endpoint_url)?);
        let endpoint = endpoint.map(|url| base_address(self.endpoint_url, &url)).transpose()?;
        let Some(address) = settings.opt(self.address)? else { return Ok(None) };
        let credentials = CredentialSettings {
            store: self.address.row().name,
            access_key_id: self.access_key_id,
            secret_access_key: self.secret_access_key,
        };
        let options = BucketOptions {
            region,
            endpoint,
            session_token: settings.opt(self.session_token)?,
            timeouts: self.timeouts,
        };
        credentials.store(settings, address, || Ok(options)).map(Some)
    }
}
