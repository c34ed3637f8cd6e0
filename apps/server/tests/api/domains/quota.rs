//! The rate limit of the registrar, over all organizations and servers.

use serde_json::json;

use super::{DOMAINS, use_registrar};
use crate::support::{ApiResponse, App, Caller};
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
