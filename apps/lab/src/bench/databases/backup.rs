//! The time of a dump, and the latency of another project's queries during it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_postgres::Client;

use super::Database;
use super::enabling::milliseconds;
use crate::bench::platform::Platform;
use crate::bench::report::Report;
use crate::bench::run::percentiles;

/// The number of dumps.
const DUMPS: usize = 5;
/// The duration of the measurement without a dump.
const BASELINE: Duration = Duration::from_secs(5);
/// The size of a row in bytes, which do not compress.
const ROW_BYTES: u32 = 1024;

/// Exports a database several times while another project queries its own, and adds a row. An export is a dump that
/// is stored, read back and verified like a backup.
pub async fn measure(report: &mut Report, platform: &Platform, megabytes: u32) -> Result<()> {
    for name in ["large", "neighbour"] {
        platform.create_project(name).await?;
    }
    let large = Database::enable(platform, "large").await?.wait_until_usable().await?;
    fill(&large, megabytes).await?;
    let neighbour = Database::enable(platform, "neighbour").await?.wait_until_usable().await?;
    fill(&neighbour, 1).await?;
    let done = AtomicBool::new(false);
    let baseline = async {
        sleep(BASELINE).await;
        done.store(true, Ordering::Relaxed);
    };
    let (before, ()) = tokio::join!(query(&neighbour, &done), baseline);
    let done = AtomicBool::new(false);
    let (during, exported) = tokio::join!(query(&neighbour, &done), async {
        let exported = export(platform).await;
        done.store(true, Ordering::Relaxed);
        exported
    });
    let (seconds, bytes) = exported?;
    report.paragraph(&format!(
        "**Dumps.** {DUMPS} dumps of {:.0} MB, each stored in a folder, read back and verified, and the queries of \
         another project at the same time.",
        bytes as f64 / 1e6
    ))?;
    let (query, without) = ("query of another project, p50 ms", "without a dump, p50 ms");
    report.columns(&["seconds, median", query, "p99 ms", without, "p99 ms"])?;
    let figures = [during?, before?].map(|ms| percentiles(ms, [50, 99]).map(|ms| format!("{ms:.2}")));
    let [[p50, p99], [p50_before, p99_before]] = &figures;
    report.row(&[&format!("{seconds:.1}"), p50, p99, p50_before, p99_before])
}

async fn fill(client: &Client, megabytes: u32) -> Result<()> {
    // The rows contain digests, which do not compress. A dump writes each byte as two digits, which compress to about
    // one byte.
    let rows = megabytes * 1_000_000 / ROW_BYTES;
    let statement = format!(
        "CREATE TABLE items (id int PRIMARY KEY, body bytea NOT NULL); \
         INSERT INTO items SELECT row, (SELECT string_agg(sha256((row || '.' || part)::text::bytea), '') \
             FROM generate_series(1, {ROW_BYTES} / 32) part) FROM generate_series(1, {rows}) row; \
         ANALYZE items"
    );
    Ok(client.batch_execute(&statement).await?)
}

/// Queries rows by key until done. Returns the latencies in milliseconds.
async fn query(client: &Client, done: &AtomicBool) -> Result<Vec<f64>> {
    let mut latencies = Vec::new();
    for number in 0_i32.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let start = Instant::now();
        client.query("SELECT length(body) FROM items WHERE id = $1", &[&(1 + number % 900)]).await?;
        latencies.push(milliseconds(start));
        sleep(Duration::from_millis(2)).await;
    }
    Ok(latencies)
}

/// Returns the median duration in seconds, and the size in bytes.
async fn export(platform: &Platform) -> Result<(f64, u64)> {
    let (mut seconds, mut bytes) = (Vec::new(), 0);
    for _ in 0..DUMPS {
        let start = Instant::now();
        let exported = platform.call(Method::POST, "large/database/export", &json!(null)).await?;
        seconds.push(start.elapsed().as_secs_f64());
        bytes = exported.get("sizeBytes").and_then(Value::as_u64).context("no sizeBytes")?;
    }
    let [median] = percentiles(seconds, [50]);
    Ok((median, bytes))
}
