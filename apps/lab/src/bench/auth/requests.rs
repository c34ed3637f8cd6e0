//! Requests of signed-in visitors, compared with those of anonymous ones.

use anyhow::{Result, ensure};

use super::browser::Browser;
use crate::bench::platform::{Platform, Project};
use crate::bench::report::Report;
use crate::bench::run::Run;
use crate::bench::wrk::Load;

/// The number of runs per side, alternating.
const ROUNDS: usize = 3;

/// Adds a row for an anonymous visitor, for a call of `current` without a session, and for one with a session.
pub async fn compare(report: &mut Report, platform: &Platform, project: &Project<'_>, load: &Load<'_>) -> Result<()> {
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
    report.paragraph(&format!(
        "**Requests.** Responses of the worker to {} connections, in {ROUNDS} runs of {} s. `current()` finds the user \
         of a visitor. For the other rows, the worker does not call it.",
        load.connections, load.seconds
    ))?;
    report.comparison_columns(&[])?;
    let mut runs: [Vec<Run>; 4] = Default::default();
    for _ in 0..ROUNDS {
        for ((_, path, cookie, _), runs) in sides.iter().zip(&mut runs) {
            let url = format!("http://{}{path}", platform.edge);
            runs.push(load.run(&url, &[("Host", &project.hostname), ("Cookie", cookie)]).await?);
        }
    }
    let rows: Vec<_> = sides.iter().zip(&runs).map(|((name, ..), runs)| (*name, runs.as_slice())).collect();
    report.comparison("get", &rows)
}
