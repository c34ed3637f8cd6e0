//! The rate limit of the registrar, over all organizations and servers.

use serde_json::json;

use super::{DOMAINS, purchase, use_registrar};
use crate::support::{ApiResponse, App, Caller, eventually};
use sandbox::RegistrarServer;

async fn check(caller: &Caller) -> ApiResponse {
    caller.post(&format!("{DOMAINS}/check"), json!({ "names": ["free.com"] })).await
}

#[tokio::test(flavor = "multi_thread")]
async fn organization_above_its_share_is_told_when_to_retry() {
    let registrar = RegistrarServer::start().await;
    let app = App::with(|config| {
        use_registrar(config, &registrar);
        config.abuse_limits.registrar_requests_per_org = 4;
    })
    .await;
    let (ada, bob) = (app.sign_in("ada").await, app.sign_in("bob").await);
    app.clock.stop();
    for _ in 0..2 {
        check(&ada).await.expect(200);
    }
    let refused = check(&ada).await;
    refused.expect_error(429, "rate_limited");
    assert_eq!(refused.header("retry-after"), "1801");
    bob.post("/v1/orgs/bob/domains/check", json!({ "names": ["free.com"] })).await.expect(200);
    assert_eq!(registrar.calls().len(), 3);
    app.clock.advance(1801);
    check(&ada).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_share_the_limit_of_the_account() {
    let registrar = RegistrarServer::start().await;
    // Requests may use six of nine per second: three at once.
    let limited = |config: &mut server::Config| {
        use_registrar(config, &registrar);
        config.registrar_limits.requests_per_second = 9;
    };
    let app = App::with(limited).await;
    let other = app.another_with(limited).await;
    let ada = app.sign_in("ada").await;
    let at_other = other.connect(&ada);
    app.clock.stop();
    for caller in [&ada, &at_other, &ada] {
        check(caller).await.expect(200);
    }
    check(&at_other).await.expect_error(502, "registrar_error");
    assert_eq!(registrar.calls().len(), 3);
    app.clock.advance(1);
    check(&at_other).await.expect(200);
}

/// The service knows that an order above the limit was not sent, so the next attempt sends it or ends it immediately.
#[tokio::test(flavor = "multi_thread")]
async fn order_above_the_limit_has_a_known_result() {
    let registrar = RegistrarServer::start().await;
    let app = App::with(|config| {
        use_registrar(config, &registrar);
        config.registrar_limits.requests_per_second = 9;
    })
    .await;
    let ada = app.sign_in("ada").await;
    app.clock.stop();
    let buy = async |name: &str| ada.post(DOMAINS, purchase(name)).await;
    let renew = async || ada.post(&format!("{DOMAINS}/other.com/renew"), json!({ "years": 1 })).await;
    // The price of an order then takes the last of three permits.
    let take_two_permits = async || {
        app.clock.advance(1);
        for _ in 0..2 {
            check(&ada).await.expect(200);
        }
    };

    take_two_permits().await;
    buy("shop.com").await.expect_error(502, "registrar_error");
    registrar.take("shop.com");
    app.clock.advance(1);
    eventually("the refusal", async || (buy("shop.com").await.status == 409).then_some(())).await;

    app.clock.advance(1);
    buy("other.com").await.expect(201);
    take_two_permits().await;
    renew().await.expect_error(502, "registrar_error");
    app.clock.advance(1);
    eventually("the renewal", async || (renew().await.status == 200).then_some(())).await;
    assert_eq!(registrar.orders().len(), 2);
}
