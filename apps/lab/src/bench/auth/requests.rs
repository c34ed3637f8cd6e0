//! Requests of signed-in visitors, compared with those of anonymous ones.

use anyhow::{Context as _, Result, ensure};

use super::browser::Browser;
use crate::bench::platform::{Platform, Project};
use crate::bench::report::COMPARISON_COLUMNS;
use crate::bench::run::{Run, median};
use crate::bench::wrk::Load;

/// The number of runs per side, alternating.
const ROUNDS: usize = 3;

/// Prints a row for an anonymous visitor, for a call of `current` without a session, and for one with a session.
pub async fn compare(platform: &Platform, project: &Project<'_>, load: &Load<'_>) -> Result<()> {
    let (session, _) = Browser::new(platform, project)?.sign_in("ada").await?;
    let sides = [
        ("anonymous", "/plain", "", "a visitor"),
        ("anonymous, current()", "/current", "", "a visitor"),
        ("signed in", "/plain", session.as_str(), "a visitor"),
        ("signed in, current()", "/current", session.as_str(), "a member"),
    ];
    for (name, path, cookie, expected) in sides {
        let url = format!("http://{}{path}", platform.edge);
        let headers = [("Host", project.hostname.clone()), ("Cookie", cookie.to_owned())];
        let text = platform.get(&url, &headers).await?.text().await?;
        ensure!(text == expected, "{name} returned {text}");
    }
    println!("\nGET of a worker, {} connections, {} s, median of {ROUNDS}\n", load.connections, load.seconds);
    println!("| {} |\n|{}", COMPARISON_COLUMNS.join(" | "), "---|".repeat(COMPARISON_COLUMNS.len()));
    let mut runs: [Vec<Run>; 4] = Default::default();
    for _ in 0..ROUNDS {
        for ((_, path, cookie, _), runs) in sides.iter().zip(&mut runs) {
            let url = format!("http://{}{path}", platform.edge);
            runs.push(load.run(&url, &[("Host", &project.hostname), ("Cookie", cookie)]).await?);
        }
    }
    let medians = runs.map(|runs| median(&runs));
    let baseline = medians.first().context("no run")?.rate;
    for ((name, ..), run) in sides.iter().zip(&medians) {
        println!("{}", run.row("get", name, run.rate / baseline));
    }
    Ok(())
}
