//! The latency of `env.ai` compared with a direct call of the upstream, and the memory of open streams.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection as _};
use futures_util::future::try_join_all;
use reqwest::{Client, Method, Response};
use sandbox::{AI_KEY, AiFault, AiServer};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Args, deductions};
use crate::bench::platform::Platform;
use crate::bench::report::Report;
use crate::bench::run::percentiles;
use crate::bench::server::{self, string_at};
use crate::usage;

const WORKER: &[u8] = b"
export default {
  async fetch(request, env) {
    if (!env.ai) return new Response('not granted', { status: 503 });
    return env.ai.fetch('https://ai/v1/chat/completions', { method: 'POST', body: await request.text() });
  },
};
";

/// The longest wait for the first response of the site.
const START_TIMEOUT: Duration = Duration::from_secs(60);

const QUESTION: &str = "What does the platform add to the latency of a call?";

pub async fn measure(
    report: &mut Report,
    platform: &Platform,
    upstream: &AiServer,
    database: &mut AsyncPgConnection,
    args: &Args,
) -> Result<()> {
    let site = Site::deploy(platform, database).await?;
    if args.calls > 0 {
        compare(report, &site, upstream, args.calls).await?;
    }
    if args.streams > 0 {
        measure_streams(report, platform, &site, upstream, args.streams).await?;
    }
    Ok(())
}

/// A site whose worker calls the model, with the credit of its organization.
pub struct Site {
    client: Client,
    url: String,
    host: String,
}

impl Site {
    /// Deploys the site, and waits until it responds.
    pub async fn deploy(platform: &Platform, database: &mut AsyncPgConnection) -> Result<Self> {
        let organization = string_at(&platform.organizations().await?, "/items/0/id")?.parse()?;
        // The webhooks of this benchmark may have created the account, so it is removed first.
        let remove = "ALTER TABLE billing.ledger DISABLE TRIGGER ledger_append_only; \
            DELETE FROM billing.ledger; DELETE FROM billing.accounts; DELETE FROM billing.project_usage; \
            ALTER TABLE billing.ledger ENABLE TRIGGER ledger_append_only;";
        database.batch_execute(&format!("{remove} {}", deductions::credit(&organization))).await?;
        let project = platform.create_project("models").await?;
        platform.send(Method::POST, "models/ai", &json!(null)).await?;
        project.deploy_with(r#"{"ai":true}"#, &[("worker/index.js", WORKER)]).await?;
        let url = format!("http://{}/", platform.edge);
        let site = Self { client: server::client()?, url, host: project.hostname };
        let start = Instant::now();
        while site.ask(&question("Hello", false)).await?.status().as_u16() != 200 {
            ensure!(start.elapsed() < START_TIMEOUT, "the site does not reach the model");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(site)
    }

    /// Sends a request to the model, through the worker.
    pub async fn ask(&self, question: &Value) -> Result<Response> {
        let request = self.client.post(&self.url).header("host", &self.host).body(question.to_string());
        Ok(request.send().await?)
    }

    /// Makes a call without the platform.
    async fn ask_upstream(&self, upstream: &AiServer, question: &Value) -> Result<Response> {
        let request = self.client.post(format!("{}/chat/completions", upstream.url())).bearer_auth(AI_KEY);
        Ok(request.header("content-type", "application/json").body(question.to_string()).send().await?)
    }
}

/// Returns a request of the model.
pub fn question(content: &str, stream: bool) -> Value {
    let message = json!({ "role": "user", "content": content });
    json!({ "model": "small", "messages": [message], "stream": stream })
}

/// Adds the latencies of both sides, of calls one after the other.
async fn compare(report: &mut Report, site: &Site, upstream: &AiServer, calls: usize) -> Result<()> {
    report.paragraph(&format!(
        "**Latency.** {calls} calls of the upstream without the platform, alternating with {calls} calls through a \
         worker and `env.ai`."
    ))?;
    report.columns(&["measurement", "upstream p50 ms", "p99 ms", "`env.ai` p50 ms", "p99 ms", "added p50 ms"])?;
    for (name, stream) in [("whole response", false), ("first byte of a stream", true)] {
        let question = question(QUESTION, stream);
        let (mut direct, mut metered) = (Vec::new(), Vec::new());
        for _ in 0..calls {
            direct.push(latency(site.ask_upstream(upstream, &question), stream).await?);
            metered.push(latency(site.ask(&question), stream).await?);
        }
        let [direct, metered] = [direct, metered].map(|latencies| percentiles(latencies, [50, 99]));
        let ([p50, p99], [metered_p50, metered_p99]) = (direct, metered);
        let figures = [p50, p99, metered_p50, metered_p99, metered_p50 - p50].map(|ms| format!("{ms:.2}"));
        let [p50, p99, metered_p50, metered_p99, added] = figures.each_ref().map(String::as_str);
        report.row(&[name, p50, p99, metered_p50, metered_p99, added])?;
    }
    Ok(())
}

/// Returns the milliseconds until the first byte of the body, or until its end.
async fn latency(call: impl Future<Output = Result<Response>>, first_byte: bool) -> Result<f64> {
    let start = Instant::now();
    let mut response = call.await?;
    ensure!(response.status().as_u16() == 200, "a call returned {}", response.status());
    let first = response.chunk().await?.context("an empty response")?;
    ensure!(!first.is_empty(), "an empty response");
    let at_first = start.elapsed();
    while response.chunk().await?.is_some() {}
    let latency = if first_byte { at_first } else { start.elapsed() };
    Ok(latency.as_secs_f64() * 1e3)
}

/// Adds the memory of the node before and with open streams.
async fn measure_streams(
    report: &mut Report,
    platform: &Platform,
    site: &Site,
    upstream: &AiServer,
    count: usize,
) -> Result<()> {
    let (before, _) = usage::memory(platform.node.pid())?;
    upstream.inject(Some(AiFault::Pause(3)));
    let question = question(QUESTION, true);
    let streams = try_join_all((0..count).map(|_| async {
        let mut response = site.ask(&question).await?;
        let status = response.status();
        if status.as_u16() != 200 {
            bail!("a stream returned {status}: {}", response.text().await?);
        }
        ensure!(response.chunk().await?.is_some(), "an empty stream");
        Ok(response)
    }));
    let streams = streams.await?;
    let (with, _) = usage::memory(platform.node.pid())?;
    upstream.inject(None);
    for stream in streams {
        ensure!(stream.text().await?.contains("[DONE]"), "an incomplete stream");
    }
    report.paragraph("**Streams.** Resident memory of the node.")?;
    report.columns(&["open streams", "MB"])?;
    report.row(&["0", &format!("{before:.1}")])?;
    report.row(&[&count.to_string(), &format!("{with:.1}")])
}
