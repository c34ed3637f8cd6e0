//! The first steps with a folder.

use std::fs;

use serde_json::json;

use crate::failure::Failure;
use crate::link::Link;
use crate::options::Folder;
use crate::pack;
use crate::svc::Svc;

/// What a project without any wishes says.
const MANIFEST: &str = "{}\n";

#[derive(clap::Args)]
pub struct Init {
    #[command(flatten)]
    folder: Folder,
}

impl Init {
    /// Leaves a manifest that is there as it is. The project need not exist yet: the first deploy creates it.
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), Failure> {
        let (org, project) = svc.project()?;
        let folder = &self.folder.dir;
        fs::create_dir_all(folder).map_err(Failure::file(folder))?;
        if !pack::has_manifest(folder) {
            let path = pack::manifest(folder);
            fs::write(&path, MANIFEST).map_err(Failure::file(&path))?;
            svc.out.done(format!("wrote {}", path.display()));
        }
        let link = Link { api: svc.api.clone(), org, project };
        let path = link.write(folder)?;
        svc.out.done(format!("linked the folder to {}/{} at {}: {}", link.org, link.project, link.api, path.display()));
        svc.out
            .say("Put a site's files under assets/, a worker's modules under worker/, then run `svc deploy --create`.");
        svc.out.for_programs(&json!(link))
    }
}
