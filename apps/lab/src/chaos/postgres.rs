//! Postgres outages of several kinds.

use std::time::Duration;

use anyhow::Result;
use chaos::NetworkFault;
use tokio::time::{Instant, sleep};
use xtask::postgres::Stop;

use super::Outcome;
use super::load::{self, Sample};
use super::report::Finding;
use super::rig::{RequestProbe, Rig};

/// A kind of outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outage {
    Disconnected,
    FastShutdown,
    ImmediateShutdown,
    Blackhole,
}

/// How long an outage lasts.
const OUTAGE_DURATION: Duration = Duration::from_secs(2);

/// The pool must recover within this time after the outage.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(5);

pub async fn run(rounds: usize) -> Result<Outcome> {
    let (mut outcome, mut rig) = (Outcome::default(), Rig::start(&[]).await?);
    for (outage, name) in [
        (Outage::Disconnected, "disconnected"),
        (Outage::FastShutdown, "stopped (fast shutdown) and started"),
        (Outage::ImmediateShutdown, "stopped (immediate shutdown) and started"),
        (Outage::Blackhole, "unresponsive: packets are dropped"),
    ] {
        let mut measurements = Vec::new();
        for _ in 0..rounds {
            measurements.push(measure_outage(&mut rig, outage).await?);
        }
        let before = outcome.violations.len();
        rig.verify(&mut outcome).await?;
        outcome.findings.push(finding(name, &measurements, outcome.violations.len() - before));
    }
    rig.stop().await?;
    Ok(outcome)
}

/// The effect of one outage on a client.
struct Measurement {
    /// Responses other than 200 and 503, and requests without a response.
    unexpected: usize,
    /// Responses 503 since the start of the outage.
    rejected: usize,
    /// The longest response time in milliseconds.
    longest_wait: f64,
    /// The time from the end of the outage to the first success, in milliseconds.
    first_success: f64,
    /// Failures more than `RECOVERY_TIMEOUT` after the outage.
    late_failures: usize,
    no_op_p99: f64,
}

async fn measure_outage(rig: &mut Rig, outage: Outage) -> Result<Measurement> {
    let (reads, no_op) =
        (RequestProbe::start(rig.service.api, rig.request("GET", "/v1/me", "")?), RequestProbe::no_op(rig.service.api));
    let (cluster, proxy) = (&mut rig.cluster, &rig.postgres);
    let outage_run = async {
        sleep(Duration::from_millis(500)).await;
        let started_at = Instant::now();
        match outage {
            Outage::Disconnected => proxy.set_fault(NetworkFault::Disconnect),
            Outage::Blackhole => proxy.set_fault(NetworkFault::Blackhole),
            Outage::FastShutdown => tokio::task::block_in_place(|| cluster.stop(Stop::Fast)),
            Outage::ImmediateShutdown => tokio::task::block_in_place(|| cluster.stop(Stop::Immediate)),
        }
        sleep(if outage == Outage::Blackhole { OUTAGE_DURATION * 3 } else { OUTAGE_DURATION }).await;
        match outage {
            Outage::Disconnected | Outage::Blackhole => proxy.set_fault(NetworkFault::None),
            Outage::FastShutdown | Outage::ImmediateShutdown => tokio::task::block_in_place(|| cluster.restart())?,
        }
        let ended_at = Instant::now();
        sleep(RECOVERY_TIMEOUT + Duration::from_secs(1)).await;
        Ok((started_at, ended_at))
    };
    let (started_at, ended_at) = rig.writers.write_during(outage_run).await?;
    Ok(Measurement::from_samples(&reads.stop().await?, &no_op.stop().await?, started_at, ended_at))
}

impl Measurement {
    fn from_samples(samples: &[Sample], no_op: &[Sample], started_at: Instant, ended_at: Instant) -> Self {
        let after = samples
            .iter()
            .filter(|sample| sample.scheduled_at >= ended_at || sample.scheduled_at + sample.latency >= ended_at);
        let first =
            after.filter(|sample| sample.status == 200).map(|sample| sample.scheduled_at + sample.latency).min();
        Self {
            unexpected: load::count_status(samples, |status| ![200, 503].contains(&status)),
            rejected: samples.iter().filter(|sample| sample.scheduled_at >= started_at && sample.status == 503).count(),
            longest_wait: load::percentile(samples, 100, |_| true),
            first_success: first.map_or(f64::INFINITY, |first| (first - ended_at).as_secs_f64() * 1e3),
            late_failures: samples
                .iter()
                .filter(|sample| sample.scheduled_at > ended_at + RECOVERY_TIMEOUT && sample.status != 200)
                .count(),
            no_op_p99: load::percentile(no_op, 99, |_| true),
        }
    }
}

fn finding(name: &str, measurements: &[Measurement], lost: usize) -> Finding {
    let sum = |figure: fn(&Measurement) -> usize| measurements.iter().map(figure).sum::<usize>();
    let max = |figure: fn(&Measurement) -> f64| measurements.iter().map(figure).fold(0.0, f64::max);
    let (unexpected, late, first) = (sum(|it| it.unexpected), sum(|it| it.late_failures), max(|it| it.first_success));
    Finding::new(
        "Postgres restarted or disconnected",
        "only 503 during the outage (no 500), first success within 2 s afterwards, pool recovered within 5 s",
        unexpected == 0 && late == 0 && first <= 2000.0 && lost == 0 && measurements.iter().all(|it| it.rejected > 0),
        format!(
            "{name}, {} times: {} responses 503, {unexpected} others; longest wait {:.0} ms; first success {first:.0} \
             ms afterwards; {late} failures after more than 5 s; {lost} writes lost or duplicated; no-op {:.1} ms",
            measurements.len(),
            sum(|it| it.rejected),
            max(|it| it.longest_wait),
            max(|it| it.no_op_p99),
        ),
    )
}
