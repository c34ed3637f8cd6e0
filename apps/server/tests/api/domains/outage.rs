//! A registrar that is down for an hour, and one that does not respond.

use sandbox::{RegistrarFault, RegistrarOperation};
use serde_json::json;

use super::{DOMAINS, Kit};
use crate::support::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn purchase_completes_by_itself_after_an_outage() {
    let kit = Kit::start().await;
    kit.buy("first.com").await.expect(201);
    kit.registrar.inject(Some(RegistrarFault::Close));
    kit.buy("shop.com").await.expect_error(502, "registrar_error");
    for minutes in [1, 5, 15, 39] {
        kit.app.clock.advance(minutes * 60);
        // Reads work.
        assert_eq!(kit.ada.get(DOMAINS).await.expect(200)["items"].as_array().unwrap().len(), 2);
        assert_eq!(kit.domain("shop.com").await.expect(200)["state"], "registering");
        kit.act("first.com", "sync", json!({})).await.expect_error(502, "registrar_error");
    }
    kit.registrar.inject(None);
    kit.app.clock.advance(3_600);
    eventually("the end of the purchase", async || {
        (kit.domain("shop.com").await.expect(200)["state"] == "active").then_some(())
    })
    .await;
    assert_eq!(kit.orders(RegistrarOperation::Register, "shop.com"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn zone_is_unsigned_by_itself_after_its_messages_became_dead_letters() {
    let kit = Kit::start().await;
    kit.buy("shop.com").await.expect(201);
    kit.registrar.inject(Some(RegistrarFault::Close));
    let zone = "/v1/orgs/ada/dns/zones/shop.com";
    for enabled in [true, false] {
        kit.ada.post(&format!("{zone}/dnssec"), json!({ "enabled": enabled })).await.expect(200);
    }
    kit.ada.delete(zone).await.expect_error(409, "dnssec_on");
    let over = "UPDATE store.outbox SET failing_since = created_at - interval '3 days', next_attempt_at = created_at \
         WHERE topic = 'dns.ds' AND dead_lettered_at IS NULL AND next_attempt_at < now() + interval '1 hour'";
    let dead = "SELECT id FROM store.outbox WHERE topic = 'dns.ds' AND dead_lettered_at IS NOT NULL";
    eventually("the dead letters", async || {
        kit.app.db_execute(over).await.unwrap();
        (kit.app.db_rows(dead).await.len() == 2).then_some(())
    })
    .await;
    kit.registrar.inject(None);
    // A day later.
    let due =
        "UPDATE store.outbox SET next_attempt_at = created_at WHERE topic = 'dns.ds' AND dead_lettered_at IS NULL";
    kit.app.db_execute(due).await.unwrap();
    eventually("the deletion of the zone", async || (kit.ada.delete(zone).await.status == 204).then_some(())).await;
}

/// Every call responds with its code before the request's own timeout, which has another code.
#[tokio::test(flavor = "multi_thread")]
async fn silent_registrar_gives_the_documented_code() {
    let (mut attempts, check) = (0, format!("{DOMAINS}/check"));
    let (kit, responses) = loop {
        let kit = Kit::start().await;
        kit.buy("shop.com").await.expect(201);
        kit.registrar.inject(Some(RegistrarFault::Hang));
        let (bought, checked, renewed, locked, code, synced) = tokio::join!(
            kit.buy("other.com"),
            kit.ada.post(&check, json!({ "names": ["a.com"] })),
            kit.act("shop.com", "renew", json!({ "years": 1 })),
            kit.act("shop.com", "lock", json!({ "locked": false })),
            kit.act("shop.com", "auth-code", json!({})),
            kit.act("shop.com", "sync", json!({})),
        );
        let responses = [bought, checked, renewed, locked, code, synced];
        attempts += 1;
        // On a busy machine, the two seconds between the timeouts may not suffice.
        if attempts == 3 || responses.iter().all(|response| response.status != 503) {
            break (kit, responses);
        }
    };
    for response in responses {
        response.expect_error(502, "registrar_error");
    }
    // While the calls waited, other changes of the organization were not blocked.
    kit.act("shop.com", "auto-renew", json!({ "enabled": false })).await.expect(200);
    kit.registrar.inject(None);
    let continued = kit.buy("other.com").await;
    assert!([200, 201].contains(&continued.status), "{}", continued.body);
}
