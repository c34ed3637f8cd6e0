//! `svc init`: prepares a folder for deployment.

use std::fs;

use serde_json::json;

use crate::error::CliError;
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
    /// Keeps an existing manifest. The project does not have to exist: `svc deploy --create` creates it.
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let (org, project) = svc.project()?;
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
