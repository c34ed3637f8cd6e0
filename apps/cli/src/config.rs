//! The stored credentials: `$XDG_CONFIG_HOME/svc/credentials.json`, readable only by its owner.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use client::Secret;
use serde::{Deserialize, Serialize};

use crate::error::CliError;
use crate::file;

#[derive(Default, Serialize, Deserialize)]
pub struct Config {
    /// The API of the last sign-in.
    pub current: Option<String>,
    /// Credentials, keyed by the base URL of the API.
    pub credentials: BTreeMap<String, Secret>,
    /// How to get the next access token of a device flow, keyed by the base URL of the API.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub grants: BTreeMap<String, StoredGrant>,
    /// Tokens for git, keyed by the base URL of the API. Each credential that creates tokens has one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub git_tokens: BTreeMap<String, Vec<GitToken>>,
}

/// A token that `svc git` created for git.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GitToken {
    /// The scheme and the host that the token is for.
    pub url: String,
    pub token: Secret,
    /// The id of the token.
    pub id: String,
    /// The SHA-256 digest of the credential that created the token, in base64.
    pub creator: String,
    /// When the token expires, in seconds since 1970.
    pub expires_at: u64,
}

/// A grant of the device flow. Its access token is in [`Config::credentials`].
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredGrant {
    pub client_id: String,
    pub refresh_token: Secret,
    /// When the access token expires, in seconds since 1970.
    pub expires_at: u64,
}

/// A lock of the file against other `svc` processes, until it is dropped.
pub struct Lock(#[expect(dead_code, reason = "the lock ends with the file")] File);

impl Config {
    pub fn read() -> Result<Self, CliError> {
        Ok(file::read(&path()?)?.unwrap_or_default())
    }

    /// Waits until no other `svc` process holds the lock. A refresh token can be used only once, so its use and the
    /// storage of its successor must not overlap with those of another process.
    pub fn lock() -> Result<Lock, CliError> {
        let path = path()?.with_extension("lock");
        if let Some(folder) = path.parent() {
            file::create_private_folder(folder).map_err(CliError::file(folder))?;
        }
        let lock = || {
            let file = File::create(&path)?;
            file.lock().map(|()| Lock(file))
        };
        lock().map_err(CliError::file(&path))
    }

    pub fn write(&self) -> Result<(), CliError> {
        file::write(&path()?, self, 0o600)
    }
}

/// Returns the path of the file. Relative paths are ignored (XDG base directory specification).
fn path() -> Result<PathBuf, CliError> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")));
    let folder = folder.ok_or_else(|| CliError::Usage("set HOME or XDG_CONFIG_HOME to an absolute path".to_owned()))?;
    Ok(folder.join("svc/credentials.json"))
}
