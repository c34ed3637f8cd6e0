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

/// Every call responds with its code before the request's own timeout, which has another code.
#[tokio::test(flavor = "multi_thread")]
async fn silent_registrar_gives_the_documented_code() {
    let kit = Kit::start().await;
    kit.buy("shop.com").await.expect(201);
    kit.registrar.inject(Some(RegistrarFault::Hang));
    let check = format!("{DOMAINS}/check");
    let (bought, checked, renewed, locked, code, synced) = tokio::join!(
        kit.buy("other.com"),
        kit.ada.post(&check, json!({ "names": ["a.com"] })),
        kit.act("shop.com", "renew", json!({ "years": 1 })),
        kit.act("shop.com", "lock", json!({ "locked": false })),
        kit.act("shop.com", "auth-code", json!({})),
        kit.act("shop.com", "sync", json!({})),
    );
    for response in [bought, checked, renewed, locked, code, synced] {
        response.expect_error(502, "registrar_error");
    }
    // While the calls waited, other changes of the organization were not blocked.
    kit.act("shop.com", "auto-renew", json!({ "enabled": false })).await.expect(200);
    kit.registrar.inject(None);
    let continued = kit.buy("other.com").await;
    assert!([200, 201].contains(&continued.status), "{}", continued.body);
}
