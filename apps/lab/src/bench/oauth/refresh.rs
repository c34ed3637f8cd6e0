//! Refreshes per second, compared with an `INSERT … RETURNING` of the same rows and with Keycloak's published figure.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use diesel_async::SimpleAsyncConnection as _;
use futures_util::future::try_join_all;
use kernel::Secret;
use store::migrations;

use super::{Args, Rig};
use crate::bench::api::pgbench::{PgBench, Script};
use crate::bench::report::Report;
use crate::bench::run::{Run, median, percentiles};
use crate::usage;

/// Refreshes per second and vCPU, from Keycloak's guide "Concepts for sizing CPU and memory resources".
const KEYCLOAK_PER_CORE: f64 = 120.0;

/// A table with the columns and indexes of the refresh tokens.
const CREATE_TABLE: &str = "CREATE TABLE bare_tokens (LIKE oauth.refresh_tokens INCLUDING ALL)";

const SCRIPT: &str = "INSERT INTO bare_tokens (token_hash, grant_id, created_at) \
    VALUES (sha256(gen_random_uuid()::text::bytea), gen_random_uuid(), now()) RETURNING token_hash, grant_id;\n";

/// Adds a row for pgbench, a row for the token endpoint, and the CPU time of a refresh.
pub async fn compare(
    report: &mut Report,
    rig: &Rig,
    pgbench: &PgBench<'_>,
    url: &str,
    folder: &Path,
    args: &Args,
) -> Result<()> {
    migrations::connect(Secret::new(url.to_owned())).await?.batch_execute(CREATE_TABLE).await?;
    let script = Script::plain(&folder.join("insert_token.sql"), SCRIPT)?;
    let clients = args.connections * 2;
    report.paragraph(&format!(
        "**Refreshes.** {clients} clients with a grant each, and pgbench on {} connections, which inserts the same \
         rows without any check. {} runs of {} s.",
        args.connections, args.rounds, args.seconds
    ))?;
    report.comparison_columns(&[])?;
    let (mut bare, mut refreshes, mut cpu_times) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        bare.push(pgbench.run(&script, args.connections, args.seconds).await?);
        let before = usage::cpu_time(rig.server.program.pid())?;
        let run = refresh_repeatedly(rig, clients, Duration::from_secs(args.seconds.into())).await?;
        let used = usage::cpu_time(rig.server.program.pid())? - before;
        cpu_times.push(used / (run.rate * f64::from(args.seconds)));
        refreshes.push(run);
    }
    report.comparison("refresh", &[("INSERT … RETURNING", &bare), ("svc", &refreshes)])?;
    let [cpu_time] = percentiles(cpu_times, [50]);
    let per_core = 1.0 / cpu_time;
    report.paragraph(&format!(
        "The server uses {:.0} µs of CPU time per refresh: {per_core:.0} refreshes per second and core of the server, \
         {:.1} times the {KEYCLOAK_PER_CORE:.0} per vCPU of Keycloak's guide \"Concepts for sizing CPU and memory \
         resources\". With Postgres and the clients on the same machine: {:.0} per second and core.",
        cpu_time * 1e6,
        per_core / KEYCLOAK_PER_CORE,
        median(&refreshes).rate / f64::from(u32::try_from(std::thread::available_parallelism()?.get())?),
    ))
}

/// Refreshes grants until the time is over. Each grant is refreshed again as soon as the response to its previous
/// refresh has arrived.
async fn refresh_repeatedly(rig: &Rig, clients: u32, duration: Duration) -> Result<Run> {
    let tokens = try_join_all((0..clients).map(|_| rig.app.sign_in(&rig.session))).await?;
    let start = Instant::now();
    let refreshed = tokens.into_iter().map(|tokens| {
        let app = rig.app.clone();
        tokio::spawn(async move {
            let (mut latencies, mut current) = (Vec::new(), tokens);
            while start.elapsed() < duration {
                let sent = Instant::now();
                current = app.refresh(&current.refresh).await?.tokens()?;
                latencies.push(sent.elapsed().as_secs_f64() * 1e3);
            }
            app.revoke(&current.refresh).await?;
            anyhow::Ok(latencies)
        })
    });
    let mut latencies = Vec::new();
    for task in try_join_all(refreshed).await.context("a client stopped")? {
        latencies.extend(task?);
    }
    Run::of(latencies, duration)
}
