//! Five times the sustainable load: goodput must not collapse, and the excess must be rejected immediately.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::Outcome;
use super::load::{self, RequestSource, Sample};
use super::report::Finding;
use super::rig::{RequestProbe, Rig};
use crate::usage;

const DURATION: Duration = Duration::from_secs(5);

/// The time in which the limit of concurrent requests adapts. A burst of this length is served, so its latency is high.
const ADAPTATION: Duration = Duration::from_secs(1);

pub async fn run(rounds: usize) -> Result<Outcome> {
    let (mut outcome, rig) = (Outcome::default(), Rig::start(&[]).await?);
    let requests = mixed_requests(&rig)?;
    let api = rig.service.api;
    // Warm up.
    load::closed_loop(api, &requests, 16, Duration::from_secs(2)).await;
    let mut measurements = Vec::new();
    for _ in 0..rounds {
        let peak = success_rate(&load::closed_loop(api, &requests, 16, DURATION).await);
        let sustainable = find_sustainable_rate(&rig, &requests, peak).await;
        let full = load::open_loop(api, &requests, sustainable, DURATION / 2).await;
        let before = load::open_loop(api, &requests, sustainable / 2.0, DURATION / 2).await;
        let (no_op, cores) = (RequestProbe::no_op(api), usage::cpu_time(process::id())?);
        let during = load::open_loop(api, &requests, sustainable * 5.0, DURATION).await;
        let (no_op, cores) = (no_op.stop().await?, (usage::cpu_time(process::id())? - cores) / DURATION.as_secs_f64());
        sleep(Duration::from_secs(5)).await;
        let after = load::open_loop(api, &requests, sustainable / 2.0, DURATION / 2).await;
        measurements.push(Measurement::new(peak, sustainable, [&full, &before, &during, &after], (&no_op, cores)));
    }
    // Report the round with the median goodput.
    measurements.sort_by(|a, b| a.share_of_peak().total_cmp(&b.share_of_peak()));
    outcome.findings.extend(measurements.get(measurements.len() / 2).map(Measurement::findings).into_iter().flatten());
    let mut rig = rig;
    rig.verify(&mut outcome).await?;
    rig.stop().await?;
    Ok(outcome)
}

