//! Restores through the API, and the content of generations.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::journal::Row;
use crate::bench::databases::ProjectCluster;
use crate::bench::platform::Platform;
use crate::bench::server::string_at;

/// The longest wait for a generation, for the acceptance of a restore, and for its end.
const TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A generation of the list.
pub struct Generation {
    pub epoch: u64,
    pub seq: u64,
    pub kind: String,
    /// The path of its object below the folder of the backups.
    key: String,
}

/// A restore that has ended.
pub struct Restore {
    pub generation: Generation,
    pub requested: Instant,
    pub terminal_code: Option<String>,
    pub duration: Duration,
}

/// Returns all generations, the newest first.
pub async fn generations(platform: &Platform) -> Result<Vec<Generation>> {
    let list = platform.read("journal/database/generations").await?;
    let items = list.get("items").and_then(Value::as_array).context("no items")?;
    let number = |item: &Value, name: &str| item.get(name).and_then(Value::as_u64).context("no number");
    let generation = |item: &Value| {
        let (epoch, seq) = (number(item, "epoch")?, number(item, "seq")?);
        Ok(Generation { epoch, seq, kind: string_at(item, "/kind")?, key: string_at(item, "/offsiteKey")? })
    };
    items.iter().map(generation).collect()
}

/// Waits until the schedule has made a generation.
pub async fn newest_scheduled(platform: &Platform) -> Result<Generation> {
    let start = Instant::now();
    loop {
        let all = generations(platform).await?;
        if let Some(newest) = all.into_iter().find(|generation| generation.kind == "scheduled") {
            return Ok(newest);
        }
        ensure!(start.elapsed() < TIMEOUT, "no scheduled generation");
        sleep(POLL_INTERVAL).await;
    }
}

/// Starts a restore, and returns the id of its operation.
pub async fn request(platform: &Platform, generation: &Generation) -> Result<String> {
    let body = json!({ "epoch": generation.epoch, "seq": generation.seq });
    let started = platform.call(Method::POST, "journal/database/restore", &body).await?;
    string_at(&started, "/operationId")
}

/// Waits until an operation is done, and returns its terminal code. The server may be down for a time.
pub async fn wait_until_done(platform: &Platform, operation: &str) -> Result<Option<String>> {
    let start = Instant::now();
    loop {
        let found = platform.read(&format!("journal/database/operations/{operation}")).await;
        if let Ok(found) = found
            && string_at(&found, "/phase")? == "done"
        {
            return Ok(found.get("terminalCode").and_then(Value::as_str).map(str::to_owned));
        }
        ensure!(start.elapsed() < TIMEOUT, "the restore {operation} did not end");
        sleep(POLL_INTERVAL).await;
    }
}

/// Returns the rows of a generation, read from its object with the stock `pg_restore`.
pub async fn content(cluster: &ProjectCluster, generation: &Generation) -> Result<BTreeSet<Row>> {
    let object = cluster.backups.join(&generation.key).display().to_string();
    let text = cluster.run("pg_restore", &["--data-only", "--table=journal", "--file=-", &object]).await?;
    let copied = text.lines().skip_while(|line| !line.starts_with("COPY ")).skip(1).take_while(|line| *line != "\\.");
    let row = |line: &str| {
        let (writer, number) = line.split_once('\t').context("a malformed row")?;
        Ok((writer.parse()?, number.parse()?))
    };
    copied.map(row).collect()
}
