//! Background work: periodic jobs, outbox workers, and tasks that run for the lifetime of the process.

use std::any::Any;
use std::error::Error;
use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::FutureExt as _;
use kernel::{ClockRng, error_chain};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram};
use store::Store;
use store::outbox::OutboxWorker;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// The number of jobs that run at the same time after a start. More would need more connections to Postgres than the
/// jobs need later.
const MAX_FIRST_RUNS: usize = 2;

/// The longest wait of a job for its first run. So jobs that wait for other systems do not hold up the others.
const MAX_FIRST_WAIT: Duration = Duration::from_secs(1);

static PERIOD: LazyLock<Gauge<f64>> =
    LazyLock::new(|| seconds("svc.job.period", "Time from the end of one run of a job to the start of the next"));
static LAST_SUCCESS: LazyLock<Gauge<f64>> = LazyLock::new(|| {
    seconds("svc.job.last_success.timestamp", "Unix time of the last success of a job in this process, 0 if none")
});
static DURATION: LazyLock<Histogram<f64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .f64_histogram("svc.job.duration")
        .with_unit("s")
        .with_description("Duration of a job run, including failed runs")
        .with_boundaries(vec![0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0])
        .build()
});
static FAILURES: LazyLock<Counter<u64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc").u64_counter("svc.job.failures").with_description("Failed runs of a job").build()
});

fn seconds(name: &'static str, description: &'static str) -> Gauge<f64> {
    opentelemetry::global::meter("svc").f64_gauge(name).with_unit("s").with_description(description).build()
}

/// A periodic job. Every server of an installation runs every job, so runs must be safe to overlap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    /// The name in metrics and log lines: `<context>.<verb>_<object>`.
    name: &'static str,
    /// The time from the end of one run to the start of the next.
    period: Duration,
    /// The maximum random delay that is added to each wait, so that servers that start together do not run the job
    /// together.
    jitter: Duration,
    /// Whether runs are skipped while the clock of this server is wrong or unchecked.
    needs_clock: bool,
}

impl Job {
    /// Creates a job with a jitter of a tenth of the period.
    pub(crate) const fn every(period: Duration, name: &'static str) -> Self {
        let jitter = match period.checked_div(10) {
            Some(tenth) => tenth,
            None => Duration::ZERO,
        };
        Self { name, period, jitter, needs_clock: true }
    }

    /// Runs the job also while the clock of this server is wrong or unchecked. Only for a job that deletes and ends no
    /// shared rows by their age.
    pub(crate) const fn without_clock(self) -> Self {
        Self { needs_clock: false, ..self }
    }

    /// Returns the delay before the next run. A failed run is retried within about a minute. So a Postgres outage at
    /// startup does not delay an hourly job by an hour.
    fn wait(&self, clock_rng: &ClockRng, succeeded: bool) -> Duration {
        let period = if succeeded { self.period } else { self.period.min(MINUTE) };
        let fraction = f64::from(u16::from_be_bytes(clock_rng.bytes())) / f64::from(u16::MAX);
        period + self.jitter.min(period).mul_f64(fraction)
    }
}

/// The background work of a process. Dropping it aborts all tasks.
pub(crate) struct Background {
    store: Store,
    first_runs: Arc<Semaphore>,
    tasks: JoinSet<()>,
    outbox: Vec<OutboxWorker>,
}

impl Background {
    pub(crate) fn new(store: Store) -> Self {
        let first_runs = Arc::new(Semaphore::new(MAX_FIRST_RUNS));
        Self { store, first_runs, tasks: JoinSet::new(), outbox: Vec::new() }
    }

