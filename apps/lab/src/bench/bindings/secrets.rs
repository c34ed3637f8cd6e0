//! The time from the PUT of a secret until the running worker sees it, while visitors send requests.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use reqwest::Method;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::bench::platform::{Platform, Project};
use crate::bench::report::Report;
use crate::bench::run::percentiles;

/// The worker returns the secret.
const WORKER: &[u8] = b"export default { fetch: (_, env) => new Response(env.NUMBER ?? '0') };";

/// The visitors send 200 requests per second.
const REQUEST_INTERVAL: Duration = Duration::from_millis(5);

/// The longest wait for a change.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The responses to visitors, counted.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// The latest value of the secret.
    number: usize,
    requests: usize,
    failures: usize,
}

/// Changes the secret repeatedly, and adds a row. Each change waits until the previous one was seen.
pub async fn measure(report: &mut Report, platform: &Platform, changes: usize) -> Result<()> {
    let project = platform.create_project("secrets").await?;
    project.deploy(&[("worker/index.js", WORKER)]).await?;
    project.wait_until_served("/").await?;
    let (sender, mut seen) = watch::channel(Seen::default());
    let latencies = tokio::select! {
        failed = visit(platform, &project, &sender) => return failed,
        latencies = change(platform, changes, &mut seen) => latencies?,
    };
    let Seen { requests, failures, .. } = *seen.borrow();
    report.paragraph(&format!(
        "**Changes.** {changes} changes of a secret, from the PUT until the running worker sees it, while visitors \
         send 200 requests per second."
    ))?;
    report.columns(&["p50 ms", "p99 ms", "max ms", "requests", "failures"])?;
    let [p50, p99, max] = percentiles(latencies, [50, 99, 100]).map(|ms| format!("{ms:.0}"));
    report.row(&[&p50, &p99, &max, &requests.to_string(), &failures.to_string()])
}

async fn change(platform: &Platform, changes: usize, seen: &mut watch::Receiver<Seen>) -> Result<Vec<f64>> {
    let mut latencies = Vec::new();
    for number in 1..=changes {
        let start = Instant::now();
        platform.send(Method::PUT, "secrets/secrets/NUMBER", &json!({ "value": number.to_string() })).await?;
        timeout(TIMEOUT, seen.wait_for(|seen| seen.number == number)).await??;
        latencies.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(latencies)
}

/// Sends requests at a fixed rate, without waiting for responses, and publishes the counts.
async fn visit(platform: &Platform, project: &Project<'_>, seen: &watch::Sender<Seen>) -> Result<()> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let url = format!("http://{}/", platform.edge);
    let mut ticks = interval(REQUEST_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        ticks.tick().await;
        let request = client.get(&url).header("Host", &project.hostname).timeout(TIMEOUT);
        let seen = seen.clone();
        tokio::spawn(async move {
            let number = read(request).await;
            seen.send_modify(|seen| {
                seen.requests += 1;
                match number {
                    Ok(number) => seen.number = seen.number.max(number),
                    Err(_) => seen.failures += 1,
                }
            });
        });
    }
}

async fn read(request: reqwest::RequestBuilder) -> Result<usize> {
    let response = request.send().await?;
    ensure!(response.status().is_success(), "{}", response.status());
    Ok(response.text().await?.parse()?)
}
