//! The limits of an authority, and CAA records.

use sandbox::RecordType;
use serde_json::{Value, json};

use super::eventually;
use super::proxy::{CAA_IDENTITY, Refusal, Resource};
use super::rig::{DEFAULT, Rig};
use crate::support::time;

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_followed_and_explained() {
    let Some((rig, proxy)) = Rig::behind_proxy().await else { return };
    rig.tls_becomes(DEFAULT, "active").await;

    // A limit of orders delays the name by `Retry-After`.
    let limited = |retry_after| Refusal { status: 429, kind: "rateLimited", retry_after: Some(retry_after) };
    proxy.refuse(Resource::NewOrder, limited(7200), 1);
    let now = rig.app.clock.clock_rng().now();
    rig.activate("www.example.net").await;
    let failed = rig.tls_becomes("www.example.net", "failed").await;
    let error = "the certificate authority limits the rate of orders: The test refuses. (rateLimited)";
    assert_eq!(failed["lastError"], error);
    let name = rig.name("www.example.net").await;
    assert!(time(&name["due_at"]) >= now.plus_seconds(7200), "{name}");
    assert!(rig.app.db_rows("SELECT 1 AS n FROM certificates.pauses").await.is_empty());
    rig.app.clock.advance(7300);
    let active = rig.tls_becomes("www.example.net", "active").await;
    assert_eq!(active["lastError"], Value::Null);

    // An overload during an order keeps the order, and pauses the authority for all names.
    proxy.refuse(Resource::Order, Refusal { status: 503, kind: "serverInternal", retry_after: Some(600) }, 1);
    rig.activate("two.example.net").await;
    let paused = async || rig.app.db_rows("SELECT until FROM certificates.pauses").await.pop();
    let until = time(&eventually("the authority is paused", paused).await["until"]);
    let kept = async || Some(rig.tls("two.example.net").await).filter(|tls| !tls["lastError"].is_null());
    let kept = eventually("the pause is explained", kept).await;
    assert!(kept["lastError"].as_str().unwrap().contains("overloaded"), "{kept}");
    assert_eq!((&kept["state"], rig.orders().await), (&json!("pending"), 1));
    rig.activate("three.example.net").await;
    let waiting = async || Some(rig.tls("three.example.net").await).filter(|tls| !tls["lastError"].is_null());
    let waiting = eventually("another name waits", waiting).await;
    let name = rig.name("three.example.net").await;
    assert_eq!((&waiting["state"], &name["failures"]), (&json!("pending"), &json!(0)));
    assert!(time(&name["due_at"]) >= until, "{name}");
    rig.app.clock.advance(730);
    rig.tls_becomes("two.example.net", "active").await;
    // The delay of other names after the pause is random, up to an hour.
    rig.app.clock.advance(3600);
    rig.tls_becomes("three.example.net", "active").await;
    assert_eq!(rig.orders().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn caa_refusal_is_explained_without_an_order() {
    let Some((rig, proxy)) = Rig::behind_proxy().await else { return };
    rig.tls_becomes(DEFAULT, "active").await;
    let orders = proxy.payloads(Resource::NewOrder).len();
    rig.dns.set("example.net", RecordType::CAA, &["other.example"]);
    rig.activate("www.example.net").await;
    let failed = rig.tls_becomes("www.example.net", "failed").await;
    let error = failed["lastError"].as_str().unwrap();
    let parts = ["CAA forbids", "example.net", "other.example", CAA_IDENTITY];
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    assert_eq!(proxy.payloads(Resource::NewOrder).len(), orders);
    rig.dns.set("example.net", RecordType::CAA, &["other.example", CAA_IDENTITY]);
    rig.app.clock.advance(200);
    rig.tls_becomes("www.example.net", "active").await;
}
