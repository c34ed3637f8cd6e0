//! Comparison of the same server on a small and on a large database.

use std::time::Instant;

use anyhow::{Context as _, Result};
use kernel::{Page, Paging, ProjectId};
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use xtask::services::Services;
use xtask::workspace::print_step;

use super::environment::{CONNECTIONS, Environment};
use super::seed::{self, Size};
use crate::bench::report::Report;
use crate::bench::run::percentiles;
use crate::bench::server::Server;
use crate::random;

/// Requests of each kind per round.
const REQUESTS_PER_ROUND: usize = 150;
/// Projects in the small database. All are in the first organization, enough to fill a page.
const SMALL_PROJECTS: u32 = 10;

struct Side {
    server: Server,
    projects: u32,
    /// The cursor of the last page of projects.
    deepest: String,
}

/// Builds a request to one side. The number makes the names of created objects unique.
type RequestBuilderFn = fn(&Side, usize) -> RequestBuilder;

const REQUESTS_BY_NAME: &[(&str, RequestBuilderFn)] = &[
    ("project get", |side, _| side.get(&side.random_project())),
    ("project overview", |side, _| side.get(&format!("{}/overview", side.random_project()))),
    ("hostnames of a project", |side, _| side.get(&format!("{}/hostnames", side.random_project()))),
    ("deployments of a project", |side, _| side.get(&format!("{}/deployments", side.random_project()))),
    ("projects, first page", |side, _| side.get("/projects?limit=5")),
    ("projects, deepest page", |side, _| side.get(&format!("/projects?limit=5&cursor={}", side.deepest))),
    ("audit log, first page", |side, _| side.get("/audit?limit=5")),
    ("members", |side, _| side.get("/members")),
    ("project create", |side, number| side.post("/projects", json!({ "name": format!("new{number}") }))),
    ("hostname add", |side, number| {
        side.post(
            &format!("{}/hostnames", side.random_project()),
            json!({ "name": format!("h{number}.bench.example") }),
        )
    }),
    ("project delete", |side, number| {
        let name = format!("new{number}");
        side.server.request(Method::DELETE, &format!("/v1/orgs/ada/projects/{name}")).json(&json!({ "confirm": name }))
    }),
];

pub async fn compare(services: &mut Services, lab: &Environment<'_>, report: &mut Report) -> Result<()> {
    let all = lab.args.projects;
    let sizes = [
        ("small", Size { orgs: 1, first_org_projects: SMALL_PROJECTS, other_projects: 0 }),
        ("large", Size { orgs: (all / 100).max(1), first_org_projects: all / 2, other_projects: all / 2 }),
    ];
    let mut sides = Vec::new();
    for (name, size) in sizes {
        sides.push(Side::start(services, lab, name, size).await?);
    }
    report.paragraph(&format!(
        "**Many projects.** Sequential requests, alternately to a server with {SMALL_PROJECTS} projects and to one \
         with {all}. Of these, {} are in the requested organization and the others are in {} other organizations. Each \
         project has a live deployment, and each request selects a random project.",
        all / 2,
        all / 100
    ))?;
    report.columns(&["request", "p50 ms at 10", "p99 ms", &format!("p50 ms at {all}"), "p99 ms", "growth of p50"])?;
    for (what, ask) in REQUESTS_BY_NAME {
        let latencies = services.supervise(measure(&sides, *ask, lab.args.rounds)).await?;
        let [(small, small99), (large, large99)] = latencies;
        let growth = (large / small - 1.0) * 100.0;
        let cells = [small, small99, large, large99].map(|ms| format!("{ms:.2}"));
        let [small, small99, large, large99] = cells.each_ref().map(String::as_str);
        report.row(&[what, small, small99, large, large99, &format!("{growth:+.0} %")])?;
    }
    Ok(())
}

/// Returns the median p50 and the median p99 of the rounds for each side, in milliseconds.
async fn measure(sides: &[Side], ask: RequestBuilderFn, rounds: usize) -> Result<[(f64, f64); 2]> {
    let mut medians = [const { (Vec::new(), Vec::new()) }; 2];
    for round in 0..rounds {
        let mut latencies = [const { Vec::new() }; 2];
        for number in 0..REQUESTS_PER_ROUND {
            for (side, latencies) in sides.iter().zip(&mut latencies) {
                let request = ask(side, round * REQUESTS_PER_ROUND + number);
                let start = Instant::now();
                side.server.expect_success(request).await?;
                latencies.push(start.elapsed().as_secs_f64() * 1000.0);
            }
        }
        for (latencies, (all_p50, all_p99)) in latencies.into_iter().zip(&mut medians) {
            let [p50, p99] = percentiles(latencies, [50, 99]);
            all_p50.push(p50);
            all_p99.push(p99);
        }
    }
    Ok(medians.map(|(p50, p99)| {
        let ([p50], [p99]) = (percentiles(p50, [50]), percentiles(p99, [50]));
        (p50, p99)
    }))
}

impl Side {
    async fn start(services: &mut Services, lab: &Environment<'_>, name: &str, size: Size) -> Result<Self> {
        let url = lab.database(name).await?;
        let server = lab.server(services, name, url.clone(), CONNECTIONS).await?;
        let (start, psql) = (Instant::now(), lab.bin.join("psql"));
        seed::fill(&psql, &url, "ada", size)?;
        print_step(
            "Database",
            format!("filled with {} projects", size.first_org_projects + size.other_projects),
            start,
        );
        let sixth = "SELECT p.id FROM projects.projects p JOIN orgs.orgs o ON o.id = p.org_id \
             WHERE o.slug = 'ada' ORDER BY p.id DESC OFFSET 5 LIMIT 1";
        let id = ProjectId::from_uuid(seed::query(&psql, &url, sixth)?.parse()?);
        // Builds a page that contains the first of two projects, so that it has a cursor, which points after this
        // project.
        let page = Page::cut(vec![id, id], &Paging { limit: 1, after: None }, |id| *id);
        let deepest = page.next_cursor.context("no cursor for the last page")?;
        Ok(Self { server, projects: size.first_org_projects, deepest })
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.server.request(Method::GET, &format!("/v1/orgs/ada{path}"))
    }

    fn post(&self, path: &str, body: serde_json::Value) -> RequestBuilder {
        self.server.request(Method::POST, &format!("/v1/orgs/ada{path}")).json(&body)
    }

    /// Returns the path of a random project.
    fn random_project(&self) -> String {
        let number = random::number(0..self.projects.into());
        format!("/projects/p{number}")
    }
}
