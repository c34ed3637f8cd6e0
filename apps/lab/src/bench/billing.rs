//! `bench billing`: deductions of AI calls, webhooks of payments, and the latency that `env.ai` adds to a call of the
//! upstream. A server, a node, a durable Postgres and the sandbox's upstream run on this machine, from release builds.

mod deductions;
mod models;
mod webhooks;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures_util::future::try_join_all;
use kernel::Secret;
use sandbox::{AiServer, PaymentsServer};
use store::migrations;
use xtask::postgres::Cluster;
use xtask::services::Services;
use xtask::workerd;

use super::machine::with_release_build;
use super::platform::{Platform, Settings};
use super::report::{Report, version};
use super::run::Run;
pub use models::{Site, question};

const TITLE: &str = "AI calls and payments";
const ABOUT: &str = "\
Written by `cargo xtask bench billing`. The server uses a durable Postgres. The upstream of `env.ai` is that of the
sandbox, which responds immediately.";

/// The only model. It costs 6 microcents per input token and 24 per output token.
const CATALOG: &str = r#"{"models":[{"id":"small","lane":"value","inputMicroCentsPerMTok":6000000,
    "outputMicroCentsPerMTok":24000000,"contextTokens":128000}]}"#;

#[derive(clap::Args, PartialEq)]
pub struct Args {
    /// The duration of each run of deductions and webhooks; 0 skips them
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Concurrent clients of deductions and webhooks
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// The number of accounts of the second run of deductions
    #[arg(long, default_value_t = 1000)]
    accounts: usize,
    /// The number of calls of which the latency is measured; 0 skips this part
    #[arg(long, default_value_t = 300)]
    calls: usize,
    /// The number of open streams of which the memory is measured; 0 skips this part
    #[arg(long, default_value_t = 200)]
    streams: usize,
}

pub async fn run(args: Args) -> Result<ExitCode> {
    with_release_build(async |services, folder| measure(services, folder, &args).await).await
}

async fn measure(services: &mut Services, folder: &Path, args: &Args) -> Result<()> {
    let workerd = workerd::find().context("this benchmark needs workerd")?;
    let (upstream, payments) = (AiServer::start().await, PaymentsServer::start(None).await);
    let mut settings = settings(folder, &upstream, &workerd)?;
    settings.server.extend(payments.settings());
    let cluster = Cluster::bench()?;
    let url = cluster.url("postgres");
    let versions = [version(cluster.bin().join("postgres"), &["--version"])?, version(&workerd, &["--version"])?];
    let platform = Platform::start_on(services, folder, cluster, settings).await?;
    let mut database = migrations::connect(Secret::new(url)).await?;
    let mut report = Report::new(TITLE, ABOUT, &versions)?;
    if args.seconds > 0 {
        services.supervise(deductions::measure(&mut report, &platform, folder, &mut database, args)).await?;
        services.supervise(webhooks::measure(&mut report, &platform, args)).await?;
    }
    if args.calls > 0 || args.streams > 0 {
        services.supervise(models::measure(&mut report, &platform, &upstream, &mut database, args)).await?;
    }
    report.finish(args)
}

/// Returns the settings of a platform whose workers call the models of this upstream.
pub fn settings(folder: &Path, upstream: &AiServer, workerd: &Path) -> Result<Settings> {
    let catalog = folder.join("models.json");
    fs::write(&catalog, CATALOG)?;
    let server = vec![("SVC_AI_MODELS", catalog.display().to_string())];
    let mut node = upstream.settings().to_vec();
    node.push(("SVC_NODE_WORKERD", workerd.display().to_string()));
    Ok(Settings { server, node })
}

/// Runs an operation repeatedly in concurrent clients until the time is over.
async fn repeat<F>(args: &Args, operation: impl Fn() -> F + Clone + Send + 'static) -> Result<Run>
where
    F: Future<Output = Result<()>> + Send,
{
    let (start, duration) = (Instant::now(), Duration::from_secs(args.seconds));
    let clients = (0..args.clients).map(|_| {
        let operation = operation.clone();
        tokio::spawn(async move {
            let mut latencies = Vec::new();
            while start.elapsed() < duration {
                let sent = Instant::now();
                operation().await?;
                latencies.push(sent.elapsed().as_secs_f64() * 1e3);
            }
            anyhow::Ok(latencies)
        })
    });
    let mut latencies = Vec::new();
    for client in try_join_all(clients).await.context("a client stopped")? {
        latencies.extend(client?);
    }
    Run::of(latencies, duration)
}
