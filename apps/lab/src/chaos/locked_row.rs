//! A locked organization row, which must not affect other organizations, and a slow Postgres, which must not cause long
//! waits.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use chaos::NetworkFault;
use diesel_async::{AsyncConnection as _, AsyncPgConnection, SimpleAsyncConnection as _};
use tokio::time::sleep;

use super::Outcome;
use super::load::{self, RequestSource, Sample};
use super::report::Finding;
use super::rig::{RequestProbe, Rig};

const DURATION: Duration = Duration::from_secs(4);

/// The added delay between service and Postgres, each way.
const NETWORK_DELAY: Duration = Duration::from_millis(100);

pub async fn run(rounds: usize) -> Result<Outcome> {
    let (mut outcome, mut rig) = (Outcome::default(), Rig::start(&[]).await?);
    let others = requests_of_other_orgs(&rig)?;
    let (mut before, mut during, mut blocked) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        before.extend(load::open_loop(rig.service.api, &others, 100.0, DURATION / 2).await);
        let (token, org) = rig.caller(0)?;
        let write: RequestSource = Arc::new(move |number| {
            let body = format!(r#"{{"name":"locked{round}x{number}"}}"#);
            load::request("POST", &format!("/v1/orgs/{org}/projects"), &token, &body)
        });
        let holder = lock_first_org(&rig).await?;
        let (waiting, free) = tokio::join!(
            // Run more writers than the pool has connections.
            load::closed_loop(rig.service.api, &write, 32, DURATION),
            load::open_loop(rig.service.api, &others, 100.0, DURATION),
        );
        drop(holder);
        blocked.extend(waiting);
        during.extend(free);
        sleep(Duration::from_millis(200)).await;
    }
    outcome.findings.push(lock_finding(&before, &during, &blocked));
    rig.postgres.set_fault(NetworkFault::Delay(NETWORK_DELAY));
    let no_op = RequestProbe::no_op(rig.service.api);
    let slow = load::open_loop(rig.service.api, &others, 100.0, DURATION).await;
    rig.postgres.set_fault(NetworkFault::None);
    outcome.findings.push(delay_finding(&slow, &no_op.stop().await?));
    rig.verify(&mut outcome).await?;
    rig.stop().await?;
    Ok(outcome)
}

/// Reads and writes in all organizations except the first.
fn requests_of_other_orgs(rig: &Rig) -> Result<RequestSource> {
    let callers = (1..8).map(|number| rig.caller(number)).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(move |number| {
        let Some((token, org)) = callers.get(number as usize % callers.len()) else { return Vec::new() };
        match number % 5 {
            0 => {
                load::request("PATCH", &format!("/v1/orgs/{org}"), token, &format!(r#"{{"name":"renamed {number}"}}"#))
            }
            _ => load::request("GET", &format!("/v1/orgs/{org}/projects/site"), token, ""),
        }
    }))
}

/// Returns a connection that holds the row lock of the first organization until it is dropped.
async fn lock_first_org(rig: &Rig) -> Result<AsyncPgConnection> {
    let (_, org) = rig.caller(0)?;
    let mut holder = AsyncPgConnection::establish(&rig.database).await?;
    holder.batch_execute(&format!("BEGIN; SELECT FROM orgs.orgs WHERE slug = '{org}' FOR UPDATE")).await?;
    Ok(holder)
}

fn lock_finding(before: &[Sample], during: &[Sample], blocked: &[Sample]) -> Finding {
    let failed = load::count_status(during, |status| !load::is_success(status));
    let unexpected = load::count_status(blocked, |status| status != 503);
    let longest = load::percentile(blocked, 100, |_| true).max(load::percentile(during, 100, |_| true));
    let [p99_before, p99] = [before, during].map(|samples| load::percentile(samples, 99, |_| true));
    Finding::new(
        "a locked row",
        "requests of other organizations unaffected; nothing waits longer than 3 s",
        failed == 0 && unexpected == 0 && longest <= 3000.0 && p99 <= p99_before.max(10.0) * 5.0,
        format!(
            "32 concurrent writes to a locked organization: others p99 {p99:.1} ms (before {p99_before:.1} ms), \
             {failed} of {} failed; of {} responses to the writes, {unexpected} were not 503; longest wait \
             {longest:.0} ms",
            during.len(),
            blocked.len(),
        ),
    )
}

fn delay_finding(slow: &[Sample], no_op: &[Sample]) -> Finding {
    let unexpected = load::count_status(slow, |status| !load::is_success(status) && status != 503);
    let rejected = load::count_status(slow, |status| status == 503);
    let longest = load::percentile(slow, 100, |_| true);
    Finding::new(
        "slow Postgres",
        "nothing waits longer than 3 s",
        unexpected == 0 && longest <= 3000.0,
        format!(
            "all packets delayed by {} ms each way, 100 requests per second: longest wait {longest:.0} ms, {rejected} \
             of {} rejected with 503, {unexpected} other failures; no-op {:.1} ms",
            NETWORK_DELAY.as_millis(),
            slow.len(),
            load::percentile(no_op, 99, |_| true),
        ),
    )
}
