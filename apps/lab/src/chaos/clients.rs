//! Two thousand clients that send a byte now and then, half of them of the head, half of the body.

use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::Outcome;
use super::report::Finding;
use super::rig::{Rig, Watch};
use super::wire::{self, Wire};

const CLIENTS: usize = 2000;

/// Whoever is that slow is not waited for longer.
const PATIENCE: Duration = Duration::from_secs(20);

pub async fn run() -> Result<Outcome> {
    let (mut outcome, mut rig) = (Outcome::default(), Rig::start(&[]).await?);
    let asked = rig.request("GET", "/v1/me", "")?;
    let before = Watch::start(rig.service.api, asked.clone());
    sleep(Duration::from_secs(2)).await;
    let before = before.end().await?;
    let (during, no_op) = (Watch::start(rig.service.api, asked), Watch::no_op(rig.service.api));
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let (token, org) = rig.caller(number)?;
        let head = format!(
            "POST /v1/orgs/{org}/projects HTTP/1.1\r\nHost: svc\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: 1000\r\n"
        );
        let begun = if number % 2 == 0 { head } else { format!("{head}\r\n{{\"name\":\"") };
        clients.spawn(slow(rig.service.api, begun));
        // It is not their coming that is slow.
        sleep(Duration::from_millis(1)).await;
    }
    let mut ended = Vec::new();
    while let Some(client) = clients.join_next().await {
        ended.push(client?.unwrap_or_default());
    }
    let (during, no_op, memory) = (during.end().await?, no_op.end().await?, rig.service.memory()?.1);
    rig.look(&mut outcome).await?;
    let [was, is] = [&before, &during].map(|shots| wire::quantile(shots, 99, |_| true));
    let failed = wire::count(&during, |status| status != 200);
    let longest = ended.iter().max().copied().unwrap_or_default();
    outcome.findings.push(Finding::new(
        "2,000 slow clients",
        "others unaffected; each is ended",
        failed == 0 && longest < PATIENCE && is <= was.max(20.0) * 5.0,
        format!(
            "heads and bodies a byte a second: each ended within {:.1} s; {failed} of {} requests of others failed, p99 {is:.1} ms (before \
             {was:.1} ms); at most {memory:.0} MB; no-op {:.1} ms",
            longest.as_secs_f64(),
            during.len(),
            wire::quantile(&no_op, 99, |_| true),
        ),
    ));
    rig.stop().await?;
    Ok(outcome)
}

/// Sends a byte a second until it is answered or the connection ends. How long that took.
async fn slow(address: std::net::SocketAddr, begun: String) -> Result<Duration> {
    let mut wire = Wire::connect(address).await?;
    let start = Instant::now();
    wire.send(begun.as_bytes()).await?;
    while start.elapsed() < PATIENCE {
        if timeout(Duration::from_secs(1), wire.answer()).await.is_ok() || wire.send(b"x").await.is_err() {
            break;
        }
    }
    Ok(start.elapsed())
}
