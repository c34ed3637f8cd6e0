//! AI models, credit, and the metering of calls.

mod calls;
mod credit;
mod kills;
mod project;
mod topups;

use std::time::Duration;

use billing::Catalog;
use sandbox::PaymentsServer;
use serde_json::{Value, json};
use server::Config;
use testkit::reserved_address;

use crate::billing::use_provider;
use crate::support::{App, Caller, client, eventually};

const MODELS: &str = "/v1/ai/models";
const AI: &str = "/v1/orgs/ada/projects/site/ai";
const CREDIT: &str = "/v1/orgs/ada/ai/credit";
const CHECKOUT: &str = "/v1/orgs/ada/ai/credit/checkout";
const LEDGER: &str = "/v1/orgs/ada/ai/ledger";
const AUTO_TOPUP: &str = "/v1/orgs/ada/ai/autotopup";
const RETURN_TO: &str = "http://localhost:3000/billing";

/// A model that costs 6 microcents per input token and 24 per output token.
const SMALL: &str = "swift-small";

/// Sets the catalog of the configuration.
pub fn use_catalog(config: &mut Config) {
    let models = json!({ "models": [
        { "id": "lab/large", "lane": "frontier", "listPrice": true, "provider": "lab",
          "inputMicroCentsPerMTok": 300_000_000, "outputMicroCentsPerMTok": 1_500_000_000, "contextTokens": 200_000 },
        { "id": SMALL, "lane": "value", "inputMicroCentsPerMTok": 6_000_000, "outputMicroCentsPerMTok": 24_000_000,
          "contextTokens": 128_000, "upstreamModel": "small-v1" },
    ] });
    config.billing.catalog = Catalog::parse(&models.to_string()).unwrap();
}

/// A server with a payments provider, and Ada with her project `site`.
struct Kit {
    app: App,
    ada: Caller,
    provider: PaymentsServer,
}

impl Kit {
    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// Starts a server with changes of its configuration.
    async fn with(configure: impl FnOnce(&mut Config)) -> Self {
        let listen = reserved_address();
        let provider = PaymentsServer::start(Some(format!("http://{listen}/v1/hooks/payments"))).await;
        let app = App::with(|config| {
            config.listen = listen;
            use_provider(config, &provider);
            use_catalog(config);
            configure(config);
        })
        .await;
        let ada = app.sign_in("ada").await;
        ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
        Self { app, ada, provider }
    }

    async fn check_out(&self, micro_cents: i64) -> String {
        let request = json!({ "microCents": micro_cents, "returnTo": RETURN_TO });
        self.ada.post(CHECKOUT, request).await.expect(200)["url"].as_str().unwrap().to_owned()
    }

    /// Buys credit for five dollars.
    async fn buy(&self) {
        let before = self.balance().await;
        let checkout = self.check_out(500_000_000).await;
        assert_eq!(self.provider.pay(&checkout), RETURN_TO);
        self.wait_for_balance(before + 500_000_000).await;
    }

    /// Saves a card in the portal.
    async fn save_card(&self) {
        let portal = self.ada.post("/v1/orgs/ada/billing/portal", json!({})).await.expect(200)["url"].clone();
        let saved = client().post(portal.as_str().unwrap()).body("action=card").send().await.unwrap();
        assert_eq!(saved.status(), 302);
    }

    async fn balance(&self) -> i64 {
        self.ada.get(CREDIT).await.expect(200)["balanceMicroCents"].as_i64().unwrap()
    }

    async fn wait_for_balance(&self, balance: i64) {
        eventually("the balance", async || (self.balance().await == balance).then_some(())).await;
    }

    async fn ledger(&self) -> Vec<Value> {
        self.ada.get(LEDGER).await.expect(200)["items"].as_array().unwrap().clone()
    }

    async fn project_id(&self) -> Value {
        self.ada.get("/v1/orgs/ada/projects/site").await.expect(200)["id"].clone()
    }
}

/// A timeout that is longer than that of the card lookup.
const PATIENCE: Duration = Duration::from_secs(9);
