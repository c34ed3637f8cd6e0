//! Where a project is seen.

use client::Client;

use crate::browser;
use crate::failure::Failure;
use crate::svc::Svc;

pub async fn run(svc: &Svc<'_>, no_browser: bool) -> Result<(), Failure> {
    let (org, project) = svc.project()?;
    let client = svc.client()?;
    let project = client.projects_get(&org, &project).send().await?;
    let address = address(&client, &project.hostname).await?;
    svc.out.answer(&project, |_| address.clone())?;
    if !no_browser && !browser::open(&address) {
        svc.out.warn("no browser could be started");
    }
    Ok(())
}

/// Where this platform serves a hostname.
pub async fn address(client: &Client, hostname: &str) -> Result<String, Failure> {
    let config = client.service_config().send().await?;
    Ok(config.site_url.replace("{hostname}", hostname))
}
