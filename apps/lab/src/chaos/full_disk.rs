//! Full disks: small file systems for the tables and bundles, and for all Postgres files including the WAL.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use diesel_async::{AsyncConnection as _, AsyncPgConnection, SimpleAsyncConnection as _};
use rustix::process::geteuid;
use tokio::time::{Instant, sleep};
use xtask::obtain;
use xtask::postgres::Cluster;

use super::report::Finding;
use super::rig::{RequestProbe, Rig};
use super::{Outcome, load};

const DISK_SIZE_MB: u64 = 256;

/// How long the disk stays full.
const FULL_DURATION: Duration = Duration::from_secs(5);

const TARGET: &str = "writes return 503, reads continue; nothing needs a restart afterwards";

/// The target if Postgres itself has no disk space left.
const POSTGRES_TARGET: &str = "no acknowledged write is lost; nothing needs a restart of the service afterwards";

/// A mounted file system in an image file.
struct Disk {
    folder: PathBuf,
    image: PathBuf,
}

pub async fn run() -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if !geteuid().is_root() {
        outcome.skipped.push("full disks (mounting a file system needs root)".to_owned());
        return Ok(outcome);
    }
    match (Disk::mount("tables"), Disk::mount("postgres")) {
        (Ok(first), Ok(second)) => {
            fill_tables_and_bundles(&first, &mut outcome).await?;
            fill_postgres(&second, &mut outcome).await?;
        }
        (Err(error), _) | (_, Err(error)) => {
            outcome.skipped.push(format!("full disks (no file system could be mounted: {error:#})"));
        }
    }
    Ok(outcome)
}

/// Fills the disk of the Postgres tables and the bundles. The WAL is on another disk.
async fn fill_tables_and_bundles(disk: &Disk, outcome: &mut Outcome) -> Result<()> {
    let (cluster, tables, bundles) = (Cluster::bench()?, disk.folder.join("tables"), disk.folder.join("bundles"));
    fs::create_dir(&bundles)?;
    cluster.private_folder(&tables)?;
    let mut connection = AsyncPgConnection::establish(&cluster.url("postgres")).await?;
    connection.batch_execute(&format!("CREATE TABLESPACE small LOCATION '{}'", tables.display())).await?;
    connection.batch_execute("CREATE DATABASE svc TABLESPACE small").await?;
    drop(connection);
    let more = [("SVC_BUNDLE_STORE", format!("file://{}", bundles.display()))];
    let mut rig = Rig::start_on(cluster, "svc", &more).await?;
    let (reads, no_op) =
        (RequestProbe::start(rig.service.api, rig.request("GET", "/v1/me", "")?), RequestProbe::no_op(rig.service.api));
    let full = async {
        sleep(Duration::from_secs(1)).await;
        disk.fill()?;
        sleep(FULL_DURATION).await;
        Ok(())
    };
    rig.writers.write_during(full).await?;
    let rejected = rig.writers.stats().statuses.get(&503).copied().unwrap_or_default();
    disk.free()?;
    let acknowledged = rig.writers.stats().acknowledged;
    write_for(&mut rig, Duration::from_secs(3)).await?;
    let (samples, no_op) = (reads.stop().await?, no_op.stop().await?);
    rig.verify(outcome).await?;
    let failed = load::count_status(&samples, |status| status != 200);
    let stats = rig.writers.stats();
    let met = rejected > 0 && failed == 0 && stats.unexpected.is_empty() && stats.acknowledged > acknowledged;
    outcome.findings.push(Finding::new(
        "full disk",
        TARGET,
        met && outcome.violations.is_empty(),
        format!(
            "tables and bundles on a full disk for {} s: {rejected} writes 503, {} other failures; {failed} of {} \
             reads failed; {} writes afterwards, without a restart; no-op {:.1} ms",
            FULL_DURATION.as_secs(),
            stats.unexpected.len(),
            samples.len(),
            stats.acknowledged - acknowledged,
            load::percentile(&no_op, 99, |_| true),
        ),
    ));
    rig.stop().await
}

async fn write_for(rig: &mut Rig, duration: Duration) -> Result<()> {
    let waiting = async {
        sleep(duration).await;
        Ok(())
    };
    rig.writers.write_during(waiting).await
}

/// Fills the disk of all Postgres files, including the WAL. Restarts Postgres after the disk is freed, if it stopped.
async fn fill_postgres(disk: &Disk, outcome: &mut Outcome) -> Result<()> {
    let mut rig = Rig::start_on(Cluster::bench_in(&disk.folder)?, "postgres", &[]).await?;
    let before = outcome.violations.len();
    let cluster = &mut rig.cluster;
    let full = async {
        disk.fill()?;
        let start = Instant::now();
        while cluster.is_running() && start.elapsed() < Duration::from_secs(20) {
            sleep(Duration::from_millis(100)).await;
        }
        let stopped = !cluster.is_running();
        sleep(Duration::from_secs(1)).await;
        disk.free()?;
        if stopped {
            tokio::task::block_in_place(|| cluster.restart())?;
        }
        Ok((stopped, Instant::now()))
    };
    let (stopped, freed_at) = rig.writers.write_during(full).await?;
    let acknowledged = rig.writers.stats().acknowledged;
    while rig.writers.stats().acknowledged == acknowledged && freed_at.elapsed() < Duration::from_secs(30) {
        write_for(&mut rig, Duration::from_millis(100)).await?;
    }
    let first_write = freed_at.elapsed();
    rig.verify(outcome).await?;
    let (lost, stats) = (outcome.violations.len() - before, rig.writers.stats());
    outcome.findings.push(Finding::new(
        "full disk",
        POSTGRES_TARGET,
        lost == 0 && first_write < Duration::from_secs(5),
        format!(
            "all Postgres files on a full disk: Postgres {}; responses until the disk was freed {:?}; first write \
             {:.1} s afterwards, without a restart of the service; {lost} writes lost or duplicated",
            if stopped { "stops, and reads fail" } else { "keeps running" },
            stats.statuses,
            first_write.as_secs_f64(),
        ),
    ));
    rig.stop().await
}

impl Disk {
    fn mount(name: &str) -> Result<Self> {
        let base = std::env::temp_dir().join(format!("svc-chaos-{name}-{}", std::process::id()));
        let disk = Self { image: base.with_extension("img"), folder: base };
        File::create(&disk.image)?.set_len(DISK_SIZE_MB << 20)?;
        fs::create_dir(&disk.folder)?;
        // No blocks are reserved for root, because root fills the disk.
        obtain::run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&disk.image))?;
        obtain::run(Command::new("mount").args(["-o", "loop"]).arg(&disk.image).arg(&disk.folder))?;
        Ok(disk)
    }

    fn fill(&self) -> Result<()> {
        let mut filler = File::create(self.folder.join("filler"))?;
        for size in [1 << 20, 4096, 1] {
            while filler.write_all(&vec![1; size]).is_ok() {}
        }
        // Delayed allocation may report a full disk only at the sync.
        let _ = filler.sync_all();
        Ok(())
    }

    fn free(&self) -> Result<()> {
        Ok(fs::remove_file(self.folder.join("filler"))?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Fails if `mount` failed. Files that cannot be removed are in the temporary folder.
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
        let _ = fs::remove_dir(&self.folder);
        let _ = fs::remove_file(&self.image);
    }
}
