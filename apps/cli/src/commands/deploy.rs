//! `svc deploy`: packs and deploys a folder.

use client::types::NewProject;
use client::{Client, Error};

use super::deployments::{summary, superseded, wait_until_served};
use super::open;
use crate::error::{CliError, is_missing};
use crate::options::FolderArgs;
use crate::svc::Svc;
use crate::{git, pack, progress, prompt, resources};

#[derive(clap::Args)]
pub struct Deploy {
    #[command(flatten)]
    pub folder: FolderArgs,
    /// Create the project if it does not exist
    #[arg(long)]
    create: bool,
    /// Do not wait until the deployment is served
    #[arg(long)]
    no_wait: bool,
}

impl Deploy {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let (org, project) = svc.project()?;
        let client = svc.client()?;
        let packed = pack::pack(&self.folder.dir)?;
        let headers = git::provenance(&self.folder.dir);
        let manifest = &packed.contents.manifest;
        if !manifest.unknown.is_empty() {
            let names: Vec<&str> = manifest.unknown.keys().map(String::as_str).collect();
            svc.out.warn(format!("svc.json contains unknown keys, which are ignored: {}", names.join(", ")));
        }
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
        // The deployment is live, so a failure to enable a resource is reported at the end.
        let enabled = resources::enable(&client, (&org, &project), manifest, svc.out).await;
        let (latest, served) = if self.no_wait {
            (deployment, Ok(()))
        } else {
            wait_until_served(&client, (&org, &project), deployment, svc.out).await
        };
        // Print the deployment even if a later step failed, and report that failure even if the output is closed.
        let printed = svc.out.response(&latest, summary);
        served?;
        svc.out.success(match superseded(&latest) {
            Some(message) => message,
            None => format!("deployed to {}", address_or_path((&client, &org, &project)).await),
        });
        if latest.has_worker {
            print_bindings(svc, (&client, &org, &project)).await;
        }
        enabled?;
        printed
    }

    /// Creates the missing project if `--create` is set or the user confirms.
    async fn create(
        &self,
        svc: &Svc<'_>,
        (client, org, project): (&Client, &str, &str),
        missing: Error,
    ) -> Result<(), CliError> {
        if !is_missing(&missing, "project") {
            return Err(missing.into());
        }
        if !self.create && !prompt::confirm(&format!("The project {org}/{project} does not exist. Create it?"))? {
            return Err(CliError::Explained(missing, "`svc deploy --create` creates the project"));
        }
        client.projects_create(org, &NewProject { name: project.to_owned() }).send().await?;
        svc.out.success(format!("created the project {org}/{project}"));
        Ok(())
    }
}

/// Prints the bindings of the project, unless the token may not read them. The deployment itself has succeeded.
async fn print_bindings(svc: &Svc<'_>, (client, org, project): (&Client, &str, &str)) {
    match resources::bindings(client, (org, project)).await {
        Ok(names) => svc.out.info(format!("bindings: env.{}", names.join(", env."))),
        Err(error) if resources::is_insufficient_scope(&error) => {}
        Err(error) => svc.out.warn_error("failed to list the bindings", &error.into()),
    }
}

/// Returns the URL of the deployed project, or `org/project` if the URL is unknown. The deployment itself has
/// succeeded.
async fn address_or_path((client, org, project): (&Client, &str, &str)) -> String {
    address((client, org, project)).await.unwrap_or_else(|_| format!("{org}/{project}"))
}

/// Returns the URL of the project. For a token that may deploy but not read the project, the URL is derived from the
/// names. That is impossible if the label is too long, because the default hostname then contains a digest.
async fn address((client, org, project): (&Client, &str, &str)) -> Result<String, CliError> {
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

/// The maximum length of a hostname label (RFC 1035 section 2.3.4).
const MAX_LABEL: usize = 63;
