//! What came of runs, and what is made of several.

/// What came of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Answers per second.
    pub rate: f64,
    /// Milliseconds.
    pub p50: f64,
    pub p99: f64,
    /// Answers that are neither 2xx nor 3xx, and connections that broke.
    pub errors: u64,
}

impl Run {
    /// A table's row: what was done, by which side, the figures, and the rate as a part of another.
    pub fn row(&self, what: &str, side: &str, ratio: f64) -> String {
        let Self { rate, p50, p99, errors } = self;
        format!("| {what} | {side} | {rate:.0} | {p50:.2} | {p99:.2} | {errors} | {ratio:.2} |")
    }
}

/// Each figure's median.
pub fn median(runs: &[Run]) -> Run {
    let of = |figure: fn(&Run) -> f64| {
        let mut all: Vec<f64> = runs.iter().map(figure).collect();
        all.sort_by(f64::total_cmp);
        quantile(&all, 50)
    };
    let errors = runs.iter().map(|run| run.errors).sum();
    Run { rate: of(|run| run.rate), p50: of(|run| run.p50), p99: of(|run| run.p99), errors }
}

/// The middle one, and for few the highest of every hundred: the last.
pub fn quantile(sorted: &[f64], of_hundred: usize) -> f64 {
    let at = (sorted.len() * of_hundred).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}
