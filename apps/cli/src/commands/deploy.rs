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

/// Where it is seen. It is deployed, so that not to know this is no failure: a token that may deploy need not be one
/// that may read.
async fn place((client, org, project): (&Client, &str, &str)) -> String {
    let address = async {
        let project = client.projects_get(org, project).send().await?;
        open::address(client, &project.hostname).await
    };
    address.await.unwrap_or_else(|_: Failure| format!("{org}/{project}"))
}
