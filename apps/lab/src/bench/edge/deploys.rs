//! The time until a deployment is served, and the memory of a node with many projects.

use std::time::Instant;

use anyhow::Result;

use crate::bench::platform::{Platform, Project};
use crate::bench::run::percentile;
use crate::usage;

/// The number of timed deployments.
const TIMED_DEPLOYS: usize = 20;
/// The number of concurrent deployments while the projects are created: the server's limit for an organization.
const MAX_CONCURRENT_DEPLOYS: usize = 4;

/// Prints a row for a node with one project, and a row for a node with all projects.
pub async fn measure(platform: &Platform, projects: usize) -> Result<()> {
    let first = platform.create_project("timed").await?;
    println!("\n{TIMED_DEPLOYS} deployments, from acknowledged to served\n");
    println!("| projects | median ms | p99 ms | node memory, MB | peak, MB |\n|---|---|---|---|---|");
    time(platform, &first, 1).await?;
    let start = Instant::now();
    fill(platform, projects.saturating_sub(1)).await?;
    // Wait until the node has compressed all files.
    platform.wait_until_idle().await?;
    let filled = start.elapsed();
    time(platform, &first, projects).await?;
    println!("\n{projects} projects created in {:.1} s", filled.as_secs_f64());
    Ok(())
}

async fn time(platform: &Platform, project: &Project<'_>, projects: usize) -> Result<()> {
    let mut latencies = Vec::new();
    for number in 0..TIMED_DEPLOYS {
        let path = format!("/v{projects}-{number}.html");
        deploy(project, &path).await?;
        latencies.push(
            project.wait_until_served(&path, |response| response.status().as_u16() == 200).await?.as_secs_f64()
                * 1000.0,
        );
    }
    latencies.sort_by(f64::total_cmp);
    let (now, peak) = usage::memory(platform.node_pid)?;
    println!(
        "| {projects} | {:.0} | {:.0} | {now:.0} | {peak:.0} |",
        percentile(&latencies, 50),
        percentile(&latencies, 99)
    );
    Ok(())
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

async fn fill(platform: &Platform, projects: usize) -> Result<()> {
    let numbers: Vec<usize> = (0..projects).collect();
    for batch in numbers.chunks(MAX_CONCURRENT_DEPLOYS) {
        let deployments = batch.iter().map(async |number| {
            let project = platform.create_project(&format!("site{number}")).await?;
            deploy(&project, "/index.html").await?;
            project.wait_until_served("/", |response| response.status().as_u16() == 200).await
        });
        futures_util::future::try_join_all(deployments).await?;
    }
    Ok(())
}