/// Builds a mix of 70 % project reads, 20 % member lists and 10 % project creations with their audit rows, which is
/// spread over all organizations.
fn mixed_requests(rig: &Rig) -> Result<RequestSource> {
    let callers = (0..8).map(|number| rig.caller(number)).collect::<Result<Vec<_>>>()?;
    let created = AtomicU64::new(0);
    Ok(Arc::new(move |number| {
        let Some((token, org)) = callers.get((number / 10) as usize % callers.len()) else { return Vec::new() };
        match number % 10 {
            0 => {
                let body = format!(r#"{{"name":"load{}"}}"#, created.fetch_add(1, Ordering::Relaxed));
                load::request("POST", &format!("/v1/orgs/{org}/projects"), token, &body)
            }
            1 | 2 => load::request("GET", &format!("/v1/orgs/{org}/members"), token, ""),
            _ => load::request("GET", &format!("/v1/orgs/{org}/projects/site"), token, ""),
        }
    }))
}

/// Returns the successful responses per second, from the first to the last one.
fn success_rate(samples: &[Sample]) -> f64 {
    let (first, last) =
        (samples.iter().map(|it| it.scheduled_at).min(), samples.iter().map(|it| it.scheduled_at + it.latency).max());
    let length = first.zip(last).map_or(f64::INFINITY, |(first, last)| (last - first).as_secs_f64());
    load::count_status(samples, load::is_success) as f64 / length
}

/// Returns the highest open-loop rate without failures and with a p99 below 100 ms.
async fn find_sustainable_rate(rig: &Rig, requests: &RequestSource, peak: f64) -> f64 {
    for percent in [90, 80, 70, 60, 50] {
        let rate = peak * f64::from(percent) / 100.0;
        let samples = load::open_loop(rig.service.api, requests, rate, Duration::from_secs(2)).await;
        let failed = load::count_status(&samples, |status| !load::is_success(status));
        if failed == 0 && load::percentile(&samples, 99, |_| true) < 100.0 {
            return rate;
        }
        sleep(Duration::from_secs(1)).await;
    }
    peak * 0.4
}

struct Percentiles {
    p50: f64,
    p99: f64,
}

impl Percentiles {
    fn of(samples: &[Sample], is_included: impl Fn(&Sample) -> bool) -> Self {
        let [p50, p99] = [50, 99].map(|percentile| load::percentile(samples, percentile, &is_included));
        Self { p50, p99 }
    }
}

struct Measurement {
    peak: f64,
    sustainable: f64,
    goodput: f64,
    /// The p99 of rejected requests, in milliseconds like all percentiles here.
    rejected_p99: f64,
    /// The p99 of served requests that were sent during the adaptation.
    first_p99: f64,
    /// The percentiles of served requests that were sent later.
    served: Percentiles,
    rejected: usize,
    /// Requests that were neither served nor rejected.
    failed: usize,
    scheduled: usize,
    /// At the sustainable load, and at half of it.
    full: Percentiles,
    before: Percentiles,
    after_p99: f64,
    no_op_p99: f64,
    /// The number of cores that the load generator used.
    generator_cores: f64,
}

impl Measurement {
    fn new(
        peak: f64,
        sustainable: f64,
        [full, before, during, after]: [&[Sample]; 4],
        (no_op, cores): (&[Sample], f64),
    ) -> Self {
        let p99 = |samples: &[Sample]| load::percentile(samples, 99, |_| true);
        let is_served = |sample: &Sample| load::is_success(sample.status);
        let is_rejected = |status: u16| status == 503 || status == 429;
        let sent: Vec<Sample> =
            during.iter().copied().filter(|sample| sample.status != 0 || !sample.latency.is_zero()).collect();
        let end = during.iter().map(|sample| sample.scheduled_at).max();
        let adapted = during.iter().map(|sample| sample.scheduled_at + ADAPTATION).min();
        let is_late = |sample: &Sample| Some(sample.scheduled_at) >= adapted;
        // Responses after the end of the load do not count as goodput.
        let within =
            sent.iter().filter(|sample| is_served(sample) && Some(sample.scheduled_at + sample.latency) <= end).count();
        Self {
            peak,
            sustainable,
            goodput: within as f64 / DURATION.as_secs_f64(),
            rejected_p99: load::percentile(&sent, 99, |sample| is_rejected(sample.status)),
            first_p99: load::percentile(&sent, 99, |sample| is_served(sample) && !is_late(sample)),
            served: Percentiles::of(&sent, |sample| is_served(sample) && is_late(sample)),
            rejected: load::count_status(&sent, is_rejected),
            failed: load::count_status(&sent, |status| !load::is_success(status) && !is_rejected(status)),
            scheduled: during.len(),
            full: Percentiles::of(full, is_served),
            before: Percentiles::of(before, is_served),
            after_p99: p99(after),
            no_op_p99: p99(no_op),
            generator_cores: cores,
        }
    }

    fn share_of_peak(&self) -> f64 {
        self.goodput / self.peak
    }

    fn findings(&self) -> [Finding; 2] {
        [self.goodput_finding(), self.latency_finding()]
    }

    fn goodput_finding(&self) -> Finding {
        let normal = self.after_p99 <= (self.before.p99 * 2.0).max(100.0);
        Finding::new(
            "five times the sustainable load",
            "at least 80 % of peak goodput; rejections within 100 ms; normal latency 5 s afterwards",
            self.share_of_peak() >= 0.8 && self.rejected_p99 <= 100.0 && normal && self.failed == 0,
            format!(
                "peak {:.0}/s, sustainable {:.0}/s; at five times that ({} requests in {} s; the load generator used \
                 {:.1} cores): {:.0}/s, {:.0} % of peak; {} rejected, p99 {:.0} ms; {} other failures; p99 {:.1} ms \
                 before and {:.1} ms 5 s after; no-op {:.1} ms",
                self.peak,
                self.sustainable,
                self.scheduled,
                DURATION.as_secs(),
                self.generator_cores,
                self.goodput,
                self.share_of_peak() * 100.0,
                self.rejected,
                self.rejected_p99,
                self.failed,
                self.before.p99,
                self.after_p99,
                self.no_op_p99,
            ),
        )
    }

    fn latency_finding(&self) -> Finding {
        let Self { served, full, before, .. } = self;
        Finding::new(
            "served requests at five times the sustainable load",
            "after one second, p50 and p99 at most three times those at the sustainable load",
            served.p50 > 0.0 && served.p50 <= full.p50 * 3.0 && served.p99 <= full.p99 * 3.0,
            format!(
                "p50 {:.1} ms and p99 {:.0} ms; at the sustainable load {:.1} and {:.0} ms, at half of it {:.1} and \
                 {:.0} ms; p99 {:.0} ms in the first second",
                served.p50, served.p99, full.p50, full.p99, before.p50, before.p99, self.first_p99,
            ),
        )
    }
}
