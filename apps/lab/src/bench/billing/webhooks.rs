//! Webhooks per second: paid orders of AI credit.

use std::sync::Arc;

use anyhow::{Result, ensure};
use kernel::ClockRng;
use reqwest::Client;
use sandbox::{CREDIT_PRODUCT, PAYMENTS_WEBHOOK_SECRET};
use serde_json::{Value, json};
use testkit::random_id;
use webhooks::SigningKey;

use super::{Args, repeat};
use crate::bench::platform::Platform;
use crate::bench::report::Report;
use crate::bench::server;

/// A simulated payments provider that sends webhooks to the service.
struct Provider {
    client: Client,
    url: String,
    key: SigningKey,
    clock: ClockRng,
    organization: String,
}

impl Provider {
    /// Delivers the event of a new order.
    async fn deliver(&self) -> Result<()> {
        let id = random_id().to_string();
        let event = json!({ "type": "order.paid", "timestamp": "2026-01-01T00:00:00Z", "data": {
            "id": id, "status": "paid", "paid": true, "product_id": CREDIT_PRODUCT, "billing_reason": "purchase",
            "net_amount": 500, "total_amount": 500, "currency": "usd", "created_at": "2026-01-01T00:00:00Z",
            "customer_id": "cus_1", "customer": { "external_id": self.organization }, "metadata": {},
        } });
        let body = event.to_string();
        let timestamp = self.clock.now().unix_seconds().to_string();
        let signature = self.key.sign(&id, &timestamp, body.as_bytes());
        let request = self.client.post(&self.url).header("webhook-id", &id).header("webhook-timestamp", timestamp);
        let response = request.header("webhook-signature", signature).body(body).send().await?;
        ensure!(response.status().as_u16() == 200, "a delivery returned {}", response.status());
        Ok(())
    }
}

/// Adds the rate of deliveries, each of which gives credit to the same organization.
pub async fn measure(report: &mut Report, platform: &Platform, args: &Args) -> Result<()> {
    let organizations: Value = platform.organizations().await?;
    let provider = Arc::new(Provider {
        client: server::client()?,
        url: format!("{}/v1/hooks/payments", platform.public_url()),
        key: SigningKey::parse(PAYMENTS_WEBHOOK_SECRET)?,
        clock: ClockRng::system(),
        organization: server::string_at(&organizations, "/items/0/id")?,
    });
    let run = repeat(args, move || {
        let provider = Arc::clone(&provider);
        async move { provider.deliver().await }
    });
    let [rate, p50, p99] = run.await?.cells();
    report.paragraph(&format!(
        "**Webhooks.** Paid orders of AI credit for one organization. {} clients, {} s.",
        args.clients, args.seconds
    ))?;
    report.columns(&["per second", "p50 ms", "p99 ms"])?;
    report.row(&[&rate, &p50, &p99])
}
