//! 2,000 clients that send one byte per second: half of them in the request head, half in the body.

use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::Outcome;
use super::load::{self, Connection};
use super::report::Finding;
use super::rig::{RequestProbe, Rig};

const CLIENTS: usize = 2000;

/// The service must close slow connections within this time.
const MAX_DURATION: Duration = Duration::from_secs(20);

pub async fn run() -> Result<Outcome> {
    let (mut outcome, mut rig) = (Outcome::default(), Rig::start(&[]).await?);
    let request = rig.request("GET", "/v1/me", "")?;
    let before = RequestProbe::start(rig.service.api, request.clone());
    sleep(Duration::from_secs(2)).await;
    let before = before.stop().await?;
    let (during, no_op) = (RequestProbe::start(rig.service.api, request), RequestProbe::no_op(rig.service.api));
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let (token, org) = rig.caller(number)?;
        let head = format!(
            "POST /v1/orgs/{org}/projects HTTP/1.1\r\nHost: svc\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: 1000\r\n"
        );
        let start = if number % 2 == 0 { head } else { format!("{head}\r\n{{\"name\":\"") };
        clients.spawn(send_slowly(rig.service.api, start));
        // Spread the connection attempts: this test does not measure accept bursts.
        sleep(Duration::from_millis(1)).await;
    }
    let (mut durations, mut failed_clients) = (Vec::new(), 0);
    while let Some(client) = clients.join_next().await {
        match client? {
            Ok(duration) => durations.push(duration),
            Err(_) => failed_clients += 1,
        }
    }
    let (during, no_op, memory) = (during.stop().await?, no_op.stop().await?, rig.service.memory()?.1);
    rig.verify(&mut outcome).await?;
    let [p99_before, p99] = [&before, &during].map(|samples| load::percentile(samples, 99, |_| true));
    let failed = load::count_status(&during, |status| status != 200);
    let longest = durations.iter().max().copied().unwrap_or_default();
    outcome.findings.push(Finding::new(
        "2,000 slow clients",
        "other clients unaffected; each slow connection is closed",
        failed == 0 && failed_clients == 0 && longest < MAX_DURATION && p99 <= p99_before.max(20.0) * 5.0,
        format!(
            "heads and bodies at one byte per second: {failed_clients} clients could not connect or send; each \
             connection closed within {:.1} s; {failed} of {} requests of other clients failed, p99 {p99:.1} ms \
             (before {p99_before:.1} ms); at most {memory:.0} MB; no-op {:.1} ms",
            longest.as_secs_f64(),
            during.len(),
            load::percentile(&no_op, 99, |_| true),
        ),
    ));
    rig.stop().await?;
    Ok(outcome)
}

/// Sends one byte per second until a response arrives or the connection closes. Returns the duration.
async fn send_slowly(address: std::net::SocketAddr, first_part: String) -> Result<Duration> {
    let mut connection = Connection::connect(address).await?;
    let start = Instant::now();
    connection.send(first_part.as_bytes()).await?;
    while start.elapsed() < MAX_DURATION {
        let response = timeout(Duration::from_secs(1), connection.read_response()).await;
        if response.is_ok() || connection.send(b"x").await.is_err() {
            break;
        }
    }
    Ok(start.elapsed())
}
