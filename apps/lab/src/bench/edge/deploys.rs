//! The time until a deployment is served, and the memory of a node with many projects.

use std::time::Instant;

use anyhow::Result;

use crate::bench::platform::{Platform, Project, run_concurrently};
use crate::bench::report::Report;
use crate::bench::run::percentiles;
use crate::usage;

/// The number of timed deployments.
const TIMED_DEPLOYS: usize = 20;

/// Adds a row for a node with one project, and a row for a node with all projects.
pub async fn measure(report: &mut Report, platform: &Platform, projects: usize) -> Result<()> {
    let first = platform.create_project("timed").await?;
    report.paragraph(&format!(
        "**Deployments.** {TIMED_DEPLOYS} deployments of a small site, from the acknowledgement until it is served."
    ))?;
    report.columns(&["projects", "p50 ms", "p99 ms", "node memory, MB", "peak, MB"])?;
    time(report, platform, &first, 1).await?;
    let start = Instant::now();
    fill(platform, projects.saturating_sub(1)).await?;
    // Wait until the node has compressed all files.
    platform.wait_until_idle().await?;
    let filled = start.elapsed();
    time(report, platform, &first, projects).await?;
    report.paragraph(&format!("{projects} projects were created in {:.1} s.", filled.as_secs_f64()))
}

async fn time(report: &mut Report, platform: &Platform, project: &Project<'_>, projects: usize) -> Result<()> {
    let mut latencies = Vec::new();
    for number in 0..TIMED_DEPLOYS {
        let path = format!("/v{projects}-{number}.html");
        deploy(project, &path).await?;
        latencies.push(project.wait_until_served(&path).await?.as_secs_f64() * 1000.0);
    }
    let [p50, p99] = percentiles(latencies, [50, 99]);
    let (now, peak) = usage::memory(platform.node.pid())?;
    let [p50, p99, now, peak] = [p50, p99, now, peak].map(|figure| format!("{figure:.0}"));
    report.row(&[&projects.to_string(), &p50, &p99, &now, &peak])
}

/// Deploys a small site with unique content: pages, a style sheet and a script.
async fn deploy(project: &Project<'_>, page: &str) -> Result<()> {
    let content = |kind: &str, size: usize| -> Vec<u8> {
        let lines = (0..).map(|line| format!("{kind} {line} of {page} at {}\n", project.hostname));
        lines.flat_map(String::into_bytes).take(size).collect()
    };
    let page_path = format!("assets{page}");
    let mut files: Vec<(String, Vec<u8>)> = vec![(page_path, content("page", 2048))];
    files.extend((0..8).map(|number| (format!("assets/page{number}.html"), content(&format!("page {number}"), 4096))));
    files.push(("assets/style.css".to_owned(), content("style", 10 << 10)));
    files.push(("assets/app.js".to_owned(), content("script", 30 << 10)));
    let files: Vec<(&str, &[u8])> = files.iter().map(|(path, content)| (path.as_str(), content.as_slice())).collect();
    project.deploy(&files).await
}

/// Creates projects with a small site. Returns their hostnames.
pub async fn fill(platform: &Platform, projects: usize) -> Result<Vec<String>> {
    run_concurrently(0..projects, async |number| {
        let project = platform.create_project(&format!("site{number}")).await?;
        deploy(&project, "/index.html").await?;
        project.wait_until_served("/").await?;
        anyhow::Ok(project.hostname)
    })
    .await
}
