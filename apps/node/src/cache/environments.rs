//! The saved environments: one sealed file for each project.
//!
//! The files are not synced, because the control plane has them too. After a power failure, a file may be missing,
//! damaged or older than the desired state. A missing or damaged file is noticed when it is opened.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use daemon::if_exists;

use super::{Cache, remove};
use crate::desired::Placements;
use crate::digest::Digest;
use crate::environment::Environment;

impl Cache {
    /// Returns the saved environments of the projects with a site. A project is missing in the result if its file is
    /// missing, damaged or sealed with another credential of the node. Removes the files of other projects.
    pub fn environments(&self, placements: &Placements) -> io::Result<Vec<(String, Environment)>> {
        let (mut found, mut files) = (Vec::new(), HashSet::new());
        for (project, _) in placements.iter() {
            files.insert(self.environment_path(project));
            match self.environment(project)? {
                Some(environment) => found.push((project.clone(), environment)),
                None => tracing::warn!(project, "no usable saved environment; waiting for the control plane"),
            }
        }
        for file in fs::read_dir(self.dir.join("environments"))? {
            let path = file?.path();
            if !files.contains(&path) {
                remove(&path)?;
            }
        }
        Ok(found)
    }

    /// Saves the environment of a project for the next start, or removes it. If saving fails, the previous file is
    /// removed too, because it may contain revoked values.
    pub fn save_environment(&self, project: &str, environment: Option<&Environment>) -> io::Result<()> {
        let path = self.environment_path(project);
        let Some(environment) = environment else { return remove(&path) };
        self.write_environment(&path, project, environment).or_else(|error| remove(&path).and(Err(error)))
    }

    fn write_environment(&self, path: &Path, project: &str, environment: &Environment) -> io::Result<()> {
        let sealed = self.key.seal(project, serde_json::to_vec(environment)?)?;
        self.replace_unsynced(path, &sealed)
    }

    fn environment(&self, project: &str) -> io::Result<Option<Environment>> {
        let Some(sealed) = if_exists(fs::read(self.environment_path(project)))? else { return Ok(None) };
        let content = self.key.open(project, &sealed);
        Ok(content.and_then(|content| serde_json::from_slice(&content).ok()))
    }

    /// Returns the path of a saved environment. The file name is a digest, so that any id results in a valid file name.
    fn environment_path(&self, project: &str) -> PathBuf {
        self.dir.join("environments").join(Digest::of(project.as_bytes()).hex())
    }
}
