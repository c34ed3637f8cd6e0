//! `kill -9` of node, control plane and Postgres while visitors call AI models.
//!
//! The visitors keep a list of complete responses. Afterwards, the ledger must have one row with the exact tokens for
//! each complete response, at most one row for each call that the upstream received, and exact sums. If a node dies after
//! it recorded a call and before the upstream received it, the node cannot know that. Such a call has an estimated row.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use chaos::run_clients;
use futures_util::future::join_all;
use kernel::Secret;
use sandbox::AiServer;
use serde_json::Value;
use store::migrations;
use tokio::time::sleep;
use tokio_postgres::NoTls;
use xtask::postgres::{Cluster, Stop};
use xtask::services::Services;
use xtask::workerd;

use super::Outcome;
use super::report::Finding;
use super::rig::restart_postgres;
use crate::bench::billing::{Site, question, settings};
use crate::bench::machine::with_services;
use crate::bench::platform::Platform;
use crate::bench::server::SEALING_KEY;
use crate::random;

const VISITORS: usize = 8;
const KILLS_PER_ROUND: usize = 6;
/// The longest permitted time from the last kill until every call is settled.
const MAX_SETTLEMENT: Duration = Duration::from_secs(30);

/// The tokens of a call.
pub type Tokens = (i64, i64);

pub async fn run(rounds: usize) -> Result<Outcome> {
    let Some(workerd) = workerd::find() else {
        return Ok(Outcome { skipped: vec!["calls of AI models (no workerd)".to_owned()], ..Outcome::default() });
    };
    with_services(async |services, folder| measure(services, folder, &workerd, rounds).await).await
}

async fn measure(services: &mut Services, folder: &Path, workerd: &Path, rounds: usize) -> Result<Outcome> {
    let upstream = AiServer::start().await;
    let cluster = Cluster::bench()?;
    let url = cluster.url("postgres");
    let platform = Platform::start_on(services, folder, cluster, settings(folder, &upstream, workerd)?).await?;
    let site = Site::deploy(&platform, &mut migrations::connect(Secret::new(url.clone())).await?).await?;
    let stopped = AtomicBool::new(false);
    let visitors = (0..VISITORS).map(|number| visit(&site, number, Duration::ZERO, &stopped));
    let kills = async {
        for number in 0..KILLS_PER_ROUND * rounds {
            sleep(random::millis(700..1700)).await;
            match number % 3 {
                0 => platform.node.kill_and_restart(services).await?,
                1 => platform.server.program.kill_and_restart(services).await?,
                _ => restart_postgres(services.postgres.as_mut(), Stop::Immediate).await?,
            }
        }
        sleep(Duration::from_secs(2)).await;
        anyhow::Ok(())
    };
    let (answered, ()) = run_clients(join_all(visitors), &stopped, kills).await?;
    let answered: Vec<Tokens> = answered.into_iter().flatten().collect();
    ensure!(!answered.is_empty(), "no response was complete");
    let mut outcome = Outcome::default();
    let unsent = VISITORS * KILLS_PER_ROUND.div_ceil(3) * rounds;
    let settlement = check(&url, &answered, &upstream, unsent, &mut outcome).await?;
    outcome.violations.extend(chaos::violations(&url, &[SEALING_KEY]).await?);
    outcome.findings.push(Finding::new(
        "kill -9 of node, control plane and Postgres while visitors call AI models",
        "every call with a complete response is deducted once with its exact tokens, no call twice; all are settled within 30 s",
        outcome.violations.is_empty() && settlement.duration < MAX_SETTLEMENT,
        format!(
            "{} kills, {} calls at the upstream, {} complete responses, {} deducted; {} violations; all settled \
             {:.1} s after the last call",
            KILLS_PER_ROUND * rounds,
            settlement.received,
            answered.len(),
            settlement.deducted,
            outcome.violations.len(),
            settlement.duration.as_secs_f64(),
        ),
    ));
    Ok(outcome)
}

/// How the calls were settled.
pub struct Settlement {
    /// The calls that the upstream received.
    pub received: usize,
    pub deducted: usize,
    /// The time until all calls were settled.
    duration: Duration,
}

