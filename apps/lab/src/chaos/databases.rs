//! `kill -9` of node, control plane and Postgres during restores, while clients write to the database.
//!
//! Writers insert rows and keep a journal. Afterwards, each acknowledged row must be in the database or in a generation
//! of kind `pre_restore`. The database must contain the last restored generation, and no row that was acknowledged
//! between that generation and its restore.

pub mod journal;
pub mod restore;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use chaos::run_clients;
use futures_util::future::join_all;
use tokio::time::sleep;
use xtask::postgres::{Cluster, Stop};
use xtask::services::Services;

use super::Outcome;
use super::report::Finding;
use super::rig::restart_postgres;
use crate::bench::databases::{Database, ProjectCluster};
use crate::bench::machine::with_services;
use crate::bench::platform::{Platform, Settings};
use crate::bench::server::SEALING_KEY;
use crate::random;
use journal::{Row, Write};
use restore::Restore;

const WRITERS: i32 = 4;
/// The pause of a writer between two rows.
const PAUSE: Duration = Duration::from_millis(2);
/// The number of restores in a round: two for each program that is killed.
const RESTORES_PER_ROUND: usize = 6;
/// A program is killed within this time after the request of a restore, in milliseconds.
const MAX_DELAY: u64 = 4000;
/// The longest wait for the next acknowledged row after a restore.
const TIMEOUT: Duration = Duration::from_secs(60);

pub async fn run(rounds: usize) -> Result<Outcome> {
    with_services(async |services, folder| {
        let (cluster, control_plane) = (ProjectCluster::start(services, folder)?, Cluster::bench()?);
        let url = control_plane.url("postgres");
        let mut node = cluster.settings();
        node.push(("SVC_NODE_BACKUP_INTERVAL", "5s".to_owned()));
        let settings = Settings { node, ..Settings::default() };
        let platform = Platform::start_on(services, folder, control_plane, settings).await?;
        measure(&platform, services, &url, &cluster, rounds).await
    })
    .await
}

async fn measure(
    platform: &Platform,
    services: &mut Services,
    url: &str,
    cluster: &ProjectCluster,
    rounds: usize,
) -> Result<Outcome> {
    platform.create_project("journal").await?;
    let database = Database::enable(platform, "journal").await?;
    database.wait_until_usable().await?.batch_execute(journal::CREATE).await?;
    let (stopped, writes) = (AtomicBool::new(false), journal::Journal::default());
    let writers = (0..WRITERS).map(|writer| journal::write(&database, writer, PAUSE, &writes, &stopped));
    let faults = restore_repeatedly(platform, services, &writes, RESTORES_PER_ROUND * rounds);
    let (_, restores) = run_clients(join_all(writers), &stopped, faults).await?;
    let (mut outcome, writes) = (Outcome::default(), writes.into_writes());
    verify(platform, cluster, &database, &writes, &restores, &mut outcome).await?;
    outcome.violations.extend(chaos::violations(url, &[SEALING_KEY]).await?);
    let longest = restores.iter().map(|restore| restore.duration).max().unwrap_or_default();
    outcome.findings.push(Finding::new(
        "kill -9 of node, control plane or Postgres during a restore, while clients write to the database",
        "every restore ends; each acknowledged row is in the database or in a pre_restore generation; the database has \
         the content of the restored generation, and nothing that was acknowledged before the restore in addition",
        outcome.violations.is_empty(),
        format!(
            "{} restores, each with a kill, {} rows acknowledged, {} violations; longest restore {:.1} s",
            restores.len(),
            writes.iter().filter(|write| write.acknowledged.is_some()).count(),
            outcome.violations.len(),
            longest.as_secs_f64(),
        ),
    ));
    Ok(outcome)
}

/// Restores the newest scheduled generation. Kills node, control plane or Postgres during each restore, in turn.
async fn restore_repeatedly(
    platform: &Platform,
    services: &mut Services,
    writes: &journal::Journal,
    count: usize,
) -> Result<Vec<Restore>> {
    let mut restores = Vec::new();
    for number in 0..count {
        let generation = restore::newest_scheduled(platform).await?;
        let requested = Instant::now();
        let operation = restore::request(platform, &generation).await?;
        sleep(random::millis(0..MAX_DELAY)).await;
        match number % 3 {
            0 => platform.node.kill_and_restart(services).await?,
            1 => platform.server.program.kill_and_restart(services).await?,
            _ => restart_postgres(services.projects_postgres.as_mut(), Stop::Immediate).await?,
        }
        let terminal_code = restore::wait_until_done(platform, &operation).await?;
        restores.push(Restore { generation, requested, terminal_code, duration: requested.elapsed() });
        wait_for_write(writes).await?;
    }
    Ok(restores)
}

/// Compares the journal with the database and its generations.
pub async fn verify(
    platform: &Platform,
    cluster: &ProjectCluster,
    database: &Database,
    writes: &[Write],
    restores: &[Restore],
    outcome: &mut Outcome,
) -> Result<()> {
    let last = restores.iter().rfind(|restore| restore.terminal_code.is_none()).context("no restore succeeded")?;
    for failed in restores.iter().filter(|restore| restore.terminal_code.is_some()) {
        outcome.violations.push(format!("a restore ended with {:?} after a fault", failed.terminal_code));
    }
    let present = journal::rows(&database.wait_until_usable().await?).await?;
    let content = restore::content(cluster, &last.generation).await?;
    let kept = kept_rows(platform, cluster).await?;
    ensure!(!content.is_empty() && !kept.is_empty(), "the generations contain no rows");
    check(writes, &present, &content, &kept, last, outcome);
    Ok(())
}

/// Waits until another row is acknowledged, which shows that the database is in use again.
pub async fn wait_for_write(writes: &journal::Journal) -> Result<()> {
    let (start, before) = (Instant::now(), writes.acknowledged());
    while writes.acknowledged() == before {
        ensure!(start.elapsed() < TIMEOUT, "no row was acknowledged after a restore");
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Returns the rows in all generations of kind `pre_restore`.
async fn kept_rows(platform: &Platform, cluster: &ProjectCluster) -> Result<BTreeSet<Row>> {
    let mut kept = BTreeSet::new();
    for generation in restore::generations(platform).await?.iter().filter(|it| it.kind == "pre_restore") {
        kept.extend(restore::content(cluster, generation).await?);
    }
    Ok(kept)
}

fn check(
    writes: &[Write],
    present: &BTreeSet<Row>,
    restored: &BTreeSet<Row>,
    kept: &BTreeSet<Row>,
    last: &Restore,
    outcome: &mut Outcome,
) {
    let missing = restored.difference(present).count();
    if missing > 0 {
        outcome.violations.push(format!("{missing} rows of the restored generation are not in the database"));
    }
    let written: BTreeSet<Row> = writes.iter().map(|write| write.row).collect();
    let unknown = present.difference(&written).count();
    if unknown > 0 {
        outcome.violations.push(format!("{unknown} rows of the database were never written"));
    }
    for Write { row, acknowledged } in writes {
        let Some(acknowledged) = acknowledged else { continue };
        if !present.contains(row) && !kept.contains(row) {
            outcome.violations.push(format!("the row {row:?} is neither in the database nor in a generation"));
        }
        if *acknowledged < last.requested && present.contains(row) && !restored.contains(row) {
            outcome.violations.push(format!("the row {row:?} is later than the restored generation"));
        }
    }
}
