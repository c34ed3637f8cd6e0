//! Who is signed in where: `$XDG_CONFIG_HOME/svc/credentials.json`, which only its owner can read.

use std::collections::BTreeMap;
use std::path::PathBuf;

use client::Secret;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::file;

#[derive(Default, Serialize, Deserialize)]
pub struct Config {
    /// The API that was signed in at last.
    pub current: Option<String>,
    /// By the API's address.
    pub credentials: BTreeMap<String, Secret>,
}

impl Config {
    pub fn read() -> Result<Self, Failure> {
        Ok(file::read(&path()?)?.unwrap_or_default())
    }

    pub fn write(&self) -> Result<(), Failure> {
        file::write(&path()?, self, 0o600)
    }
}

/// By the XDG base directory specification: a path that is not absolute counts as none.
fn path() -> Result<PathBuf, Failure> {
    let given = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = given("XDG_CONFIG_HOME").or_else(|| Some(given("HOME")?.join(".config")));
    let folder = folder.ok_or_else(|| Failure::Usage("neither XDG_CONFIG_HOME nor HOME names a folder".to_owned()))?;
    Ok(folder.join("svc/credentials.json"))
}
