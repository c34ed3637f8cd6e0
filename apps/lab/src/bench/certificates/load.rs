//! Concurrent clients at full load.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::target::Target;
use crate::bench::report::Report;
use crate::bench::run::{Run, median, percentiles};

/// The duration and the number of runs.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub duration: Duration,
    pub rounds: usize,
    pub clients: usize,
}

/// The operations of one client.
#[derive(Debug, Default)]
pub struct Operations {
    /// The latencies of successful operations in milliseconds.
    latencies: Vec<f64>,
    errors: u64,
}

/// The figures of a run.
struct Sample {
    run: Run,
    /// The CPU time of the server per operation, in microseconds.
    cpu: f64,
}

impl Operations {
    /// Adds an operation that began at `start`. The next one follows after a moment if it failed.
    pub async fn add(&mut self, start: Instant, is_successful: bool) {
        if is_successful {
            self.latencies.push(start.elapsed().as_secs_f64() * 1000.0);
        } else {
            self.errors += 1;
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Combines the operations of two clients.
    pub fn and(mut self, mut other: Self) -> Self {
        self.latencies.append(&mut other.latencies);
        self.errors += other.errors;
        self
    }
}

/// Adds the head of the table of [`compare`].
pub fn head(report: &mut Report) -> Result<()> {
    report.comparison_columns(&["CPU of the server, µs"])
}

/// Runs clients alternately at each target, and adds a row for each. `client` performs the operations of the client
/// with this number at a target until an instant. The ratio compares the rate with the first target.
pub async fn compare<F>(
    report: &mut Report,
    operation: &str,
    targets: &[&Target],
    load: Load,
    client: impl Fn(usize, usize, Instant) -> F,
) -> Result<()>
where
    F: Future<Output = Result<Operations>> + Send + 'static,
{
    let mut samples: Vec<Vec<Sample>> = targets.iter().map(|_| Vec::new()).collect();
    for _ in 0..load.rounds {
        for ((at, target), samples) in targets.iter().enumerate().zip(&mut samples) {
            samples.push(run(target, load, |number, until| client(at, number, until)).await?);
        }
    }
    let rows = targets.iter().zip(samples).map(|(target, samples)| {
        let (runs, cpu): (Vec<Run>, Vec<f64>) = samples.into_iter().map(|sample| (sample.run, sample.cpu)).unzip();
        let [cpu] = percentiles(cpu, [50]);
        (target.name, median(&runs), vec![format!("{cpu:.0}")])
    });
    report.comparison_with(operation, &rows.collect::<Vec<_>>())
}

async fn run<F>(target: &Target, load: Load, client: impl Fn(usize, Instant) -> F) -> Result<Sample>
where
    F: Future<Output = Result<Operations>> + Send + 'static,
{
    let (start, cpu) = (Instant::now(), target.cpu_time()?);
    let mut clients = JoinSet::new();
    for number in 0..load.clients {
        clients.spawn(client(number, start + load.duration));
    }
    let mut all = Operations::default();
    while let Some(done) = clients.join_next().await {
        all = all.and(done??);
    }
    let Operations { latencies, errors } = all;
    ensure!(!latencies.is_empty(), "every operation failed at {}", target.name);
    let duration = start.elapsed();
    let cpu = (target.cpu_time()? - cpu) * 1e6 / f64::from(u32::try_from(latencies.len())?);
    Ok(Sample { run: Run { errors, ..Run::of(latencies, duration)? }, cpu })
}
