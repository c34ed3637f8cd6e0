//! The load generator for both sides: sequential requests on each of several connections.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use reqwest::RequestBuilder;

use crate::bench::run::Run;

/// The number of connections and the duration of a run.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub connections: usize,
    pub duration: Duration,
}

impl Load {
    /// Sends each request as soon as the previous response has been read completely.
    pub async fn run(self, next: impl Fn() -> RequestBuilder) -> Result<Run> {
        let start = Instant::now();
        let connections = (0..self.connections).map(|_| self.connection(start, &next));
        let (mut latencies, mut errors) = (Vec::new(), 0);
        for (each, failed) in try_join_all(connections).await? {
            latencies.extend(each);
            errors += failed;
        }
        Ok(Run { errors, ..Run::of(latencies, start.elapsed())? })
    }

    /// Returns the latencies of successful requests in milliseconds, and the number of failed requests.
    async fn connection(self, start: Instant, next: impl Fn() -> RequestBuilder) -> Result<(Vec<f64>, u64)> {
        let (mut latencies, mut errors) = (Vec::new(), 0);
        while start.elapsed() < self.duration {
            let request_start = Instant::now();
            let response = next().send().await?;
            let status = response.status();
            let body = response.bytes().await?;
            if status.is_success() {
                latencies.push(request_start.elapsed().as_secs_f64() * 1000.0);
            } else {
                errors += 1;
                ensure!(errors < 100 || !latencies.is_empty(), "{status}: {}", String::from_utf8_lossy(&body));
            }
        }
        Ok((latencies, errors))
    }
}
