//! The stored credentials: `$XDG_CONFIG_HOME/svc/credentials.json`, readable only by its owner.

use std::collections::BTreeMap;
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
}

impl Config {
    pub fn read() -> Result<Self, CliError> {
        Ok(file::read(&path()?)?.unwrap_or_default())
    }

    pub fn write(&self) -> Result<(), CliError> {
        file::write(&path()?, self, 0o600)
    }
}

/// The path of the file. Relative paths are ignored (XDG base directory specification).
fn path() -> Result<PathBuf, CliError> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")));
    let folder = folder.ok_or_else(|| CliError::Usage("set HOME or XDG_CONFIG_HOME to an absolute path".to_owned()))?;
    Ok(folder.join("svc/credentials.json"))
}
