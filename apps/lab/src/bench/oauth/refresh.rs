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
use crate::bench::report::COMPARISON_COLUMNS;
use crate::bench::run::{Run, median, percentile};
use crate::usage;

/// Refreshes per second and vCPU, from Keycloak's guide "Concepts for sizing CPU and memory resources".
const KEYCLOAK_PER_CORE: f64 = 120.0;

/// A table with the columns and indexes of the refresh tokens.
const CREATE_TABLE: &str = "CREATE TABLE bare_tokens (LIKE oauth.refresh_tokens INCLUDING ALL)";

const SCRIPT: &str = "INSERT INTO bare_tokens (token_hash, grant_id, created_at) \
    VALUES (sha256(gen_random_uuid()::text::bytea), gen_random_uuid(), now()) RETURNING token_hash, grant_id;\n";

/// Prints a row for pgbench, a row for the token endpoint, and the CPU time of a refresh.
pub async fn compare(rig: &Rig, pgbench: &PgBench<'_>, url: &str, folder: &Path, args: &Args) -> Result<()> {
    migrations::connect(Secret::new(url.to_owned())).await?.batch_execute(CREATE_TABLE).await?;
    let script = Script::plain(&folder.join("insert_token.sql"), SCRIPT)?;
    let clients = args.connections * 2;
    println!("\nRefreshes, {clients} clients with a grant each, {} s, median of {}\n", args.seconds, args.rounds);
    println!("| {} |\n|{}", COMPARISON_COLUMNS.join(" | "), "---|".repeat(COMPARISON_COLUMNS.len()));
    let (mut bare, mut refreshes, mut cpu_times) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        bare.push(pgbench.run(&script, args.connections, args.seconds).await?);
        let before = usage::cpu_time(rig.server.pid)?;
        let run = refresh_repeatedly(rig, clients, Duration::from_secs(args.seconds.into())).await?;
        let used = usage::cpu_time(rig.server.pid)? - before;
        cpu_times.push(used / (run.rate * f64::from(args.seconds)));
        refreshes.push(run);
    }
    let (bare, refreshes) = (median(&bare), median(&refreshes));
    println!("{}", bare.row("refresh", "INSERT … RETURNING", 1.0));
    println!("{}", refreshes.row("", "svc", refreshes.rate / bare.rate));
    cpu_times.sort_by(f64::total_cmp);
    let per_core = 1.0 / percentile(&cpu_times, 50);
    println!(
        "\nThe server uses {:.0} µs of CPU time per refresh: {per_core:.0} refreshes per second and core of the server, \
         {:.1} times Keycloak's {KEYCLOAK_PER_CORE:.0} per vCPU. With Postgres and the clients on the same machine: \
         {:.0} per second and core.",
        percentile(&cpu_times, 50) * 1e6,
        per_core / KEYCLOAK_PER_CORE,
        refreshes.rate / f64::from(u32::try_from(std::thread::available_parallelism()?.get())?),
    );
    Ok(())
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
