//! How soon a deploy is served, and what many projects cost the node.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::platform::{Platform, Project};
use crate::bench::run::quantile;
use crate::usage;

/// Deploys that are timed.
const TIMED: usize = 20;
/// Deploys at a time while projects are made.
const AT_ONCE: usize = 8;

/// Prints a row for one project and a row for all.
pub async fn measure(platform: &Platform, projects: usize) -> Result<()> {
    let first = platform.project("timed").await?;
    println!("\n{TIMED} deploys, from acknowledged to served\n");
    println!("| projects | median ms | p99 ms | node's memory, MB | at most, MB |\n|---|---|---|---|---|");
    time(platform, &first, 1).await?;
    let start = Instant::now();
    fill(platform, projects.saturating_sub(1)).await?;
    until_at_rest(platform).await?;
    let filled = start.elapsed();
    time(platform, &first, projects).await?;
    println!("\n{projects} projects were there after {:.1} s", filled.as_secs_f64());
    Ok(())
}

async fn time(platform: &Platform, project: &Project<'_>, projects: usize) -> Result<()> {
    let mut took = Vec::new();
    for number in 0..TIMED {
        let path = format!("/v{projects}-{number}.html");
        deploy(project, &path).await?;
        took.push(project.until_served(&path, |answer| answer.status().as_u16() == 200).await?.as_secs_f64() * 1000.0);
    }
    took.sort_by(f64::total_cmp);
    let (now, most) = usage::memory(platform.node)?;
    println!("| {projects} | {:.0} | {:.0} | {now:.0} | {most:.0} |", quantile(&took, 50), quantile(&took, 99));
    Ok(())
}

/// A small site of its own contents: pages, a style, a script.
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
    for batch in numbers.chunks(AT_ONCE) {
        let made = batch.iter().map(async |number| {
            let project = platform.project(&format!("site{number}")).await?;
            deploy(&project, "/index.html").await?;
            project.until_served("/", |answer| answer.status().as_u16() == 200).await
        });
        futures_util::future::try_join_all(made).await?;
    }
    Ok(())
}

/// Waits until the node has nothing left to compress.
async fn until_at_rest(platform: &Platform) -> Result<()> {
    let mut before = usage::processor_time(platform.node)?;
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = usage::processor_time(platform.node)?;
        if now - before < 0.1 {
            return Ok(());
        }
        before = now;
    }
}
