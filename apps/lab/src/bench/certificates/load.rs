//! Concurrent clients at full load.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::target::Target;
use crate::bench::report::Report;
use crate::bench::run::{Run, median, percentile};

/// The columns of [`compare`].
const COLUMNS: &[&str] =
    &["operation", "program", "per second", "p50 ms", "p99 ms", "errors", "ratio", "CPU of the server, µs"];

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
    report.columns(COLUMNS)
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
    let runs = samples.iter().map(|samples| samples.iter().map(|sample| sample.run).collect::<Vec<_>>());
    let medians: Vec<Run> = runs.map(|runs| median(&runs)).collect();
    let baseline = medians.first().map_or(1.0, |run| run.rate);
    for (((at, target), samples), Run { rate, p50, p99, errors }) in
        targets.iter().enumerate().zip(samples).zip(medians)
    {
        let mut cpu: Vec<f64> = samples.iter().map(|sample| sample.cpu).collect();
        cpu.sort_by(f64::total_cmp);
        report.row(&[
            if at == 0 { operation } else { "" },
            target.name,
            &format!("{rate:.0}"),
            &format!("{p50:.2}"),
            &format!("{p99:.2}"),
            &errors.to_string(),
            &format!("{:.2}", rate / baseline),
            &format!("{:.0}", percentile(&cpu, 50)),
        ])?;
    }
    Ok(())
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
