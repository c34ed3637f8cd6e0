//! Renewal information (RFC 9773).

use serde_json::Value;

use super::eventually;
use super::proxy::{AcmeProxy, Refusal, Resource};
use super::rig::{DEFAULT, Rig};
use crate::support::time;

/// More than the interval at which the information is read.
const READ_SECONDS: i64 = 7 * 3600;

/// Returns the identifier of the certificate.
async fn renewal_id(rig: &Rig) -> String {
    let rows = rig.app.db_rows("SELECT renewal_id FROM certificates.certificates").await;
    rows[0]["renewal_id"].as_str().unwrap().to_owned()
}

/// Suggests a time range that begins and ends this number of seconds from now.
fn suggest(rig: &Rig, proxy: &AcmeProxy, start: i64, end: i64) {
    let now = rig.app.clock.clock_rng().now();
    proxy.set_window(now.plus_seconds(start), now.plus_seconds(end));
}

/// Waits for another certificate than this one, and returns its identifier.
async fn wait_for_renewal(rig: &Rig, former: &str) -> String {
    let renewed = async || Some(renewal_id(rig).await).filter(|id| id != former);
    eventually("the certificate is renewed", renewed).await
}

/// Returns the certificates that orders name, one for each order.
fn replaced(proxy: &AcmeProxy) -> Vec<Option<String>> {
    let payloads = proxy.payloads(Resource::NewOrder);
    payloads.iter().map(|payload| payload["replaces"].as_str().map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn suggested_time_renews_at_once_and_the_order_names_the_certificate() {
    let Some((rig, proxy)) = Rig::behind_proxy().await else { return };
    rig.tls_becomes(DEFAULT, "active").await;
    let first = renewal_id(&rig).await;
    suggest(&rig, &proxy, -7200, -3600);
    rig.app.clock.advance(READ_SECONDS);
    let second = wait_for_renewal(&rig, &first).await;
    assert_eq!(replaced(&proxy), [None, Some(first.clone())]);

    // The same suggestion for the new certificate does not cause a loop.
    let renewed_at = rig.app.clock.clock_rng().now();
    let name = rig.name(DEFAULT).await;
    assert!(time(&name["due_at"]) >= renewed_at.plus_seconds(6 * 3600 - 60), "{name}");
    assert_eq!((&name["state"], &name["last_error"]), (&Value::from("active"), &Value::Null));

    // A time range in the future moves the renewal into it.
    let start = READ_SECONDS + 10 * 24 * 3600;
    suggest(&rig, &proxy, start, start + 3600);
    let begin = renewed_at.unix_seconds() + start;
    rig.app.clock.advance(READ_SECONDS);
    let moved = async || {
        let renew_at = time(&rig.name(DEFAULT).await["renew_at"]).unix_seconds();
        (renew_at < begin + 24 * 3600).then_some(renew_at)
    };
    let renew_at = eventually("the renewal is moved", moved).await;
    // The range begins some seconds after the renewal.
    assert!((begin..=begin + 3600 + 60).contains(&renew_at), "{renew_at} is not in the hour after {begin}");

    // An authority that refuses the replaced certificate gets an order without it.
    proxy.refuse(Resource::NewOrder, Refusal { status: 409, kind: "alreadyReplaced", retry_after: None }, 1);
    suggest(&rig, &proxy, -60, 0);
    rig.app.clock.advance(READ_SECONDS);
    wait_for_renewal(&rig, &second).await;
    assert_eq!(replaced(&proxy), [None, Some(first), Some(second), None]);
    let failures = rig.app.db_rows("SELECT 1 AS n FROM store.audit WHERE event = 'certificate.fail'").await;
    assert!(failures.is_empty());
}
