//! SIGTERM under load.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};

use super::Outcome;
use super::load::{self, RequestSource};
use super::report::Finding;
use super::rig::Rig;

pub async fn run(rounds: usize) -> Result<Outcome> {
    let (mut outcome, mut rig) = (Outcome::default(), Rig::start(&[]).await?);
    let (mut durations, mut accepted, mut failed, mut unclean) = (Vec::new(), 0, 0, 0);
    let callers = (0..8).map(|number| rig.caller(number)).collect::<Result<Vec<_>>>()?;
    let reads: RequestSource = Arc::new(move |number| {
        let Some((token, org)) = callers.get(number as usize % callers.len()) else { return Vec::new() };
        load::request("GET", &format!("/v1/orgs/{org}/projects/site/overview"), token, "")
    });
    for _ in 0..rounds {
        let api = rig.service.api;
        let load = tokio::spawn({
            let reads = reads.clone();
            async move { load::closed_loop(api, &reads, 32, Duration::from_secs(2)).await }
        });
        let service = &mut rig.service;
        let restart = async {
            sleep(Duration::from_secs(1)).await;
            let signal_at = Instant::now();
            let (status, duration) = service.terminate().await?;
            // The writers continue with their journals.
            service.restart().await?;
            Ok((signal_at, status, duration))
        };
        let (signal_at, status, duration) = rig.writers.write_during(restart).await?;
        let samples = load.await?;
        let sent_before: Vec<_> = samples.iter().filter(|sample| sample.scheduled_at < signal_at).collect();
        accepted += sent_before.len();
        failed += sent_before.iter().filter(|sample| sample.status != 200).count();
        unclean += usize::from(!status.success());
        durations.push(duration.as_secs_f64());
    }
    rig.verify(&mut outcome).await?;
    let longest = durations.iter().copied().fold(0.0, f64::max);
    outcome.findings.push(Finding::new(
        "SIGTERM under load",
        "no accepted request fails; exit within 30 s",
        failed == 0 && unclean == 0 && longest <= 30.0 && outcome.violations.is_empty(),
        format!(
            "{} times, with 32 connections reading and 8 writing: {failed} of {accepted} requests sent before the \
             signal failed; exit within {longest:.1} s, {unclean} with a nonzero status; {} writes lost or duplicated",
            durations.len(),
            outcome.violations.len(),
        ),
    ));
    rig.stop().await?;
    Ok(outcome)
}
