//! Which project a folder belongs to: `.svc/project.json`, in the folder or above it. It holds no secret.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::file;

const PLACE: &str = ".svc/project.json";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Link {
    /// Address of the API.
    pub api: String,
    pub org: String,
    pub project: String,
}

impl Link {
    /// The nearest one, seen from a folder. In somebody's home it is not looked for above that: what lies there, others
    /// may have put.
    pub fn find(folder: &Path) -> Result<Option<Self>, Failure> {
        let folder = std::path::absolute(folder).map_err(Failure::file(folder))?;
        let home = std::env::var_os("HOME").map(PathBuf::from);
        for above in folder.ancestors() {
            if let Some(link) = file::read(&above.join(PLACE))? {
                return Ok(Some(link));
            }
            if home.as_deref() == Some(above) {
                break;
            }
        }
        Ok(None)
    }

    pub fn write(&self, folder: &Path) -> Result<PathBuf, Failure> {
        let path = folder.join(PLACE);
        file::write(&path, self, 0o644)?;
        Ok(path)
    }
}
