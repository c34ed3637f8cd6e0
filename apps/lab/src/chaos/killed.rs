//! `kill -9` of the service at random, while everybody writes.

use std::time::Duration;

use anyhow::Result;
use kernel::World;
use tokio::time::sleep;

use super::report::Finding;
use super::rig::{Rig, Watch};
use super::{Outcome, wire};

const KILLS: usize = 10;

pub async fn run(rounds: usize) -> Result<Outcome> {
    let (mut outcome, mut rig) = (Outcome::default(), Rig::start(&[]).await?);
    let no_op = Watch::no_op(rig.service.api);
    let (mut ready, service) = (Vec::new(), &mut rig.service);
    let killing = async {
        for _ in 0..KILLS * rounds.div_ceil(3) {
            sleep(Duration::from_millis(200 + u64::from(u16::from_be_bytes(World::system().bytes())) % 1000)).await;
            service.kill().await?;
            ready.push(service.start_again().await?.as_millis());
        }
        sleep(Duration::from_secs(1)).await;
        Ok(())
    };
    rig.writers.during(killing).await?;
    let shots = no_op.end().await?;
    let settled = rig.look(&mut outcome).await?;
    ready.sort_unstable();
    let (median, worst) = (ready.get(ready.len() / 2).copied(), ready.last().copied().unwrap_or_default());
    let lost = outcome.wrong.len();
    outcome.findings.push(Finding::new(
        "kill -9 of the service under load",
        "no acknowledged write lost, none doubled; ready again within 2 s",
        lost == 0 && worst <= 2000,
        format!(
            "{} kills, {} writes acknowledged, {lost} lost, doubled or half done; whatever was under way settled within {:.1} s; \
             ready after {} ms, at most {worst} ms; no-op {:.1} ms",
            ready.len(),
            rig.writers.tally().acknowledged,
            settled.as_secs_f64(),
            median.unwrap_or_default(),
            wire::quantile(&shots, 99, |shot| shot.status == 200),
        ),
    ));
    rig.stop().await?;
    Ok(outcome)
}
