//! `env.db.query` of one row by key through a worker, compared with pgbench on the same statement.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::{Database, ProjectCluster};
use crate::bench::api::pgbench::{PgBench, Script};
use crate::bench::platform::Platform;
use crate::bench::report::COMPARISON_COLUMNS;
use crate::bench::run::{Run, median};
use crate::bench::wrk::Load;

/// The number of runs per side, alternating.
const ROUNDS: usize = 3;

/// The worker queries one row for most requests, and nothing for `/plain`.
const WORKER: &[u8] = b"
export default {
  async fetch(request, env) {
    if (request.url.endsWith('/plain')) return new Response('a row');
    const id = 1 + Math.floor(Math.random() * 100000);
    const { rows } = await env.db.query('SELECT body FROM items WHERE id = $1', [id]);
    return new Response(rows[0].body);
  },
};
";

const FILL: &str = "CREATE TABLE items (id int PRIMARY KEY, body text NOT NULL); \
    INSERT INTO items SELECT number, 'the body of row ' || number FROM generate_series(1, 100000) number; \
    ANALYZE items";

const SCRIPT: &str = "\\set id random(1, 100000)\nSELECT body FROM items WHERE id = :id;\n";

/// Prints a row for pgbench, for the worker, and for a worker that does not query.
pub async fn compare(platform: &Platform, cluster: &ProjectCluster, folder: &Path, load: &Load<'_>) -> Result<()> {
    let project = platform.create_project("queries").await?;
    let database = Database::enable(platform, "queries").await?;
    database.wait_until_usable().await?.batch_execute(FILL).await?;
    project.deploy(&[("worker/index.js", WORKER)]).await?;
    project.wait_until_served("/", |response| response.status().as_u16() == 200).await?;
    let pgbench = PgBench::new(cluster.program("pgbench")?, &database.url, folder);
    let script = Script::plain(&folder.join("one_row.sql"), SCRIPT)?;
    let Load { connections, seconds, .. } = *load;
    println!("\nSELECT of one row by key, {connections} connections, {seconds} s, median of {ROUNDS}\n");
    println!("| {} |\n|{}", COMPARISON_COLUMNS.join(" | "), "---|".repeat(COMPARISON_COLUMNS.len()));
    let mut runs: [Vec<Run>; 3] = Default::default();
    for _ in 0..ROUNDS {
        let [direct, query, plain] = &mut runs;
        // An unnamed statement of the extended protocol, as `env.db` sends it.
        direct.push(pgbench.run_with("extended", &script, connections, seconds).await?);
        for (path, runs) in [("/", query), ("/plain", plain)] {
            let url = format!("http://{}{path}", platform.edge);
            runs.push(load.run(&url, &[("Host", &project.hostname)]).await?);
        }
    }
    let medians = runs.map(|runs| median(&runs));
    let baseline = medians.first().context("no run")?.rate;
    for (name, run) in ["pgbench", "env.db.query", "worker without query"].iter().zip(&medians) {
        println!("{}", run.row("one row by key", name, run.rate / baseline));
    }
    Ok(())
}
