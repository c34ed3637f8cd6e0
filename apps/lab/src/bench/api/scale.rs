//! One and the same server on a small and on a large database.

use std::time::Instant;

use anyhow::{Context as _, Result};
use kernel::{Page, Paging, ProjectId, World};
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use xtask::services::Services;
use xtask::workspace::step;

use super::Lab;
use super::seed::{self, Size};
use crate::bench::report::Report;
use crate::bench::run::quantile;
use crate::bench::server::Server;

/// Requests of a kind in each round.
const REQUESTS: usize = 150;
/// Projects of the small database: the first organization's, and as many in each list as there are asked for.
const SMALL: u32 = 10;

struct Side {
    server: Server,
    projects: u32,
    /// Before the last five of the list of projects.
    deepest: String,
}

/// What is asked, by name: a request to a side, the number of the request told so that creations differ.
type Ask = fn(&Side, usize) -> RequestBuilder;

const ASKED: &[(&str, Ask)] = &[
    ("project get", |side, _| side.get(&side.any())),
    ("project overview", |side, _| side.get(&format!("{}/overview", side.any()))),
    ("hostnames of a project", |side, _| side.get(&format!("{}/hostnames", side.any()))),
    ("deployments of a project", |side, _| side.get(&format!("{}/deployments", side.any()))),
    ("projects, first page", |side, _| side.get("/projects?limit=5")),
    ("projects, deepest page", |side, _| side.get(&format!("/projects?limit=5&cursor={}", side.deepest))),
    ("audit log, first page", |side, _| side.get("/audit?limit=5")),
    ("members", |side, _| side.get("/members")),
    ("project create", |side, number| side.post("/projects", json!({ "name": format!("new{number}") }))),
    ("hostname add", |side, number| {
        side.post(&format!("{}/hostnames", side.any()), json!({ "name": format!("h{number}.bench.example") }))
    }),
    ("project delete", |side, number| {
        let name = format!("new{number}");
        side.server.request(Method::DELETE, &format!("/v1/orgs/ada/projects/{name}")).json(&json!({ "confirm": name }))
    }),
];

pub async fn compare(services: &mut Services, lab: &Lab<'_>, report: &mut Report) -> Result<()> {
    let all = lab.args.projects;
    let sizes = [
        ("small", Size { orgs: 1, own: SMALL, others: 0 }),
        ("large", Size { orgs: (all / 100).max(1), own: all / 2, others: all / 2 }),
    ];
    let mut sides = Vec::new();
    for (name, size) in sizes {
        sides.push(Side::start(services, lab, name, size).await?);
    }
    report.section(
        "A million projects",
        &format!(
            "One request after the other, in turns at a database of {SMALL} projects and at one of {all}, of which {} are in \
             the organization that is asked for and the others in {} more; each project has a live deployment, and whichever \
             is asked for is random.",
            all / 2,
            all / 100
        ),
    )?;
    report.columns(&["what", "p50 ms at 10", "p99 ms", &format!("p50 ms at {all}"), "p99 ms", "growth of p50"])?;
    for (what, ask) in ASKED {
        let took = services.during(measure(&sides, *ask, lab.args.rounds)).await?;
        let [(small, small99), (large, large99)] = took;
        let growth = (large / small - 1.0) * 100.0;
        let cells = [small, small99, large, large99].map(|ms| format!("{ms:.2}"));
        let [small, small99, large, large99] = cells.each_ref().map(String::as_str);
        report.row(&[what, small, small99, large, large99, &format!("{growth:+.0} %")])?;
    }
    Ok(())
}

/// The medians of the rounds' p50 and p99 at each side, in milliseconds.
async fn measure(sides: &[Side], ask: Ask, rounds: usize) -> Result<[(f64, f64); 2]> {
    let mut medians = [const { (Vec::new(), Vec::new()) }; 2];
    for round in 0..rounds {
        let mut took = [const { Vec::new() }; 2];
        for number in 0..REQUESTS {
            for (side, took) in sides.iter().zip(&mut took) {
                let request = ask(side, round * REQUESTS + number);
                let asked = Instant::now();
                side.server.done(request).await?;
                took.push(asked.elapsed().as_secs_f64() * 1000.0);
            }
        }
        for (took, (p50, p99)) in took.iter_mut().zip(&mut medians) {
            took.sort_by(f64::total_cmp);
            p50.push(quantile(took, 50));
            p99.push(quantile(took, 99));
        }
    }
    Ok(medians.map(|(mut p50, mut p99)| {
        p50.sort_by(f64::total_cmp);
        p99.sort_by(f64::total_cmp);
        (quantile(&p50, 50), quantile(&p99, 50))
    }))
}

impl Side {
    async fn start(services: &mut Services, lab: &Lab<'_>, name: &str, size: Size) -> Result<Self> {
        let url = lab.database(name).await?;
        let server = lab.server(services, name, url.clone()).await?;
        let (start, psql) = (Instant::now(), lab.bin.join("psql"));
        seed::fill(&psql, &url, "ada", size)?;
        step("Database", format!("of {} projects filled", size.own + size.others), start);
        let sixth = "SELECT p.id FROM projects.projects p JOIN orgs.orgs o ON o.id = p.org_id \
             WHERE o.slug = 'ada' ORDER BY p.id DESC OFFSET 5 LIMIT 1";
        let id = ProjectId::from_uuid(seed::ask(&psql, &url, sixth)?.parse()?);
        // Two of which one is shown: the next page begins after it.
        let page = Page::cut(vec![id, id], &Paging { limit: 1, after: None }, |id| *id);
        let deepest = page.next_cursor.context("the cursor of a page after another")?;
        Ok(Self { server, projects: size.own, deepest })
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.server.request(Method::GET, &format!("/v1/orgs/ada{path}"))
    }

    fn post(&self, path: &str, body: serde_json::Value) -> RequestBuilder {
        self.server.request(Method::POST, &format!("/v1/orgs/ada{path}")).json(&body)
    }

    /// The path of one of the projects.
    fn any(&self) -> String {
        let number = u32::from_ne_bytes(World::system().bytes::<4>()) % self.projects;
        format!("/projects/p{number}")
    }
}
