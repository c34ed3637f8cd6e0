//! Five times the load that can be sustained: what could be answered still is, and the rest is told at once.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::Outcome;
use super::report::Finding;
use super::rig::{Rig, Watch};
use super::wire::{self, Ask, Shot};
use crate::usage;

const LENGTH: Duration = Duration::from_secs(5);

pub async fn run(rounds: usize) -> Result<Outcome> {
    let (mut outcome, rig) = (Outcome::default(), Rig::start(&[]).await?);
    let ask = mixture(&rig)?;
    let api = rig.service.api;
    // What is asked for the first time is slower.
    wire::closed(api, &ask, 16, Duration::from_secs(2)).await;
    let mut seen = Vec::new();
    for _ in 0..rounds {
        let peak = rate(&wire::closed(api, &ask, 16, LENGTH).await);
        let sustainable = sustainable(&rig, &ask, peak).await;
        let before = wire::open(api, &ask, sustainable / 2.0, LENGTH / 2).await;
        let (no_op, busy) = (Watch::no_op(api), usage::processor_time(process::id())?);
        let during = wire::open(api, &ask, sustainable * 5.0, LENGTH).await;
        let (no_op, busy) = (no_op.end().await?, (usage::processor_time(process::id())? - busy) / LENGTH.as_secs_f64());
        sleep(Duration::from_secs(5)).await;
        let after = wire::open(api, &ask, sustainable / 2.0, LENGTH / 2).await;
        seen.push(Seen::new(peak, sustainable, [&before, &during, &after], (&no_op, busy)));
    }
    // The middle one by what was kept.
    seen.sort_by(|a, b| a.kept().total_cmp(&b.kept()));
    outcome.findings.extend(seen.get(seen.len() / 2).map(Seen::finding));
    let mut rig = rig;
    rig.look(&mut outcome).await?;
    rig.stop().await?;
    Ok(outcome)
}

/// Seven reads of a project, two of members and one new project with its audit row in ten, spread over all organizations.
fn mixture(rig: &Rig) -> Result<Ask> {
    let callers = (0..8).map(|number| rig.caller(number)).collect::<Result<Vec<_>>>()?;
    let made = AtomicU64::new(0);
    Ok(Arc::new(move |number| {
        let Some((token, org)) = callers.get((number / 10) as usize % callers.len()) else { return Vec::new() };
        match number % 10 {
            0 => {
                let body = format!(r#"{{"name":"load{}"}}"#, made.fetch_add(1, Ordering::Relaxed));
                wire::request("POST", &format!("/v1/orgs/{org}/projects"), token, &body)
            }
            1 | 2 => wire::request("GET", &format!("/v1/orgs/{org}/members"), token, ""),
            _ => wire::request("GET", &format!("/v1/orgs/{org}/projects/site"), token, ""),
        }
    }))
}

/// Good answers a second, from the first to the last.
fn rate(shots: &[Shot]) -> f64 {
    let (first, last) = (shots.iter().map(|it| it.at).min(), shots.iter().map(|it| it.at + it.took).max());
    let length = first.zip(last).map_or(f64::INFINITY, |(first, last)| (last - first).as_secs_f64());
    wire::count(shots, wire::is_good) as f64 / length
}

/// The most that is answered without failure and within 100 ms, 99 times of a hundred, however it comes.
async fn sustainable(rig: &Rig, ask: &Ask, peak: f64) -> f64 {
    for percent in [90, 80, 70, 60, 50] {
        let wanted = peak * f64::from(percent) / 100.0;
        let shots = wire::open(rig.service.api, ask, wanted, Duration::from_secs(2)).await;
        let failed = wire::count(&shots, |status| !wire::is_good(status));
        if failed == 0 && wire::quantile(&shots, 99, |_| true) < 100.0 {
            return wanted;
        }
        sleep(Duration::from_secs(1)).await;
    }
    peak * 0.4
}

struct Seen {
    peak: f64,
    sustainable: f64,
    goodput: f64,
    /// 99th percentile of the refusals, and of what was served.
    refusal: f64,
    served: f64,
    refused: usize,
    /// Neither served nor refused.
    lost: usize,
    asked: usize,
    before: f64,
    after: f64,
    no_op: f64,
    /// The cores that asking took.
    busy: f64,
}

impl Seen {
    fn new(peak: f64, sustainable: f64, [before, during, after]: [&[Shot]; 3], (no_op, busy): (&[Shot], f64)) -> Self {
        let p99 = |shots: &[Shot]| wire::quantile(shots, 99, |_| true);
        let is_refused = |status: u16| status == 503 || status == 429;
        let sent: Vec<Shot> = during.iter().copied().filter(|shot| shot.status != 0 || !shot.took.is_zero()).collect();
        let end = during.iter().map(|shot| shot.at).max();
        // What is answered once the load is over was not goodput under it.
        let within = sent.iter().filter(|shot| wire::is_good(shot.status) && Some(shot.at + shot.took) <= end).count();
        Self {
            peak,
            sustainable,
            goodput: within as f64 / LENGTH.as_secs_f64(),
            refusal: wire::quantile(&sent, 99, |shot| is_refused(shot.status)),
            served: wire::quantile(&sent, 99, |shot| wire::is_good(shot.status)),
            refused: wire::count(&sent, is_refused),
            lost: wire::count(&sent, |status| !wire::is_good(status) && !is_refused(status)),
            asked: during.len(),
            before: p99(before),
            after: p99(after),
            no_op: p99(no_op),
            busy,
        }
    }

    fn kept(&self) -> f64 {
        self.goodput / self.peak
    }

    fn finding(&self) -> Finding {
        let normal = self.after <= (self.before * 2.0).max(100.0);
        Finding::new(
            "five times the sustainable load",
            "at least 80 % of peak goodput kept; refusals within 100 ms; normal latency 5 s after",
            self.kept() >= 0.8 && self.refusal <= 100.0 && normal && self.lost == 0,
            format!(
                "peak {:.0}/s, sustainable {:.0}/s; at five times that ({} requests in {} s, which took {:.1} cores to ask) {:.0}/s, \
                 {:.0} % of peak; {} refused, p99 {:.0} ms; served p99 {:.0} ms; {} failed otherwise; p99 {:.1} ms before and {:.1} ms 5 s after; no-op {:.1} ms",
                self.peak,
                self.sustainable,
                self.asked,
                LENGTH.as_secs(),
                self.busy,
                self.goodput,
                self.kept() * 100.0,
                self.refused,
                self.refusal,
                self.served,
                self.lost,
                self.before,
                self.after,
                self.no_op,
            ),
        )
    }
}
