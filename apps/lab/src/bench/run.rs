//! The figures of benchmark runs.

use std::time::Duration;

use anyhow::Result;

/// The figures of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Responses per second.
    pub rate: f64,
    /// The median latency in milliseconds.
    pub p50: f64,
    pub p99: f64,
    /// Responses other than 2xx and 3xx, and failed connections.
    pub errors: u64,
}

impl Run {
    /// Computes the figures of successful operations with these latencies in milliseconds.
    pub fn of(mut latencies: Vec<f64>, duration: Duration) -> Result<Self> {
        latencies.sort_by(f64::total_cmp);
        Ok(Self {
            rate: f64::from(u32::try_from(latencies.len())?) / duration.as_secs_f64(),
            p50: percentile(&latencies, 50),
            p99: percentile(&latencies, 99),
            errors: 0,
        })
    }

    /// Formats a table row. `ratio` compares the rate with the baseline.
    pub fn row(&self, what: &str, side: &str, ratio: f64) -> String {
        let Self { rate, p50, p99, errors } = self;
        format!("| {what} | {side} | {rate:.0} | {p50:.2} | {p99:.2} | {errors} | {ratio:.2} |")
    }
}

/// Returns the median of each figure, and the sum of all errors.
pub fn median(runs: &[Run]) -> Run {
    let median_of = |figure: fn(&Run) -> f64| {
        let mut all: Vec<f64> = runs.iter().map(figure).collect();
        all.sort_by(f64::total_cmp);
        percentile(&all, 50)
    };
    let errors = runs.iter().map(|run| run.errors).sum();
    Run { rate: median_of(|run| run.rate), p50: median_of(|run| run.p50), p99: median_of(|run| run.p99), errors }
}

/// Returns the nearest-rank percentile of ascending values, or 0 without values.
pub fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}
