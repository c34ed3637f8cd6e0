//! `svc init`: prepares a folder for deployment.

use std::fs;

use serde_json::json;

use crate::error::{CliError, is_missing};
use crate::link::Link;
use crate::options::FolderArgs;
use crate::pack;
use crate::svc::Svc;

/// A manifest that declares no resources.
const EMPTY_MANIFEST: &str = "{}\n";

#[derive(clap::Args)]
pub struct Init {
    #[command(flatten)]
    folder: FolderArgs,
}

impl Init {
    /// Keeps an existing manifest. The project does not have to exist: `svc deploy --create` creates it. If the user is
    /// signed in, the organization must exist.
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let (org, project) = svc.project()?;
        check_name("organization slug", &org, 2)?;
        check_name("project name", &project, 1)?;
        if let Ok(client) = svc.client()
            && let Err(error) = client.projects_get(&org, &project).send().await
            && is_missing(&error, "organization")
        {
            return Err(error.into());
        }
        let folder = &self.folder.dir;
        fs::create_dir_all(folder).map_err(CliError::file(folder))?;
        if !pack::has_manifest(folder) {
            let path = pack::manifest_path(folder);
            fs::write(&path, EMPTY_MANIFEST).map_err(CliError::file(&path))?;
            svc.out.success(format!("wrote {}", path.display()));
        }
        let link = Link { api: svc.api.clone(), org, project };
        let path = link.write(folder)?;
        svc.out.success(format!(
            "linked the folder to {}/{} at {}: {}",
            link.org,
            link.project,
            link.api,
            path.display()
        ));
        svc.out.info("Put static files into assets/ and worker modules into worker/, then run `svc deploy --create`.");
        svc.out.json_only(&json!(link))
    }
}

/// Checks the form of an organization's slug or a project's name. The API checks the rest.
fn check_name(object: &str, name: &str, min_length: usize) -> Result<(), CliError> {
    let is_allowed = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '-';
    let is_valid = (min_length..=40).contains(&name.len()) && name.chars().all(is_allowed);
    if is_valid && !name.starts_with('-') && !name.ends_with('-') {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "{name:?} is not a valid {object}: use {min_length} to 40 characters of a-z, 0-9 and -, beginning and ending \
         with a letter or a digit"
    )))
}