    /// Runs a job within a second and then after each wait, even if the previous run failed or panicked. Skips a run
    /// while the clock of this server is wrong or cannot be compared with that of Postgres, because most jobs end and
    /// delete shared rows by their age.
    pub(crate) fn job<P, E, W>(&mut self, job: Job, context: P, work: impl Fn(P) -> W + Send + 'static)
    where
        P: Clone + Send + 'static,
        E: Error + Send + 'static,
        W: Future<Output = Result<(), E>> + Send,
    {
        let labels = [KeyValue::new("name", job.name)];
        // Record the metrics before the first run, so that they include a job that never succeeds.
        PERIOD.record(job.period.as_secs_f64(), &labels);
        LAST_SUCCESS.record(0.0, &labels);
        FAILURES.add(0, &labels);
        let (store, first_runs) = (self.store.clone(), self.first_runs.clone());
        self.tasks.spawn(async move {
            let mut first_run = timeout(MAX_FIRST_WAIT, first_runs.acquire()).await.ok();
            loop {
                let lead = if job.needs_clock { store.excessive_clock_lead().await } else { Ok(None) };
                let succeeded = match lead {
                    Ok(None) => run(job.name, &labels, store.clock_rng(), work(context.clone())).await,
                    Err(error) => run(job.name, &labels, store.clock_rng(), ready(Err(error))).await,
                    Ok(Some(lead_seconds)) => {
                        FAILURES.add(1, &labels);
                        tracing::error!(job = job.name, lead_seconds, "skipped a job: the clock differs from Postgres");
                        false
                    }
                };
                drop(first_run.take());
                tokio::time::sleep(job.wait(store.clock_rng(), succeeded)).await;
            }
        });
    }

    /// Runs a task for the lifetime of the process.
    pub(crate) fn task(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Registers an outbox worker.
    pub(crate) fn outbox(&mut self, worker: OutboxWorker) {
        self.outbox.push(worker);
    }

    /// Starts draining the outbox workers. Jobs continue to run.
    pub(crate) fn drain(&mut self) -> JoinSet<()> {
        self.outbox.drain(..).map(OutboxWorker::stop).collect()
    }
}

/// Runs a job once, and records the result. Returns whether it succeeded.
async fn run<E: Error + 'static>(
    name: &'static str,
    labels: &[KeyValue],
    clock_rng: &ClockRng,
    work: impl Future<Output = Result<(), E>>,
) -> bool {
    let start = Instant::now();
    let result = AssertUnwindSafe(work).catch_unwind().await;
    DURATION.record(start.elapsed().as_secs_f64(), labels);
    match result {
        Ok(Ok(())) => {
            LAST_SUCCESS.record(unix_seconds(clock_rng), labels);
            true
        }
        Ok(Err(error)) => {
            FAILURES.add(1, labels);
            tracing::warn!(job = name, error = %error_chain(&error), "job failed");
            false
        }
        Err(panic) => {
            FAILURES.add(1, labels);
            tracing::error!(job = name, error = panic_message(panic.as_ref()), "job panicked");
            false
        }
    }
}

/// Returns the message of a panic, if it is a text.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 fit into the 53 bits of a double")]
fn unix_seconds(clock_rng: &ClockRng) -> f64 {
    clock_rng.now().unix_millis() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use kernel::Secret;
    use store::Config;
    use testkit::{TestClock, TestDatabase};
    use tokio::sync::mpsc;

    use super::*;

    /// Starts background work that compares this clock with that of Postgres.
    fn background(postgres: String, system_clock: ClockRng) -> Background {
        let config = Config { system_clock, ..Config::new(Secret::new(postgres), "test") };
        Background::new(Store::new(&config, ClockRng::system()).unwrap())
    }

    fn without_postgres() -> Background {
        background("postgres://svc@127.0.0.1:1/svc".to_owned(), ClockRng::system())
    }

    #[tokio::test]
    async fn job_that_panics_runs_again() {
        let (runs, mut seen) = mpsc::unbounded_channel();
        let mut background = without_postgres();
        let work = |runs: mpsc::UnboundedSender<()>| async move {
            runs.send(()).unwrap();
            if true {
                panic!("a panic of this test");
            }
            Ok::<(), std::io::Error>(())
        };
        background.job(Job::every(Duration::from_millis(1), "test.panic").without_clock(), runs, work);
        for _ in 0..3 {
            seen.recv().await.unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn job_does_not_run_while_the_clock_is_wrong() {
        let (database, clock) = (TestDatabase::create().await, TestClock::running());
        let (runs, mut seen) = mpsc::unbounded_channel();
        let mut background = background(database.url(), clock.clock_rng());
        let work = |runs: mpsc::UnboundedSender<()>| async move {
            runs.send(()).unwrap();
            Ok::<(), std::io::Error>(())
        };
        clock.advance(24 * 3600);
        let job = Job::every(Duration::from_millis(1), "test.clock");
        background.job(job, runs.clone(), work);
        // Without Postgres, the clock cannot be checked.
        let mut without_postgres = without_postgres();
        without_postgres.job(job, runs, work);
        // The first run begins within a second. Without the check, it is seen here.
        assert!(timeout(SECOND * 2, seen.recv()).await.is_err());
        clock.advance(-24 * 3600);
        assert_eq!(timeout(MINUTE, seen.recv()).await.unwrap(), Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_that_hang_do_not_hold_up_others() {
        let (runs, mut seen) = mpsc::unbounded_channel();
        let mut background = without_postgres();
        let work = |runs: mpsc::UnboundedSender<()>| async move {
            runs.send(()).unwrap();
            std::future::pending::<Result<(), std::io::Error>>().await
        };
        for _ in 0..=MAX_FIRST_RUNS {
            background.job(Job::every(HOUR, "test.hang").without_clock(), runs.clone(), work);
        }
        for _ in 0..MAX_FIRST_RUNS {
            seen.recv().await.unwrap();
        }
        tokio::task::yield_now().await;
        assert!(seen.try_recv().is_err());
        seen.recv().await.unwrap();
    }

    #[test]
    fn wait_adds_jitter_and_is_capped_after_a_failure() {
        let (clock_rng, job) = (ClockRng::system(), Job::every(HOUR, "test.job"));
        let waits: Vec<Duration> = (0..100).map(|_| job.wait(&clock_rng, true)).collect();
        assert!(waits.iter().all(|wait| (HOUR..=HOUR + 6 * MINUTE).contains(wait)), "{waits:?}");
        assert!(waits.iter().any(|wait| *wait != job.wait(&clock_rng, true)));
        assert!((0..100).all(|_| (MINUTE..=2 * MINUTE).contains(&job.wait(&clock_rng, false))));
        let frequent = Job::every(SECOND, "test.job");
        assert!((0..100).all(|_| (SECOND..=SECOND * 11 / 10).contains(&frequent.wait(&clock_rng, false))));
    }
}
