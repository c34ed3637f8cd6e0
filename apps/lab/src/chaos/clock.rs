//! The service's clock jumps, by libfaketime: forwards and back by an hour and by a day.

use std::fs;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use xtask::debian::{Unpacked, library_folder};

use super::report::Finding;
use super::rig::{Rig, Watch};
use super::{Outcome, wire};

pub async fn run() -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let library = Unpacked::obtain("faketime", &["libfaketime"])
        .and_then(|packages| packages.file(&format!("{}/faketime/libfaketime.so.1", library_folder())));
    let library = match library {
        Ok(library) => library,
        Err(error) => {
            outcome.left_out.push(format!("jumps of the clock, since libfaketime is not to be had ({error:#})"));
            return Ok(outcome);
        }
    };
    let file = std::env::temp_dir().join(format!("svc-chaos-clock-{}", std::process::id()));
    fs::write(&file, "+0")?;
    let more = [
        ("LD_PRELOAD", library.display().to_string()),
        ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
        // What counts how long something takes goes on as ever, as it does when somebody sets the clock.
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ];
    let mut rig = Rig::start(&more).await?;
    let no_op = Watch::no_op(rig.service.api);
    let (mut wrong, mut mails) = (Vec::new(), 0);
    for jump in ["+3600", "+0", "-3600", "+0", "+86400", "+0", "-86400", "+0"] {
        // A key is remembered for a day: what is under way when the clock jumps that far could be sent twice.
        rig.writers.settle().await?;
        let before = rig.writers.tally();
        fs::write(&file, jump)?;
        let asked = Watch::start(rig.service.api, rig.request("GET", "/v1/me", "")?);
        let waiting = async {
            sleep(Duration::from_secs(2)).await;
            Ok(())
        };
        rig.writers.during(waiting).await?;
        let failed = wire::count(&asked.end().await?, |status| status != 200);
        let after = rig.writers.tally();
        if failed > 0 || after.acknowledged == before.acknowledged || !is_shifted(&rig, jump).await? {
            wrong.push(format!("{jump} s: {failed} reads failed, {} writes", after.acknowledged - before.acknowledged));
        }
    }
    rig.look(&mut outcome).await?;
    let start = Instant::now();
    let invited = rig.writers.invited();
    while mails < invited.len() && start.elapsed() < Duration::from_secs(70) {
        let received = rig.smtp.0.received();
        mails = invited.iter().filter(|address| received.iter().any(|mail| mail.to.contains(address))).count();
        sleep(Duration::from_millis(100)).await;
    }
    fs::remove_file(file)?;
    outcome.findings.push(Finding::new(
        "clock jumps",
        "reads and writes go on; nothing needs a restart afterwards",
        wrong.is_empty() && outcome.wrong.is_empty() && mails == invited.len(),
        format!(
            "an hour and a day, forwards and back: {} writes acknowledged, wrong {wrong:?}; {mails} of {} mails out within {:.0} s; no-op \
             {:.1} ms",
            rig.writers.tally().acknowledged,
            invited.len(),
            start.elapsed().as_secs_f64(),
            wire::quantile(&no_op.end().await?, 99, |_| true),
        ),
    ));
    rig.stop().await?;
    Ok(outcome)
}

/// Whether the service believes in the jump: what it writes now bears its time.
async fn is_shifted(rig: &Rig, jump: &str) -> Result<bool> {
    let rows = chaos::rows(
        &rig.database,
        "SELECT extract(epoch FROM max(created_at) - now())::float8 AS ahead FROM (\
        SELECT created_at FROM store.audit ORDER BY ctid DESC LIMIT 1) newest",
    )
    .await?;
    let ahead = rows.first().and_then(|row| row.get("ahead")).and_then(Value::as_f64).unwrap_or_default();
    Ok((ahead - jump.parse::<f64>()?).abs() < 60.0)
}
