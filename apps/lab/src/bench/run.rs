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
    pub fn of(latencies: Vec<f64>, duration: Duration) -> Result<Self> {
        let rate = f64::from(u32::try_from(latencies.len())?) / duration.as_secs_f64();
        let [p50, p99] = percentiles(latencies, [50, 99]);
        Ok(Self { rate, p50, p99, errors: 0 })
    }

    /// Formats the rate and both latencies.
    pub fn cells(&self) -> [String; 3] {
        [format!("{:.0}", self.rate), format!("{:.2}", self.p50), format!("{:.2}", self.p99)]
    }
}

/// Returns the median of each figure, and the sum of all errors.
pub fn median(runs: &[Run]) -> Run {
    let median_of = |figure: fn(&Run) -> f64| {
        let [median] = percentiles(runs.iter().map(figure).collect(), [50]);
        median
    };
    let errors = runs.iter().map(|run| run.errors).sum();
    Run { rate: median_of(|run| run.rate), p50: median_of(|run| run.p50), p99: median_of(|run| run.p99), errors }
}

/// Returns the nearest-rank percentiles of values in any order, or 0 without values.
pub fn percentiles<const N: usize>(mut values: Vec<f64>, percents: [usize; N]) -> [f64; N] {
    values.sort_by(f64::total_cmp);
    percents.map(|percent| percentile(&values, percent))
}

/// Returns the nearest-rank percentile of ascending values, or 0 without values.
pub fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}
