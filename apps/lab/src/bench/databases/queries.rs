//! `env.db.query` of one row by key through a worker, compared with pgbench on the same statement.

use std::path::Path;

use anyhow::Result;

use super::{Database, ProjectCluster};
use crate::bench::api::pgbench::{PgBench, Script};
use crate::bench::platform::Platform;
use crate::bench::report::Report;
use crate::bench::run::Run;
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

/// Adds a row for pgbench, for the worker, and for a worker that does not query.
pub async fn compare(
    report: &mut Report,
    platform: &Platform,
    cluster: &ProjectCluster,
    folder: &Path,
    load: &Load<'_>,
) -> Result<()> {
    let project = platform.create_project("queries").await?;
    let database = Database::enable(platform, "queries").await?;
    database.wait_until_usable().await?.batch_execute(FILL).await?;
    project.deploy(&[("worker/index.js", WORKER)]).await?;
    project.wait_until_served("/").await?;
    let pgbench = PgBench::new(cluster.program("pgbench")?, &database.url, folder);
    let script = Script::plain(&folder.join("one_row.sql"), SCRIPT)?;
    let Load { connections, seconds, .. } = *load;
    report.paragraph(&format!(
        "**Queries.** SELECT of one row by key: `pgbench -M extended`, and a worker that calls `env.db.query` for each \
         request. {connections} connections, {ROUNDS} runs of {seconds} s."
    ))?;
    report.comparison_columns(&[])?;
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
    let [direct, query, plain] = &runs;
    let rows = [("pgbench", direct), ("env.db.query", query), ("worker without query", plain)];
    report.comparison("one row by key", &rows.map(|(name, runs)| (name, runs.as_slice())))
}
