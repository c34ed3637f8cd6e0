//! Restores of a database while clients write to it.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use kernel::ClockRng;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::pause::pause;
use super::rig::Rig;
use crate::bench::server::string_at;
use crate::chaos::databases::journal::Journal;
use crate::chaos::databases::restore::{Generation, Restore, newest_scheduled, wait_until_done};
use crate::chaos::databases::wait_for_write;

/// The pause before each restore.
const PAUSE: Duration = Duration::from_secs(30);
/// The delay before a request is sent again.
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// The longest wait for a response whose outcome is known.
const TIMEOUT: Duration = Duration::from_secs(120);

const NEWEST: &str = "\
    SELECT pg_temp.public_id('opn', id) AS id FROM databases.operations ORDER BY created_at DESC LIMIT 1";

/// Restores the newest scheduled generation repeatedly until stopped.
pub async fn run(rig: &Rig, journal: &Journal, stopped: &AtomicBool) -> Result<Vec<Restore>> {
    let mut restores = Vec::new();
    while pause(PAUSE, stopped).await {
        // The previous restore has ended.
        wait_for_write(journal).await?;
        // The request fails while the server is down.
        let Ok(generation) = newest_scheduled(&rig.platform).await else { continue };
        let requested = Instant::now();
        let operation = start(rig, &generation).await?;
        let terminal_code = wait_until_done(&rig.platform, &operation).await?;
        restores.push(Restore { generation, requested, terminal_code, duration: requested.elapsed() });
    }
    Ok(restores)
}

/// Sends a request with the same idempotency key until its outcome is known. Returns the id of the operation.
async fn start(rig: &Rig, generation: &Generation) -> Result<String> {
    let (start, key) = (Instant::now(), ClockRng::system().id::<uuid::Uuid>().to_string());
    let body = json!({ "epoch": generation.epoch, "seq": generation.seq });
    loop {
        ensure!(start.elapsed() < TIMEOUT, "no restore was started");
        let path = "/v1/orgs/ada/projects/journal/database/restore";
        let request = rig.platform.server.request(Method::POST, path).header("idempotency-key", &key).json(&body);
        let response = async {
            let response = request.send().await?;
            let status = response.status().as_u16();
            reqwest::Result::Ok((status, response.json::<Value>().await?))
        };
        let Ok((status, answer)) = response.await else {
            sleep(RETRY_DELAY).await;
            continue;
        };
        match (status, answer.get("code").and_then(Value::as_str).unwrap_or_default()) {
            (200..=299, _) => return string_at(&answer, "/operationId"),
            (409, "idempotency_answer_lost") => return newest(rig).await,
            (409, "idempotency_in_progress") | (429 | 503, _) => sleep(RETRY_DELAY).await,
            _ => bail!("the restore returned {status}: {answer}"),
        }
    }
}

/// Returns the id of the newest operation.
async fn newest(rig: &Rig) -> Result<String> {
    let rows = chaos::rows(&rig.database, NEWEST).await?;
    string_at(rows.first().context("no operation")?, "/id")
}
