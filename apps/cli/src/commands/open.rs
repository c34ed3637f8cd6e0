//! `svc open`: opens a project in the browser.

use client::Client;

use crate::browser;
use crate::error::CliError;
use crate::svc::Svc;

pub async fn run(svc: &Svc<'_>, no_browser: bool) -> Result<(), CliError> {
    let (org, project) = svc.project()?;
    let client = svc.client()?;
    let project = client.projects_get(&org, &project).send().await?;
    let address = address(&client, &project.hostname).await?;
    svc.out.response(&project, |_| address.clone())?;
    if !no_browser && !browser::open(&address) {
        svc.out.warn("failed to start a browser");
    }
    Ok(())
}

/// Returns the URL of a hostname on this platform.
pub async fn address(client: &Client, hostname: &str) -> Result<String, CliError> {
    let config = client.service_config().send().await?;
    Ok(config.site_url.replace("{hostname}", hostname))
}
