//! Requests one after the other, on so many connections at a time: the same generator for both sides.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use reqwest::RequestBuilder;

use crate::bench::run::{Run, quantile};

/// How much is asked.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub connections: usize,
    pub lasts: Duration,
}

impl Load {
    /// Asks as fast as answers come; a request counts once its answer has been read whole.
    pub async fn run(self, next: impl Fn() -> RequestBuilder) -> Result<Run> {
        let start = Instant::now();
        let connections = (0..self.connections).map(|_| self.connection(start, &next));
        let (mut took, mut errors) = (Vec::new(), 0);
        for (each, failed) in try_join_all(connections).await? {
            took.extend(each);
            errors += failed;
        }
        let elapsed = start.elapsed().as_secs_f64();
        took.sort_by(f64::total_cmp);
        let rate = f64::from(u32::try_from(took.len())?) / elapsed;
        Ok(Run { rate, p50: quantile(&took, 50), p99: quantile(&took, 99), errors })
    }

    /// Milliseconds of each answer that is a success, and how many were not.
    async fn connection(self, start: Instant, next: impl Fn() -> RequestBuilder) -> Result<(Vec<f64>, u64)> {
        let (mut took, mut errors) = (Vec::new(), 0);
        while start.elapsed() < self.lasts {
            let asked = Instant::now();
            let answer = next().send().await?;
            let status = answer.status();
            let body = answer.bytes().await?;
            if status.is_success() {
                took.push(asked.elapsed().as_secs_f64() * 1000.0);
            } else {
                errors += 1;
                ensure!(errors < 100 || !took.is_empty(), "{status}: {}", String::from_utf8_lossy(&body));
            }
        }
        Ok((took, errors))
    }
}