/// Waits until all calls are settled, and compares the complete responses with the ledger and the upstream. Nodes may
/// have died before they sent `unsent` calls that they had recorded.
pub async fn check(
    database_url: &str,
    answered: &[Tokens],
    upstream: &AiServer,
    unsent: usize,
    outcome: &mut Outcome,
) -> Result<Settlement> {
    let (database, connection) = tokio_postgres::connect(database_url, NoTls).await?;
    tokio::spawn(connection);
    let start = Instant::now();
    while open_calls(&database).await? > 0 && start.elapsed() < MAX_SETTLEMENT {
        sleep(Duration::from_millis(50)).await;
    }
    let duration = start.elapsed();
    let rows = ledger(&database).await?;
    let open = open_calls(&database).await?;
    if open > 0 {
        outcome.violations.push(format!("{open} calls are not settled"));
    }
    let received: Vec<Tokens> = upstream.calls().iter().map(|(request, _)| tokens_of(request)).collect();
    let reported: Vec<Tokens> = rows.iter().filter(|row| !row.is_estimated).map(|row| row.tokens).collect();
    for tokens in missing(answered, &reported) {
        outcome.violations.push(format!("an answer with {tokens:?} tokens is not deducted"));
    }
    for tokens in missing(&reported, &received) {
        outcome.violations.push(format!("{tokens:?} tokens are deducted for a call that the upstream did not receive"));
    }
    let received = received.len();
    if rows.len() > received + unsent {
        outcome.violations.push(format!("{} deductions of {received} calls", rows.len()));
    }
    Ok(Settlement { received, deducted: rows.len(), duration })
}

/// Calls the model until stopped, with a pause after each call. Returns the tokens of the complete responses.
pub async fn visit(site: &Site, visitor: usize, pause: Duration, stopped: &AtomicBool) -> Vec<Tokens> {
    let mut answered = Vec::new();
    for number in 0.. {
        if stopped.load(Ordering::SeqCst) {
            break;
        }
        // Different lengths, so that different calls have different tokens.
        let content = "x".repeat(1 + (number * VISITORS + visitor) % 2_000);
        let request = question(&content, number % 2 == 0);
        let answer = match site.ask(&request).await {
            Ok(response) if response.status().as_u16() == 200 => response.text().await.ok(),
            _ => None,
        };
        // A stream ends with this event, and a whole response is valid JSON.
        if answer.is_some_and(|text| text.contains("[DONE]") || text.ends_with('}')) {
            answered.push(tokens_of(&request));
        } else {
            sleep(Duration::from_millis(20)).await;
        }
        sleep(pause).await;
    }
    answered
}

/// Returns the tokens that the upstream reports for a request with one message.
fn tokens_of(request: &Value) -> Tokens {
    let tokens = |text: &str| i64::try_from(text.len().div_ceil(4)).unwrap_or(i64::MAX);
    let messages = request.get("messages").map(ToString::to_string).unwrap_or_default();
    let content = request.pointer("/messages/0/content").and_then(Value::as_str).unwrap_or_default();
    (tokens(&messages), tokens(&format!("You said: {content}")))
}

/// Returns the tokens that occur less often in the second list than in the first one.
fn missing(all: &[Tokens], others: &[Tokens]) -> Vec<Tokens> {
    let mut left: HashMap<Tokens, i64> = HashMap::new();
    for tokens in others {
        *left.entry(*tokens).or_default() += 1;
    }
    let mut is_missing = |tokens: &Tokens| {
        let count = left.entry(*tokens).or_default();
        *count -= 1;
        *count < 0
    };
    all.iter().copied().filter(|tokens| is_missing(tokens)).collect()
}

async fn open_calls(database: &tokio_postgres::Client) -> Result<i64> {
    Ok(database.query_one("SELECT count(*) FROM billing.calls WHERE ended_at IS NULL", &[]).await?.try_get(0)?)
}

/// A deducted call.
struct Deduction {
    tokens: Tokens,
    /// Whether the tokens are an estimate of the node, and not reported by the upstream.
    is_estimated: bool,
}

/// Returns all deducted calls.
async fn ledger(database: &tokio_postgres::Client) -> Result<Vec<Deduction>> {
    let query = "SELECT input_tokens, output_tokens, estimated FROM billing.ledger WHERE kind = 'call'";
    let rows = database.query(query, &[]).await?;
    let deduction = |row: &tokio_postgres::Row| {
        Ok(Deduction { tokens: (row.try_get(0)?, row.try_get(1)?), is_estimated: row.try_get(2)? })
    };
    rows.iter().map(deduction).collect()
}
