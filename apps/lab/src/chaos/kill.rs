//! `kill -9` of the service at random times, under write load.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::report::Finding;
use super::rig::{RequestProbe, Rig};
use super::{Outcome, load};
use crate::random;

const KILLS: usize = 10;

pub async fn run(rounds: usize) -> Result<Outcome> {
    let (mut outcome, mut rig) = (Outcome::default(), Rig::start(&[]).await?);
    let no_op = RequestProbe::no_op(rig.service.api);
    let (mut ready, service) = (Vec::new(), &mut rig.service);
    let killing = async {
        for _ in 0..KILLS * rounds.div_ceil(3) {
            sleep(random::millis(200..1200)).await;
            service.kill().await?;
            ready.push(service.restart().await?.as_millis());
        }
        sleep(Duration::from_secs(1)).await;
        Ok(())
    };
    rig.writers.write_during(killing).await?;
    let samples = no_op.stop().await?;
    let resolved = rig.verify(&mut outcome).await?;
    ready.sort_unstable();
    let (median, worst) = (ready.get(ready.len() / 2).copied(), ready.last().copied().unwrap_or_default());
    let lost = outcome.violations.len();
    outcome.findings.push(Finding::new(
        "kill -9 of the service under load",
        "no acknowledged write lost or duplicated; ready again within 2 s",
        lost == 0 && worst <= 2000,
        format!(
            "{} kills, {} writes acknowledged, {lost} lost, duplicated or incomplete; pending writes resolved within \
             {:.1} s; ready after {} ms, at most {worst} ms; no-op {:.1} ms",
            ready.len(),
            rig.writers.stats().acknowledged,
            resolved.as_secs_f64(),
            median.unwrap_or_default(),
            load::percentile(&samples, 99, |sample| sample.status == 200),
        ),
    ));
    rig.stop().await?;
    Ok(outcome)
}
