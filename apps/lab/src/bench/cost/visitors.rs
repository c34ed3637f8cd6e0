//! Visitors that send requests to all projects at a fixed rate.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::resources::Processors;
use crate::chaos::load::{self, RequestSource, Sample};

/// The figures of a run.
pub struct Visited {
    processors: Processors,
    /// The requests per second that were intended, and those with a successful response.
    intended: usize,
    reached: f64,
    failed: usize,
    p50: f64,
    p99: f64,
}

/// Sends `rate` requests per second to each of the hosts, one after the other.
pub async fn visit(edge: SocketAddr, hosts: &[String], rate: usize, seconds: u64) -> Result<Visited> {
    ensure!(!hosts.is_empty(), "there are no projects to visit");
    let requests: Vec<Vec<u8>> =
        hosts.iter().map(|host| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()).collect();
    let source: RequestSource =
        Arc::new(move |number| requests.get(number as usize % requests.len()).cloned().unwrap_or_default());
    let intended = hosts.len() * rate;
    let load = load::open_loop(edge, &source, intended as f64, Duration::from_secs(seconds));
    let (processors, samples) = Processors::measure(load).await?;
    let is_successful = |sample: &Sample| load::is_success(sample.status);
    Ok(Visited {
        processors,
        intended,
        reached: samples.iter().filter(|sample| is_successful(sample)).count() as f64 / seconds.max(1) as f64,
        failed: load::count_status(&samples, |status| !load::is_success(status)),
        p50: load::percentile(&samples, 50, is_successful),
        p99: load::percentile(&samples, 99, is_successful),
    })
}

impl Visited {
    pub fn cores(&self) -> String {
        format!("{:.2}", self.processors.platform)
    }

    /// Returns the rate that was reached.
    pub fn rate(&self) -> String {
        format!("{:.0}", self.reached)
    }

    /// Describes the run.
    pub fn describe(&self, project: &str) -> String {
        let Self { processors, intended, reached, failed, p50, p99 } = self;
        format!(
            "Of {intended} requests per second, {:.0} % succeeded, evenly spread over the projects with a {project}. \
             {failed} requests failed or were not sent in time; p50 {p50:.1} ms, p99 {p99:.1} ms. The load generator \
             used {:.2} cores in addition.",
            reached / *intended as f64 * 100.0,
            processors.lab
        )
    }
}
