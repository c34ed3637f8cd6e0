//! Full disks, as small file systems of their own: under Postgres' tables, under its log, under the store of bundles.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use diesel_async::{AsyncConnection as _, AsyncPgConnection, SimpleAsyncConnection as _};
use rustix::process::geteuid;
use tokio::time::{Instant, sleep};
use xtask::postgres::Cluster;

use super::report::Finding;
use super::rig::{Rig, Watch};
use super::{Outcome, wire};

const MEGABYTES: u64 = 256;

/// For how long the disk stays full.
const FULL: Duration = Duration::from_secs(5);

const FIGURE: &str = "writes 503, reads go on; nothing needs a restart afterwards";

/// A file system in a file, mounted.
struct Disk {
    folder: PathBuf,
    image: PathBuf,
}

pub async fn run() -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if !geteuid().is_root() {
        outcome.left_out.push("full disks, which take root to mount".to_owned());
        return Ok(outcome);
    }
    match (Disk::mount("tables"), Disk::mount("postgres")) {
        (Ok(first), Ok(second)) => {
            tables_and_bundles(&first, &mut outcome).await?;
            all_of_postgres(&second, &mut outcome).await?;
        }
        (Err(error), _) | (_, Err(error)) => {
            outcome.left_out.push(format!("full disks, since none can be mounted ({error:#})"));
        }
    }
    Ok(outcome)
}

/// Postgres' tables and the bundles have no room; its log, which lies elsewhere, has.
async fn tables_and_bundles(disk: &Disk, outcome: &mut Outcome) -> Result<()> {
    let (cluster, tables, bundles) = (Cluster::bench()?, disk.folder.join("tables"), disk.folder.join("bundles"));
    fs::create_dir(&bundles)?;
    cluster.private_folder(&tables)?;
    let mut connection = AsyncPgConnection::establish(&cluster.url("postgres")).await?;
    connection.batch_execute(&format!("CREATE TABLESPACE small LOCATION '{}'", tables.display())).await?;
    connection.batch_execute("CREATE DATABASE svc TABLESPACE small").await?;
    drop(connection);
    let more = [("SVC_BUNDLE_STORE", format!("file://{}", bundles.display()))];
    let mut rig = Rig::on(cluster, "svc", &more).await?;
    let (reads, no_op) =
        (Watch::start(rig.service.api, rig.request("GET", "/v1/me", "")?), Watch::no_op(rig.service.api));
    let full = async {
        sleep(Duration::from_secs(1)).await;
        disk.fill()?;
        sleep(FULL).await;
        Ok(())
    };
    rig.writers.during(full).await?;
    let refused = rig.writers.tally().statuses.get(&503).copied().unwrap_or_default();
    disk.free()?;
    let acknowledged = rig.writers.tally().acknowledged;
    write_for(&mut rig, Duration::from_secs(3)).await?;
    let (shots, no_op) = (reads.end().await?, no_op.end().await?);
    rig.look(outcome).await?;
    let failed = wire::count(&shots, |status| status != 200);
    let tally = rig.writers.tally();
    outcome.findings.push(Finding::new(
        "full disk",
        FIGURE,
        refused > 0 && failed == 0 && tally.acknowledged > acknowledged && outcome.wrong.is_empty(),
        format!(
            "under tables and bundles for {} s: {refused} writes 503, {} others; {failed} of {} reads failed; {} writes right after, \
             without a restart; no-op {:.1} ms",
            FULL.as_secs(),
            tally.wrong.len(),
            shots.len(),
            tally.acknowledged - acknowledged,
            wire::quantile(&no_op, 99, |_| true),
        ),
    ));
    rig.stop().await
}

async fn write_for(rig: &mut Rig, length: Duration) -> Result<()> {
    let waiting = async {
        sleep(length).await;
        Ok(())
    };
    rig.writers.during(waiting).await
}

/// All of Postgres has no room, its log too: should it end itself, it is started again once there is room.
async fn all_of_postgres(disk: &Disk, outcome: &mut Outcome) -> Result<()> {
    let mut rig = Rig::on(Cluster::bench_in(&disk.folder)?, "postgres", &[]).await?;
    let before = outcome.wrong.len();
    let cluster = &mut rig.cluster;
    let full = async {
        disk.fill()?;
        let start = Instant::now();
        while cluster.is_running() && start.elapsed() < Duration::from_secs(20) {
            sleep(Duration::from_millis(100)).await;
        }
        let ended = !cluster.is_running();
        sleep(Duration::from_secs(1)).await;
        disk.free()?;
        if ended {
            tokio::task::block_in_place(|| cluster.start_again())?;
        }
        Ok((ended, Instant::now()))
    };
    let (ended, back) = rig.writers.during(full).await?;
    let acknowledged = rig.writers.tally().acknowledged;
    while rig.writers.tally().acknowledged == acknowledged && back.elapsed() < Duration::from_secs(30) {
        write_for(&mut rig, Duration::from_millis(100)).await?;
    }
    let first = back.elapsed();
    rig.look(outcome).await?;
    let (wrong, tally) = (outcome.wrong.len() - before, rig.writers.tally());
    outcome.findings.push(Finding::new(
        "full disk",
        FIGURE,
        wrong == 0 && first < Duration::from_secs(5),
        format!(
            "under all of Postgres: it {}; {:?} answers until it was back; the first write {:.1} s after its return, without a restart of \
             the service; {wrong} writes lost or doubled",
            if ended { "ends itself, and reads with it" } else { "goes on" },
            tally.statuses,
            first.as_secs_f64(),
        ),
    ));
    rig.stop().await
}

impl Disk {
    fn mount(name: &str) -> Result<Self> {
        let base = std::env::temp_dir().join(format!("svc-chaos-{name}-{}", std::process::id()));
        let disk = Self { image: base.with_extension("img"), folder: base };
        File::create(&disk.image)?.set_len(MEGABYTES << 20)?;
        fs::create_dir(&disk.folder)?;
        // Nothing is reserved for root, who fills it.
        succeed(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&disk.image))?;
        succeed(Command::new("mount").args(["-o", "loop"]).arg(&disk.image).arg(&disk.folder))?;
        Ok(disk)
    }

    fn fill(&self) -> Result<()> {
        let mut filler = File::create(self.folder.join("filler"))?;
        for size in [1 << 20, 4096, 1] {
            while filler.write_all(&vec![1; size]).is_ok() {}
        }
        // Whether it has room may show only once it is written.
        let _ = filler.sync_all();
        Ok(())
    }

    fn free(&self) -> Result<()> {
        Ok(fs::remove_file(self.folder.join("filler"))?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
        let _ = fs::remove_dir(&self.folder);
        let _ = fs::remove_file(&self.image);
    }
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim_end());
    Ok(())
}
