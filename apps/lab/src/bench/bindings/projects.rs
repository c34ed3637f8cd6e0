//! The cost of many projects with secrets at the node.

use anyhow::Result;
use reqwest::Method;
use serde_json::{Map, Value, json};
use xtask::services::Services;

use crate::bench::platform::{Platform, run_concurrently};
use crate::bench::report::Report;
use crate::usage;

/// The number of secrets of each project.
const SECRETS: usize = 10;

/// Adds a row for a node whose projects have no secrets, and a row for a node whose projects have ten secrets each.
/// The projects have no code, because each running worker has its own process.
pub async fn measure(report: &mut Report, platform: &Platform, services: &mut Services, projects: usize) -> Result<()> {
    report.paragraph(&format!("**Projects.** {projects} projects with a page, after a restart of the node."))?;
    report.columns(&["secrets each", "node memory, MB", "peak, MB", "start, ms"])?;
    services.supervise(create(platform, projects)).await?;
    add(report, platform, services, 0).await?;
    services.supervise(set_secrets(platform, projects)).await?;
    add(report, platform, services, SECRETS).await
}

async fn add(report: &mut Report, platform: &Platform, services: &mut Services, secrets: usize) -> Result<()> {
    let start = platform.node.restart(services).await?;
    // After its restart, the node receives the full state, and takes a while to apply it.
    services.supervise(platform.wait_until_idle()).await?;
    let (now, peak) = usage::memory(platform.node.pid())?;
    let [now, peak, start] = [now, peak, start.as_secs_f64() * 1000.0].map(|figure| format!("{figure:.0}"));
    report.row(&[&secrets.to_string(), &now, &peak, &start])
}

async fn create(platform: &Platform, projects: usize) -> Result<()> {
    run_concurrently(0..projects, async |number| {
        let project = platform.create_project(&format!("page{number}")).await?;
        project.deploy(&[("assets/index.html", b"a page")]).await?;
        project.wait_until_served("/").await
    })
    .await
    .map(drop)
}

async fn set_secrets(platform: &Platform, projects: usize) -> Result<()> {
    let values = |number: usize| -> Map<String, Value> {
        let secret = |secret: usize| (format!("SECRET_{secret}"), json!(format!("value {secret} of project {number}")));
        (0..SECRETS).map(secret).collect()
    };
    run_concurrently(0..projects, async |number| {
        let path = format!("page{number}/secrets");
        platform.send(Method::PUT, &path, &json!({ "secrets": values(number) })).await
    })
    .await
    .map(drop)
}
