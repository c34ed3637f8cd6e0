//! One organization's row is locked, and Postgres is slow: nobody else is to notice the one, and nobody to wait long
//! for the other.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use chaos::Passage;
use diesel_async::{AsyncConnection as _, AsyncPgConnection, SimpleAsyncConnection as _};
use tokio::time::sleep;

use super::Outcome;
use super::report::Finding;
use super::rig::{Rig, Watch};
use super::wire::{self, Ask, Shot};

const LENGTH: Duration = Duration::from_secs(4);

/// What reaches it costs this much longer, each way.
const SLOW: Duration = Duration::from_millis(100);

pub async fn run(rounds: usize) -> Result<Outcome> {
    let (mut outcome, mut rig) = (Outcome::default(), Rig::start(&[]).await?);
    let others = others(&rig)?;
    let (mut before, mut during, mut blocked) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        before.extend(wire::open(rig.service.api, &others, 100.0, LENGTH / 2).await);
        let (token, org) = rig.caller(0)?;
        let write: Ask = Arc::new(move |number| {
            let body = format!(r#"{{"name":"locked{round}x{number}"}}"#);
            wire::request("POST", &format!("/v1/orgs/{org}/projects"), &token, &body)
        });
        let holder = hold(&rig).await?;
        let (waited, free) = tokio::join!(
            // More than the pool has connections.
            wire::closed(rig.service.api, &write, 32, LENGTH),
            wire::open(rig.service.api, &others, 100.0, LENGTH),
        );
        drop(holder);
        blocked.extend(waited);
        during.extend(free);
        sleep(Duration::from_millis(200)).await;
    }
    outcome.findings.push(locked(&before, &during, &blocked));
    rig.postgres.set(Passage::Slow(SLOW));
    let no_op = Watch::no_op(rig.service.api);
    let slow = wire::open(rig.service.api, &others, 100.0, LENGTH).await;
    rig.postgres.set(Passage::Open);
    outcome.findings.push(slowed(&slow, &no_op.end().await?));
    rig.look(&mut outcome).await?;
    rig.stop().await?;
    Ok(outcome)
}

/// Reads and writes of every organization but the first.
fn others(rig: &Rig) -> Result<Ask> {
    let callers = (1..8).map(|number| rig.caller(number)).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(move |number| {
        let Some((token, org)) = callers.get(number as usize % callers.len()) else { return Vec::new() };
        match number % 5 {
            0 => {
                wire::request("PATCH", &format!("/v1/orgs/{org}"), token, &format!(r#"{{"name":"renamed {number}"}}"#))
            }
            _ => wire::request("GET", &format!("/v1/orgs/{org}/projects/site"), token, ""),
        }
    }))
}

/// A connection that holds the first organization's row for as long as it lives.
async fn hold(rig: &Rig) -> Result<AsyncPgConnection> {
    let (_, org) = rig.caller(0)?;
    let mut holder = AsyncPgConnection::establish(&rig.database).await?;
    holder.batch_execute(&format!("BEGIN; SELECT FROM orgs.orgs WHERE slug = '{org}' FOR UPDATE")).await?;
    Ok(holder)
}

fn locked(before: &[Shot], during: &[Shot], blocked: &[Shot]) -> Finding {
    let failed = wire::count(during, |status| !wire::is_good(status));
    let wrong = wire::count(blocked, |status| status != 503);
    let longest = wire::quantile(blocked, 100, |_| true).max(wire::quantile(during, 100, |_| true));
    let [was, is] = [before, during].map(|shots| wire::quantile(shots, 99, |_| true));
    Finding::new(
        "a row locked",
        "requests of other organizations unaffected; nothing waits longer than 3 s",
        failed == 0 && wrong == 0 && longest <= 3000.0 && is <= was.max(10.0) * 5.0,
        format!(
            "32 writers to a locked organization: others p99 {is:.1} ms (before {was:.1} ms), {failed} of {} failed; of the writers' own {} \
             answers {wrong} other than 503; the longest wait {longest:.0} ms",
            during.len(),
            blocked.len(),
        ),
    )
}

fn slowed(slow: &[Shot], no_op: &[Shot]) -> Finding {
    let wrong = wire::count(slow, |status| !wire::is_good(status) && status != 503);
    let (longest, refused) = (wire::quantile(slow, 100, |_| true), wire::count(slow, |status| status == 503));
    Finding::new(
        "Postgres slow",
        "nothing waits longer than 3 s",
        wrong == 0 && longest <= 3000.0,
        format!(
            "every packet {} ms later each way, 100 requests a second: the longest wait {longest:.0} ms, {refused} of {} refused, {wrong} \
             answered otherwise; no-op {:.1} ms",
            SLOW.as_millis(),
            slow.len(),
            wire::quantile(no_op, 99, |_| true),
        ),
    )
}
