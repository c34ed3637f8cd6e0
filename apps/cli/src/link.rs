//! The link from a folder to a project: `.svc/project.json` in the folder or above it. It contains no secret.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::CliError;
use crate::file;

const LINK_PATH: &str = ".svc/project.json";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Link {
    /// Base URL of the API.
    pub api: String,
    pub org: String,
    pub project: String,
}

impl Link {
    /// Finds the nearest link, in the folder or above it. The search stops at the user's home, because other users may
    /// write above it.
    pub fn find(folder: &Path) -> Result<Option<Self>, CliError> {
        let folder = std::path::absolute(folder).map_err(CliError::file(folder))?;
        let home = std::env::var_os("HOME").map(PathBuf::from);
        for ancestor in folder.ancestors() {
            if let Some(link) = file::read(&ancestor.join(LINK_PATH))? {
                return Ok(Some(link));
            }
            if home.as_deref() == Some(ancestor) {
                break;
            }
        }
        Ok(None)
    }

    pub fn write(&self, folder: &Path) -> Result<PathBuf, CliError> {
        let path = folder.join(LINK_PATH);
        file::write(&path, self, 0o644)?;
        Ok(path)
    }
}
