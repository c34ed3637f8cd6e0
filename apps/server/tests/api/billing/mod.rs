//! Billing of organizations.

mod amounts;
mod hook;
mod mismatch;
mod off;
mod purchase;
mod redelivery;
mod stuck;

use kernel::Secret;
use reqwest::RequestBuilder;
use sandbox::{PAYMENTS_TOKEN, PAYMENTS_WEBHOOK_SECRET, PRO_PRODUCT, PaymentsServer};
use serde_json::{Value, json};
use server::Config;
use server::config::PaymentsConfig;
use webhooks::SigningKey;

use crate::support::{ApiResponse, App, Caller};

pub const HOOK: &str = "/v1/hooks/payments";
const BILLING: &str = "/v1/orgs/ada/billing";

/// Adds the headers of a webhook with the current time.
fn sign(app: &App, secret: &str, id: &str, body: &str, request: RequestBuilder) -> RequestBuilder {
    let timestamp = app.clock.clock_rng().now().unix_seconds().to_string();
    let signature = SigningKey::parse(secret).unwrap().sign(id, &timestamp, body.as_bytes());
    request
        .header("webhook-id", id)
        .header("webhook-timestamp", timestamp)
        .header("webhook-signature", signature)
        .body(body.to_owned())
}

/// Delivers an event.
async fn deliver(app: &App, id: &str, event: &Value) -> ApiResponse {
    let body = event.to_string();
    app.anonymous()
        .send(reqwest::Method::POST, HOOK, |request| sign(app, PAYMENTS_WEBHOOK_SECRET, id, &body, request))
        .await
}

/// Configures the provider.
pub fn use_provider(config: &mut Config, provider: &PaymentsServer) {
    let (url, token) = (provider.url().parse().unwrap(), Secret::new(PAYMENTS_TOKEN.to_owned()));
    config.payments = Some(PaymentsConfig { url, token });
}

pub async fn org_id(caller: &Caller) -> Value {
    caller.get("/v1/orgs").await.expect(200)["items"][0]["id"].clone()
}

/// Returns the event of a subscription of the pro product. `modified` is its modification time in seconds.
fn subscription(org: &Value, status: &str, modified: u32) -> Value {
    json!({ "type": "subscription.updated", "timestamp": "2026-01-01T00:00:00Z", "data": {
        "id": "sub_1", "status": status, "current_period_end": "2030-02-01T00:00:00.000000Z",
        "cancel_at_period_end": false, "customer_id": "cus_1", "product_id": PRO_PRODUCT,
        "modified_at": format!("2026-01-01T00:00:{modified:02}.000000Z"),
        "customer": { "external_id": org }, "metadata": {},
    } })
}
