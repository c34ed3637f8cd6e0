//! Deploying a folder.

use client::types::NewProject;
use client::{Client, Error};

use super::deployments::{line, served};
use super::open;
use crate::failure::Failure;
use crate::options::Folder;
use crate::svc::Svc;
use crate::{git, pack, progress, prompt, resources};

#[derive(clap::Args)]
pub struct Deploy {
    #[command(flatten)]
    pub folder: Folder,
    /// Create the project when there is none
    #[arg(long)]
    create: bool,
    /// Do not wait until visitors see it
    #[arg(long)]
    no_wait: bool,
}

impl Deploy {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), Failure> {
        let (org, project) = svc.project()?;
        let client = svc.client()?;
        let packed = pack::pack(&self.folder.dir)?;
        let headers = git::provenance(&self.folder.dir);
        let (body, bar) = progress::upload(packed.file, packed.bytes);
        let upload = || client.deployments_create(&org, &project, &headers, body.clone()).send();
        let deployment = match upload().await {
            Err(error) if error.code() == Some("not_found") => {
                bar.finish_and_clear();
                self.create(svc, (&client, &org, &project), error).await?;
                upload().await?
            }
            outcome => outcome?,
        };
        bar.finish_and_clear();
        let manifest = &packed.contents.manifest;
        let (seen, outcome) = match resources::enable(&client, (&org, &project), manifest, svc.out).await {
            Ok(()) if !self.no_wait => served(&client, (&org, &project), deployment).await,
            enabled => (deployment, enabled),
        };
        // It is deployed, whatever came after; and what came after counts, whoever reads of it.
        let printed = svc.out.answer(&seen, line);
        outcome?;
        svc.out.done(format!("deployed to {}", place((&client, &org, &project)).await));
        printed
    }

    /// Creates the project that there is none of, when that is wanted.
    async fn create(
        &self,
        svc: &Svc<'_>,
        (client, org, project): (&Client, &str, &str),
        missing: Error,
    ) -> Result<(), Failure> {
        if !self.create && !prompt::confirmed(&format!("There is no project {org}/{project}. Create it?"))? {
            return Err(missing.into());
        }
        client.projects_create(org, &NewProject { name: project.to_owned() }).send().await?;
        svc.out.done(format!("created the project {org}/{project}"));
        Ok(())
    }
}

/// The address of the deployed project; its path when the address is unknown, since the deployment itself has succeeded.
async fn place((client, org, project): (&Client, &str, &str)) -> String {
    address((client, org, project)).await.unwrap_or_else(|_| format!("{org}/{project}"))
}

/// A token may be allowed to deploy and not to read the project. The default hostname follows from the names, except for
/// one that is too long for a label, which contains a digest.
async fn address((client, org, project): (&Client, &str, &str)) -> Result<String, Failure> {
    match client.projects_get(org, project).send().await {
        Ok(project) => open::address(client, &project.hostname).await,
        Err(error) if error.code() == Some("insufficient_scope") && org.len() + project.len() < MAX_LABEL => {
            let config = client.service_config().send().await?;
            let hostname = format!("{project}-{org}.{}", config.platform_domain);
            Ok(config.site_url.replace("{hostname}", &hostname))
        }
        Err(error) => Err(error.into()),
    }
}

/// The longest label of a hostname (RFC 1035 section 2.3.4).
const MAX_LABEL: usize = 63;
