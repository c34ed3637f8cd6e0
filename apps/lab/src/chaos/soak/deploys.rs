//! Deployments of a worker, and changes of its secret.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use reqwest::Method;
use serde_json::json;
use tokio::time::sleep;

use super::pause::pause;
use crate::bench::platform::{Platform, Project};

/// The pause after each change.
const PAUSE: Duration = Duration::from_secs(3);
/// The longest time until the node serves the last change.
const MAX_DELIVERY: Duration = Duration::from_secs(60);

/// Numbered values of which only the last one counts.
#[derive(Debug, Default)]
pub struct Register {
    /// The last value whose change was acknowledged.
    acknowledged: usize,
    /// Values whose change was not acknowledged: it may or may not be executed.
    unknown: Vec<usize>,
    /// The number of acknowledged changes.
    pub changes: usize,
}

/// The changes of a site.
#[derive(Debug, Default)]
pub struct Changes {
    pub versions: Register,
    pub secrets: Register,
}

impl Register {
    fn record(&mut self, value: usize, outcome: &Result<()>) {
        if outcome.is_ok() {
            self.acknowledged = value;
            self.changes += 1;
        } else {
            self.unknown.push(value);
        }
    }

    fn allows(&self, value: usize) -> bool {
        value == self.acknowledged || self.unknown.contains(&value)
    }
}

/// Creates the site, with the first version and the first value of the secret.
pub async fn prepare(platform: &Platform) -> Result<Project<'_>> {
    let project = platform.create_project("deploys").await?;
    set_secret(platform, 0).await?;
    deploy(&project, 0).await?;
    project.wait_until_served("/").await?;
    Ok(project)
}

/// Deploys versions and changes the secret until stopped.
pub async fn run(platform: &Platform, project: &Project<'_>, stopped: &AtomicBool) -> Changes {
    let mut changes = Changes::default();
    let mut number = 0;
    while pause(PAUSE, stopped).await {
        number += 1;
        changes.versions.record(number, &deploy(project, number).await);
        if pause(PAUSE, stopped).await {
            changes.secrets.record(number, &set_secret(platform, number).await);
        }
    }
    changes
}

async fn deploy(project: &Project<'_>, version: usize) -> Result<()> {
    let worker = format!("export default {{ fetch: (_, env) => new Response(`{version} ${{env.NUMBER}}`) }};");
    project.deploy(&[("worker/index.js", worker.as_bytes())]).await
}

async fn set_secret(platform: &Platform, value: usize) -> Result<()> {
    platform.send(Method::PUT, "deploys/secrets/NUMBER", &json!({ "value": value.to_string() })).await
}

/// Waits until the node serves the last acknowledged version and secret, or later ones whose outcome is unknown.
pub async fn verify(platform: &Platform, hostname: &str, changes: &Changes) -> Result<()> {
    let (start, url) = (Instant::now(), format!("http://{}/", platform.edge));
    loop {
        let served = read(platform, &url, hostname).await;
        match served {
            Ok((version, secret)) if changes.versions.allows(version) && changes.secrets.allows(secret) => {
                return Ok(());
            }
            served if start.elapsed() > MAX_DELIVERY => bail!("the site serves {served:?} after {changes:?}"),
            _ => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Returns the version and the secret that the node serves.
async fn read(platform: &Platform, url: &str, hostname: &str) -> Result<(usize, usize)> {
    let response = platform.get(url, &[("Host", hostname.to_owned())]).await?.error_for_status()?;
    let text = response.text().await?;
    let (version, secret) = text.split_once(' ').context("an unexpected page")?;
    Ok((version.parse()?, secret.parse()?))
}
