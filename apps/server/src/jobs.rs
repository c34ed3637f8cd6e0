//! Background work: jobs that the server repeats on a timer, outbox workers, and tasks that run as long as the process.

use std::fmt::Display;
use std::sync::LazyLock;
use std::time::Duration;

use kernel::World;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram};
use store::outbox::Pass;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

static PERIOD: LazyLock<Gauge<f64>> =
    LazyLock::new(|| seconds("svc.job.period", "The time from the end of one run of a job to its next"));
static LAST_SUCCESS: LazyLock<Gauge<f64>> = LazyLock::new(|| {
    seconds("svc.job.last_success.timestamp", "When a job last succeeded in this process, in Unix time; 0 for never")
});
static DURATION: LazyLock<Histogram<f64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .f64_histogram("svc.job.duration")
        .with_unit("s")
        .with_description("Runs of a job, including those that failed")
        .with_boundaries(vec![0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0])
        .build()
});
static FAILURES: LazyLock<Counter<u64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .u64_counter("svc.job.failures")
        .with_description("Runs of a job that failed")
        .build()
});

fn seconds(name: &'static str, description: &'static str) -> Gauge<f64> {
    opentelemetry::global::meter("svc").f64_gauge(name).with_unit("s").with_description(description).build()
}

/// Work that the server repeats on a timer. Every server of a deployment runs every job, so each run must be safe next to
/// another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    /// `<context>.<verb>_<what>`, as the metrics and the log show it.
    name: &'static str,
    /// From the end of one run to the next.
    period: Duration,
    /// Up to this much is added to each wait, so that servers that started together do not stay together.
    jitter: Duration,
}

impl Job {
    /// With a jitter of a tenth of the period.
    pub(crate) const fn every(period: Duration, name: &'static str) -> Self {
        let jitter = match period.checked_div(10) {
            Some(tenth) => tenth,
            None => Duration::ZERO,
        };
        Self { name, period, jitter }
    }

    /// The wait for the next run. A failed run is repeated after a minute at the latest: an outage of Postgres at the
    /// start must not delay an hourly job by an hour.
    fn wait(&self, world: &World, succeeded: bool) -> Duration {
        let period = if succeeded { self.period } else { self.period.min(MINUTE) };
        let part = f64::from(u16::from_be_bytes(world.bytes())) / f64::from(u16::MAX);
        period + self.jitter.min(period).mul_f64(part)
    }
}

/// Everything that a process runs beside its listeners. What is dropped is aborted.
pub(crate) struct Background {
    world: World,
    tasks: JoinSet<()>,
    outbox: Vec<Pass>,
}

impl Background {
    pub(crate) fn new(world: World) -> Self {
        Self { world, tasks: JoinSet::new(), outbox: Vec::new() }
    }

    /// Runs a job: the first time now, then after each wait, whether or not the run before succeeded.
    pub(crate) fn job<P, E, W>(&mut self, job: Job, part: P, work: impl Fn(P) -> W + Send + 'static)
    where
        P: Clone + Send + 'static,
        E: Display + Send,
        W: Future<Output = Result<(), E>> + Send,
    {
        let (world, labels) = (self.world.clone(), [KeyValue::new("name", job.name)]);
        // Now, so that a job is shown that never succeeds.
        PERIOD.record(job.period.as_secs_f64(), &labels);
        LAST_SUCCESS.record(0.0, &labels);
        FAILURES.add(0, &labels);
        self.tasks.spawn(async move {
            loop {
                let start = Instant::now();
                let result = work(part.clone()).await;
                DURATION.record(start.elapsed().as_secs_f64(), &labels);
                match &result {
                    Ok(()) => LAST_SUCCESS.record(unix_seconds(&world), &labels),
                    Err(error) => {
                        FAILURES.add(1, &labels);
                        tracing::warn!(job = job.name, %error, "the job failed");
                    }
                }
                tokio::time::sleep(job.wait(&world, result.is_ok())).await;
            }
        });
    }

    /// Runs a task as long as the process.
    pub(crate) fn task(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Keeps an outbox worker.
    pub(crate) fn outbox(&mut self, worker: Pass) {
        self.outbox.push(worker);
    }

    /// Begins to drain the outbox workers; jobs go on.
    pub(crate) fn drain(&mut self) -> JoinSet<()> {
        self.outbox.drain(..).map(Pass::stop).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 fit into the 53 bits of a double")]
fn unix_seconds(world: &World) -> f64 {
    world.now().unix_millis() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jitter_spreads_and_a_failure_shortens_the_wait() {
        let (world, job) = (World::system(), Job::every(HOUR, "test.job"));
        let waits: Vec<Duration> = (0..100).map(|_| job.wait(&world, true)).collect();
        assert!(waits.iter().all(|wait| (HOUR..=HOUR + 6 * MINUTE).contains(wait)), "{waits:?}");
        assert!(waits.iter().any(|wait| *wait != job.wait(&world, true)));
        assert!((0..100).all(|_| (MINUTE..=2 * MINUTE).contains(&job.wait(&world, false))));
        let often = Job::every(SECOND, "test.job");
        assert!((0..100).all(|_| (SECOND..=SECOND * 11 / 10).contains(&often.wait(&world, false))));
    }
}
