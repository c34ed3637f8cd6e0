//! The test fixture: the service on a separate database per test, and a provider that signs webhooks.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use billing::{
    Billing, BillingConfig, Checkout, CustomerSession, Organizations, Payments, PaymentsError, Ports, Products,
    RemoteSubscription, WebhookError,
};
use diesel_async::RunQueryDsl as _;
use kernel::{Limits, OrgId, Plan};
use serde_json::{Value, json};
use store::Connection;
use testkit::TestStore;
use webhooks::{SignedMessage, SigningKey, VerifyingKeys};

pub const SECRET: &str = "polar_whs_test";
pub const PRO: &str = "product-pro";
pub const CREDIT: &str = "product-credit";

pub struct Kit {
    pub billing: Billing,
    pub provider: Provider,
    base: TestStore,
    deliveries: AtomicU32,
}

/// The responses of the provider to changes of a subscription, and the changes.
#[derive(Clone, Default)]
pub struct Provider(pub Arc<Mutex<ProviderState>>);

#[derive(Default)]
pub struct ProviderState {
    pub response: Option<Result<Option<RemoteSubscription>, PaymentsError>>,
    pub changes: Vec<(String, bool)>,
}

struct Orgs;

#[async_trait]
impl Organizations for Orgs {
    async fn lock(&self, tx: &mut Connection, org: OrgId) -> store::Result<Option<Plan>> {
        #[derive(diesel::QueryableByName)]
        struct Row {
            #[diesel(sql_type = diesel::sql_types::Text)]
            plan: Plan,
        }
        let lock = format!("SELECT plan FROM orgs.orgs WHERE id = '{}' FOR UPDATE", org.as_uuid());
        let rows: Vec<Row> = diesel::sql_query(lock).load(tx).await?;
        Ok(rows.into_iter().next().map(|row| row.plan))
    }

    async fn set_plan(&self, tx: &mut Connection, org: OrgId, plan: Plan) -> store::Result<()> {
        let update = format!("UPDATE orgs.orgs SET plan = '{plan}' WHERE id = '{}'", org.as_uuid());
        diesel::sql_query(update).execute(tx).await?;
        Ok(())
    }
}

#[async_trait]
impl Payments for Provider {
    async fn check_out(&self, _: &Checkout) -> Result<String, PaymentsError> {
        Err(PaymentsError("not part of these tests".to_owned()))
    }

    async fn customer_session(&self, _: OrgId, _: Option<&str>) -> Result<Option<CustomerSession>, PaymentsError> {
        Ok(None)
    }

    async fn set_cancel_at_period_end(
        &self,
        subscription: &str,
        cancel: bool,
    ) -> Result<Option<RemoteSubscription>, PaymentsError> {
        let mut state = self.0.lock().unwrap();
        state.changes.push((subscription.to_owned(), cancel));
        state.response.take().unwrap()
    }

    async fn has_payment_method(&self, _: OrgId) -> Result<bool, PaymentsError> {
        Ok(false)
    }
}

impl Deref for Kit {
    type Target = TestStore;

    fn deref(&self) -> &TestStore {
        &self.base
    }
}

impl Kit {
    pub async fn start() -> Self {
        let (base, provider) = (TestStore::start().await, Provider::default());
        let config = BillingConfig {
            products: Products { pro: Some(PRO.to_owned()), credit: Some(CREDIT.to_owned()) },
            sandbox: true,
            webhook_keys: Some(VerifyingKeys::parse(SECRET).unwrap()),
            return_addresses: "https://dashboard.example".parse().unwrap(),
        };
        let ports = Ports { payments: Some(Arc::new(provider.clone())), organizations: Arc::new(Orgs) };
        let billing = Billing::new(base.store.clone(), Limits::default(), config, ports);
        Self { billing, provider, base, deliveries: AtomicU32::new(0) }
    }

    pub fn organizations(&self) -> Arc<dyn Organizations> {
        Arc::new(Orgs)
    }

    /// An organization on the free plan.
    pub async fn org(&self, slug: &str) -> OrgId {
        let org: OrgId = self.store.clock_rng().id();
        let insert = format!(
            "INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at) VALUES ('{}', '{slug}', '{slug}', \
             'free', false, now())",
            org.as_uuid()
        );
        self.db_execute(&insert).await;
        org
    }

    /// Delivers a body under a new id. Returns whether the plan changed.
    pub async fn deliver(&self, body: &Value) -> bool {
        // The ids of the audit log rise with the time.
        self.clock.advance(1);
        let id = format!("delivery_{}", self.deliveries.fetch_add(1, Ordering::Relaxed));
        self.deliver_as(&id, body).await.unwrap()
    }

    pub async fn deliver_as(&self, id: &str, body: &Value) -> Result<bool, WebhookError> {
        self.deliver_bytes(id, body.to_string().as_bytes()).await
    }

    pub async fn deliver_bytes(&self, id: &str, body: &[u8]) -> Result<bool, WebhookError> {
        let timestamp = self.now().unix_seconds().to_string();
        let signatures = SigningKey::parse(SECRET).unwrap().sign(id, &timestamp, body);
        let message = SignedMessage { id, timestamp: &timestamp, signatures: &signatures, body };
        Ok(self.billing.receive(message).await?.applied)
    }

    pub async fn plan(&self, org: OrgId) -> String {
        let query = format!("SELECT plan FROM orgs.orgs WHERE id = '{}'", org.as_uuid());
        self.database.rows(&query).await.remove(0)["plan"].as_str().unwrap().to_owned()
    }

    /// The names of the audit events of an organization, the oldest first.
    pub async fn events(&self, org: OrgId) -> Vec<String> {
        let query = format!("SELECT event FROM store.audit WHERE org_id = '{}' ORDER BY id", org.as_uuid());
        let rows = self.database.rows(&query).await;
        rows.iter().map(|row| row["event"].as_str().unwrap().to_owned()).collect()
    }

    pub async fn count(&self, table: &str) -> i64 {
        self.database.number(&format!("SELECT count(*) FROM billing.{table}")).await
    }

    pub async fn balance(&self, org: OrgId) -> i64 {
        let query = format!("SELECT sum(balance_micro_cents) FROM billing.accounts WHERE org_id = '{}'", org.as_uuid());
        self.database.number(&format!("coalesce(({query}), 0)")).await
    }
}

/// The event `subscription.updated` with a modification time in seconds after the start of 2026.
pub fn subscription(org: OrgId, id: &str, status: &str, modified: u32) -> Value {
    json!({ "type": "subscription.updated", "timestamp": "2026-01-01T00:00:00Z", "data": {
        "id": id, "status": status, "current_period_end": "2026-02-01T00:00:00.123456Z", "cancel_at_period_end": false,
        "customer_id": "cus_1", "product_id": PRO, "modified_at": modified_at(modified),
        "customer": { "external_id": org.to_string() }, "metadata": {},
    } })
}

pub fn modified_at(seconds: u32) -> String {
    format!("2026-01-01T00:{:02}:{:02}.000001Z", seconds / 60, seconds % 60)
}

/// The event `order.paid` of AI credit.
pub fn order(org: OrgId, id: &str, cents: i64) -> Value {
    json!({ "type": "order.paid", "timestamp": "2026-01-01T00:00:00Z", "data": {
        "id": id, "product_id": CREDIT, "billing_reason": "purchase", "net_amount": cents, "currency": "usd",
        "customer_id": "cus_1", "customer": { "external_id": org.to_string() }, "metadata": {},
    } })
}
