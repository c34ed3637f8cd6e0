//! Postgres goes away and comes back, in each of its ways.

use std::time::Duration;

use anyhow::Result;
use chaos::Passage;
use tokio::time::{Instant, sleep};
use xtask::postgres::Stop;

use super::Outcome;
use super::report::Finding;
use super::rig::{Rig, Watch};
use super::wire::{self, Shot};

/// How it goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Cut,
    Fast,
    Immediate,
    Hole,
}

/// For how long.
const AWAY: Duration = Duration::from_secs(2);

/// Within so much of its return the pool is healed.
const HEALED: Duration = Duration::from_secs(5);

pub async fn run(rounds: usize) -> Result<Outcome> {
    let (mut outcome, mut rig) = (Outcome::default(), Rig::start(&[]).await?);
    for (way, name) in [
        (Way::Cut, "cut off by the network"),
        (Way::Fast, "stopped in order and started"),
        (Way::Immediate, "stopped as by a power cut and started"),
        (Way::Hole, "silent: packets vanish"),
    ] {
        let mut seen = Vec::new();
        for _ in 0..rounds {
            seen.push(once(&mut rig, way).await?);
        }
        let before = outcome.wrong.len();
        rig.look(&mut outcome).await?;
        outcome.findings.push(finding(name, &seen, outcome.wrong.len() - before));
    }
    rig.stop().await?;
    Ok(outcome)
}

/// What one of them looked like from outside.
struct Seen {
    /// Answers other than 200 and 503 while it was away, and requests without an answer.
    wrong: usize,
    refused: usize,
    /// The longest that anybody waited, in milliseconds.
    longest: f64,
    /// From its return to the first success.
    first: f64,
    /// What did not succeed later than `HEALED` after its return.
    late: usize,
    no_op: f64,
}

async fn once(rig: &mut Rig, way: Way) -> Result<Seen> {
    let (asked, no_op) =
        (Watch::start(rig.service.api, rig.request("GET", "/v1/me", "")?), Watch::no_op(rig.service.api));
    let (cluster, proxy) = (&mut rig.cluster, &rig.postgres);
    let breaking = async {
        sleep(Duration::from_millis(500)).await;
        let gone = Instant::now();
        match way {
            Way::Cut => proxy.set(Passage::Cut),
            Way::Hole => proxy.set(Passage::Hole),
            Way::Fast => tokio::task::block_in_place(|| cluster.stop(Stop::Fast)),
            Way::Immediate => tokio::task::block_in_place(|| cluster.stop(Stop::Immediate)),
        }
        sleep(if way == Way::Hole { AWAY * 3 } else { AWAY }).await;
        match way {
            Way::Cut | Way::Hole => proxy.set(Passage::Open),
            Way::Fast | Way::Immediate => tokio::task::block_in_place(|| cluster.start_again())?,
        }
        let back = Instant::now();
        sleep(HEALED + Duration::from_secs(1)).await;
        Ok((gone, back))
    };
    let (gone, back) = rig.writers.during(breaking).await?;
    Ok(Seen::read(&asked.end().await?, &no_op.end().await?, gone, back))
}

impl Seen {
    fn read(shots: &[Shot], no_op: &[Shot], gone: Instant, back: Instant) -> Self {
        let after = shots.iter().filter(|shot| shot.at >= back || shot.at + shot.took >= back);
        let first = after.filter(|shot| shot.status == 200).map(|shot| shot.at + shot.took).min();
        Self {
            wrong: wire::count(shots, |status| ![200, 503].contains(&status)),
            refused: shots.iter().filter(|shot| shot.at >= gone && shot.status == 503).count(),
            longest: wire::quantile(shots, 100, |_| true),
            first: first.map_or(f64::INFINITY, |first| (first - back).as_secs_f64() * 1e3),
            late: shots.iter().filter(|shot| shot.at > back + HEALED && shot.status != 200).count(),
            no_op: wire::quantile(no_op, 99, |_| true),
        }
    }
}

fn finding(name: &str, seen: &[Seen], lost: usize) -> Finding {
    let sum = |of: fn(&Seen) -> usize| seen.iter().map(of).sum::<usize>();
    let most = |of: fn(&Seen) -> f64| seen.iter().map(of).fold(0.0, f64::max);
    let (wrong, late, first) = (sum(|it| it.wrong), sum(|it| it.late), most(|it| it.first));
    Finding::new(
        "Postgres restarted or cut off",
        "only 503 while away (no 500), first success within 2 s of its return, pool healed within 5 s",
        wrong == 0 && late == 0 && first <= 2000.0 && lost == 0,
        format!(
            "{name}, {} times: {} answers 503, {wrong} others; the longest wait {:.0} ms; first success {first:.0} ms after its return; \
             {late} failures later than 5 s after it; {lost} writes lost or doubled; no-op {:.1} ms",
            seen.len(),
            sum(|it| it.refused),
            most(|it| it.longest),
            most(|it| it.no_op),
        ),
    )
}
