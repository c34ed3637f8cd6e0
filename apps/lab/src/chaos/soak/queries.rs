//! A worker that inserts rows with `env.db`, and keeps the journal of the direct writers.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::pause::pause;
use crate::bench::databases::Database;
use crate::bench::platform::{Platform, Project};
use crate::chaos::databases::journal::{self, Journal, Write};

/// The project with the database. The restores use the same one.
const PROJECT: &str = "journal";
/// The pause after each row.
const PAUSE: Duration = Duration::from_millis(200);
/// The longest wait for a response. After this time, the outcome of the insert is unknown.
const TIMEOUT: Duration = Duration::from_secs(10);

/// `/<writer>/<number>` inserts a row.
const WORKER: &[u8] = b"
export default {
  async fetch(request, env) {
    const [writer, number] = new URL(request.url).pathname.slice(1).split('/').map(Number);
    if (!number) return new Response('ok');
    await env.db.query('INSERT INTO journal VALUES ($1, $2)', [writer, number]);
    return new Response(null, { status: 204 });
  },
};
";

/// Creates the project with its database and its worker.
pub async fn prepare(platform: &Platform) -> Result<(Project<'_>, Database)> {
    let project = platform.create_project(PROJECT).await?;
    let database = Database::enable(platform, PROJECT).await?;
    database.wait_until_usable().await?.batch_execute(journal::CREATE).await?;
    project.deploy(&[("worker/index.js", WORKER)]).await?;
    project.wait_until_served("/").await?;
    Ok((project, database))
}

/// Inserts rows through the worker until stopped. Each row is sent only once.
pub async fn run(platform: &Platform, hostname: &str, writer: i32, journal: &Journal, stopped: &AtomicBool) {
    let client = platform.server.client();
    for number in 1.. {
        if !pause(PAUSE, stopped).await {
            return;
        }
        let request = client.get(format!("http://{}/{writer}/{number}", platform.edge)).header("Host", hostname);
        let response = request.timeout(TIMEOUT).send().await;
        let is_acknowledged = response.is_ok_and(|response| response.status().as_u16() == 204);
        journal.push(Write { row: (writer, number), acknowledged: is_acknowledged.then(Instant::now) });
    }
}
