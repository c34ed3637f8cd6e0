//! Clock jumps of one hour and one day, forward and back, by libfaketime.

use std::fs;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use tempfile::NamedTempFile;
use tokio::time::{Instant, sleep};
use xtask::debian::{Unpacked, library_folder};

use super::report::Finding;
use super::rig::{RequestProbe, Rig};
use super::{Outcome, load};

pub async fn run() -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let library = Unpacked::obtain("faketime", &["libfaketime"])
        .and_then(|packages| packages.file(&format!("{}/faketime/libfaketime.so.1", library_folder())));
    let library = match library {
        Ok(library) => library,
        Err(error) => {
            outcome.skipped.push(format!("clock jumps (libfaketime is not available: {error:#})"));
            return Ok(outcome);
        }
    };
    let file = NamedTempFile::new()?;
    fs::write(&file, "+0")?;
    let more = [
        ("LD_PRELOAD", library.display().to_string()),
        ("FAKETIME_TIMESTAMP_FILE", file.path().display().to_string()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
        // Only the wall clock jumps. The monotonic clock does not, as on a machine whose wall clock is set.
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ];
    let mut rig = Rig::start(&more).await?;
    let no_op = RequestProbe::no_op(rig.service.api);
    let (mut failures, mut mails) = (Vec::new(), 0);
    for jump in ["+3600", "+0", "-3600", "+0", "+86400", "+0", "-86400", "+0"] {
        let before = rig.writers.stats();
        fs::write(&file, jump)?;
        let reads = RequestProbe::start(rig.service.api, rig.request("GET", "/v1/me", "")?);
        let waiting = async {
            sleep(Duration::from_secs(2)).await;
            Ok(())
        };
        rig.writers.write_during(waiting).await?;
        let failed = load::count_status(&reads.stop().await?, |status| status != 200);
        let after = rig.writers.stats();
        if failed > 0 || after.acknowledged == before.acknowledged || !has_jumped(&rig, jump).await? {
            let writes = after.acknowledged - before.acknowledged;
            failures.push(format!("{jump} s: {failed} failed reads, {writes} writes"));
        }
    }
    rig.verify(&mut outcome).await?;
    let start = Instant::now();
    let invited = rig.writers.invited();
    while mails < invited.len() && start.elapsed() < Duration::from_secs(70) {
        let received = rig.smtp.0.received();
        mails = invited.iter().filter(|address| received.iter().any(|mail| mail.to.contains(address))).count();
        sleep(Duration::from_millis(100)).await;
    }
    outcome.findings.push(Finding::new(
        "clock jumps",
        "reads and writes continue; nothing needs a restart afterwards",
        failures.is_empty() && outcome.violations.is_empty() && mails == invited.len(),
        format!(
            "one hour and one day, forward and back: {} writes acknowledged, failures {failures:?}; {mails} of {} \
             mails sent within {:.0} s; no-op {:.1} ms",
            rig.writers.stats().acknowledged,
            invited.len(),
            start.elapsed().as_secs_f64(),
            load::percentile(&no_op.stop().await?, 99, |_| true),
        ),
    ));
    rig.stop().await?;
    Ok(outcome)
}

/// Returns whether the time of the newest audit row differs from the real time by the jump.
async fn has_jumped(rig: &Rig, jump: &str) -> Result<bool> {
    let rows = chaos::rows(
        &rig.database,
        "SELECT extract(epoch FROM max(created_at) - now())::float8 AS ahead FROM (\
        SELECT created_at FROM store.audit ORDER BY ctid DESC LIMIT 1) newest",
    )
    .await?;
    let ahead = rows.first().and_then(|row| row.get("ahead")).and_then(Value::as_f64).unwrap_or_default();
    Ok((ahead - jump.parse::<f64>()?).abs() < 60.0)
}
