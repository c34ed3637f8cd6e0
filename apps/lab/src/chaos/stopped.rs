//! SIGTERM under load.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::report::Finding;
use super::rig::Rig;
use super::wire::{self, Ask};

pub async fn run(rounds: usize) -> Result<Outcome> {
    let (mut outcome, mut rig) = (Outcome::default(), Rig::start(&[]).await?);
    let (mut took, mut accepted, mut failed, mut unclean) = (Vec::new(), 0, 0, 0);
    let callers = (0..8).map(|number| rig.caller(number)).collect::<Result<Vec<_>>>()?;
    let reads: Ask = Arc::new(move |number| {
        let Some((token, org)) = callers.get(number as usize % callers.len()) else { return Vec::new() };
        wire::request("GET", &format!("/v1/orgs/{org}/projects/site/overview"), token, "")
    });
    for _ in 0..rounds {
        let api = rig.service.api;
        let load = tokio::spawn({
            let reads = reads.clone();
            async move { wire::closed(api, &reads, 32, Duration::from_secs(2)).await }
        });
        let service = &mut rig.service;
        let stopping = async {
            sleep(Duration::from_secs(1)).await;
            let at = Instant::now();
            let (status, took) = service.terminate().await?;
            // The writers go on where they were.
            service.start_again().await?;
            Ok((at, status, took))
        };
        let (at, status, ended) = rig.writers.during(stopping).await?;
        let shots = load.await?;
        let sent_before: Vec<_> = shots.iter().filter(|shot| shot.at < at).collect();
        accepted += sent_before.len();
        failed += sent_before.iter().filter(|shot| shot.status != 200).count();
        unclean += usize::from(!status.success());
        took.push(ended.as_secs_f64());
    }
    rig.look(&mut outcome).await?;
    let longest = took.iter().copied().fold(0.0, f64::max);
    outcome.findings.push(Finding::new(
        "SIGTERM under load",
        "no accepted request fails; exit within 30 s",
        failed == 0 && unclean == 0 && longest <= 30.0 && outcome.wrong.is_empty(),
        format!(
            "{} times, with 32 connections reading and 8 writing: {failed} of {accepted} requests sent before it failed; exit within {longest:.1} s, \
             {unclean} with another status than 0; {} writes lost or doubled",
            took.len(),
            outcome.wrong.len(),
        ),
    ));
    rig.stop().await?;
    Ok(outcome)
}
