//! The test fixture: the service on a separate database per test, and a provider that signs webhooks.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use billing::{
    Billing, BillingConfig, CallRequest, CallResult, CallUsage, Catalog, Charge, Checkout, CustomerSession, NewOrder,
    Notice, Organizations, Payments, PaymentsError, Ports, Products, RemoteSubscription, WebhookError,
};
use diesel_async::RunQueryDsl as _;
use kernel::audit::Actor;
use kernel::{Limits, NodeId, OrgId, Plan, ProjectId};
use serde_json::{Value, json};
use store::Connection;
use testkit::{TestStore, random_id};
use tokio::sync::Semaphore;
use uuid::Uuid;
use webhooks::{SignedMessage, SigningKey, VerifyingKeys};

pub const SECRET: &str = "polar_whs_test";
pub const PRO: &str = "product-pro";
pub const CREDIT: &str = "product-credit";
/// A model that costs 6 microcents per input token and 24 per output token.
pub const SMALL: &str = "small";
/// A model that costs a third of a microcent per token.
pub const CHEAP: &str = "cheap";

const CATALOG: &str = r#"{ "models": [
    { "id": "small", "lane": "value", "inputMicroCentsPerMTok": 6000000, "outputMicroCentsPerMTok": 24000000,
      "contextTokens": 1000000, "upstreamModel": "small-v1" },
    { "id": "cheap", "lane": "value", "inputMicroCentsPerMTok": 333333, "outputMicroCentsPerMTok": 333333,
      "contextTokens": 8000 }
] }"#;

pub struct Kit {
    pub billing: Billing,
    pub provider: Provider,
    base: TestStore,
    /// The home node of the projects.
    pub node: NodeId,
    deliveries: AtomicU32,
}

/// The responses of the provider to changes of a subscription, and the changes.
#[derive(Clone, Default)]
pub struct Provider(pub Arc<Mutex<ProviderState>>);

#[derive(Default)]
pub struct ProviderState {
    pub responses: VecDeque<Result<Option<RemoteSubscription>, PaymentsError>>,
    pub changes: Vec<(String, bool)>,
    /// If set, a change of a subscription and a new order wait for a permit before the response.
    pub gate: Option<Arc<Semaphore>>,
    /// Whether the organizations are customers with a saved payment method.
    pub has_card: bool,
    /// The number of requests for the payment method.
    pub card_lookups: u32,
    /// The draft orders. The id of an order is `draft_` and its number.
    pub orders: Vec<NewOrder>,
    /// The orders that were finalized.
    pub finalized: Vec<String>,
    /// The results of the next attempts to finalize an order. Later orders are paid.
    pub charges: VecDeque<Result<Charge, PaymentsError>>,
    /// The notifications that were raised.
    pub notices: Vec<(OrgId, Notice)>,
}

struct Orgs(Provider);

#[async_trait]
impl Organizations for Orgs {
    async fn lock(&self, tx: &mut Connection, org: OrgId) -> store::Result<Option<Plan>> {
        #[derive(diesel::QueryableByName)]
        struct Row {
            #[diesel(sql_type = diesel::sql_types::Text)]
            plan: Plan,
        }
        let lock = format!("SELECT plan FROM orgs.orgs WHERE id = '{}' FOR NO KEY UPDATE", org.as_uuid());
        let rows: Vec<Row> = diesel::sql_query(lock).load(tx).await?;
        Ok(rows.into_iter().next().map(|row| row.plan))
    }

    async fn set_plan(&self, tx: &mut Connection, org: OrgId, plan: Plan) -> store::Result<()> {
        let update = format!("UPDATE orgs.orgs SET plan = '{plan}' WHERE id = '{}'", org.as_uuid());
        diesel::sql_query(update).execute(tx).await?;
        Ok(())
    }

    async fn raise(&self, _: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()> {
        self.0.state().notices.push((org, notice));
        Ok(())
    }
}

impl Provider {
    pub fn state(&self) -> MutexGuard<'_, ProviderState> {
        self.0.lock().unwrap()
    }

    async fn wait_for_permit(&self) {
        let gate = self.state().gate.clone();
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
    }
}

#[async_trait]
impl Payments for Provider {
    async fn check_out(&self, _: &Checkout) -> Result<String, PaymentsError> {
        Err(PaymentsError::Unavailable("not part of these tests".to_owned()))
    }

    async fn customer_session(&self, _: OrgId, _: Option<&str>) -> Result<Option<CustomerSession>, PaymentsError> {
        Ok(None)
    }

    async fn set_cancel_at_period_end(
        &self,
        subscriptions: &[&str],
        cancel: bool,
    ) -> Vec<Result<Option<RemoteSubscription>, PaymentsError>> {
        self.state().changes.extend(subscriptions.iter().map(|id| ((*id).to_owned(), cancel)));
        self.wait_for_permit().await;
        let mut state = self.state();
        subscriptions.iter().map(|_| state.responses.pop_front().unwrap()).collect()
    }

    async fn has_payment_method(&self, _: OrgId) -> Result<bool, PaymentsError> {
        let mut state = self.state();
        state.card_lookups += 1;
        Ok(state.has_card)
    }

    async fn customer(&self, _: OrgId) -> Result<Option<String>, PaymentsError> {
        Ok(self.state().has_card.then(|| "cus_1".to_owned()))
    }

    async fn create_order(&self, order: &NewOrder) -> Result<String, PaymentsError> {
        let id = {
            let mut state = self.state();
            state.orders.push(order.clone());
            format!("draft_{}", state.orders.len())
        };
        self.wait_for_permit().await;
        Ok(id)
    }

    async fn finalize_order(&self, order: &str) -> Result<Charge, PaymentsError> {
        let mut state = self.state();
        state.finalized.push(order.to_owned());
        state.charges.pop_front().unwrap_or(Ok(Charge::Paid))
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
        Self::with(Limits::default()).await
    }

    pub async fn with(limits: Limits) -> Self {
        let (base, provider) = (TestStore::start().await, Provider::default());
        let config = BillingConfig {
            products: Products { pro: Some(PRO.to_owned()), credit: Some(CREDIT.to_owned()), topup: None },
            sandbox: true,
            webhook_keys: Some(VerifyingKeys::parse(SECRET).unwrap()),
            return_addresses: "https://dashboard.example".parse().unwrap(),
            catalog: Catalog::parse(CATALOG).unwrap(),
        };
        let organizations = Arc::new(Orgs(provider.clone()));
        let ports = Ports { payments: Some(Arc::new(provider.clone())), organizations };
        let node: NodeId = base.store.clock_rng().id();
        let add = format!(
            "INSERT INTO convergence.nodes (id, name, token_hash, created_at) VALUES ('{}', 'one', '\\x01', now())",
            node.as_uuid()
        );
        base.db_execute(&add).await;
        let billing = Billing::new(base.store.clone(), limits, config, ports);
        Self { billing, provider, base, node, deliveries: AtomicU32::new(0) }
    }

    pub fn organizations(&self) -> Arc<dyn Organizations> {
        Arc::new(Orgs(self.provider.clone()))
    }

    /// Creates an organization on the free plan.
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

    /// Creates a project on the node, with access to AI models.
    pub async fn project(&self, org: OrgId, name: &str) -> ProjectId {
        let project: ProjectId = self.store.clock_rng().id();
        let (id, org, node) = (project.as_uuid(), org.as_uuid(), self.node.as_uuid());
        self.db_execute(&format!(
            "INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at) \
             VALUES ('{id}', '{org}', '{name}', 'public', 0, now())"
        ))
        .await;
        self.db_execute(&format!(
            "INSERT INTO convergence.placements (project_id, node_id, state, epoch, created_at) \
             VALUES ('{id}', '{node}', 'active', 1, now())"
        ))
        .await;
        self.db_execute(&format!("INSERT INTO resources.grants VALUES ('{id}', 'ai', now())")).await;
        project
    }

    /// Creates an organization with this credit in cents, and a project.
    pub async fn customer(&self, slug: &str, cents: i64) -> (OrgId, ProjectId) {
        let org = self.org(slug).await;
        if cents > 0 {
            self.deliver(&order(org, &format!("order_of_{slug}"), cents)).await;
        }
        (org, self.project(org, "site").await)
    }

    /// Requests the admission of a call of [`SMALL`].
    pub async fn admit(&self, project: ProjectId, id: Uuid) -> CallResult {
        self.admit_model(project, id, SMALL).await
    }

    pub async fn admit_model(&self, project: ProjectId, id: Uuid, model: &str) -> CallResult {
        let request = CallRequest { id, project, model: model.to_owned(), input_tokens: 10, max_output_tokens: None };
        self.billing.admit_call(self.node, &request).await.unwrap()
    }

    /// Settles a call with its reported usage. Returns whether this settlement ended the call.
    pub async fn settle(&self, id: Uuid, input_tokens: i64, output_tokens: i64) -> bool {
        let usage = CallUsage { input_tokens, output_tokens, estimated: false };
        self.billing.settle_call(self.node, id, Some(usage)).await.unwrap()
    }

    /// Admits and settles a call.
    pub async fn call(&self, project: ProjectId, input_tokens: i64, output_tokens: i64) -> Uuid {
        let id = random_id();
        self.admit(project, id).await.unwrap();
        assert!(self.settle(id, input_tokens, output_tokens).await);
        id
    }

    /// Returns the ledger of an organization, oldest row first, as kind, amount and balance.
    pub async fn ledger(&self, org: OrgId) -> Vec<(String, i64, i64)> {
        let page = self.billing.ledger(org, 200, None).await.unwrap();
        let rows = page.items.into_iter().rev();
        rows.map(|row| (row.kind.to_string(), row.amount_micro_cents, row.balance_micro_cents)).collect()
    }

    /// Checks that the ledger is consistent: its ids have no gaps, its times and running balances increase, its last
    /// balance is that of the account, and the sums of each project are those of its rows. Accounts and projects hold
    /// the estimated cost of their open calls.
    pub async fn assert_consistent(&self) {
        let rows = "SELECT count(*) FROM (SELECT *, row_number() OVER w AS expected_id, \
            sum(amount_micro_cents) OVER w AS expected_balance, lag(created_at) OVER w AS previous FROM billing.ledger \
            WINDOW w AS (PARTITION BY org_id ORDER BY ledger_id)) l \
            WHERE ledger_id <> expected_id OR balance_micro_cents <> expected_balance OR created_at < previous";
        assert_eq!(self.database.number(rows).await, 0, "ledger");
        let accounts = "SELECT count(*) FROM billing.accounts a FULL JOIN (SELECT org_id, \
            sum(amount_micro_cents) AS balance, max(ledger_id) AS last FROM billing.ledger GROUP BY org_id) l \
            USING (org_id) WHERE (a.balance_micro_cents, a.last_ledger_id) IS DISTINCT FROM (l.balance, l.last)";
        assert_eq!(self.database.number(accounts).await, 0, "accounts");
        let usage = "SELECT count(*) FROM billing.project_usage u FULL JOIN (SELECT project_id, count(*) AS calls, \
            sum(input_tokens) AS input, sum(output_tokens) AS output, -sum(amount_micro_cents) AS spent \
            FROM billing.ledger WHERE kind = 'call' GROUP BY project_id) l USING (project_id) \
            WHERE (u.calls, u.input_tokens, u.output_tokens, u.spent_micro_cents) IS DISTINCT FROM \
                (coalesce(l.calls, 0), coalesce(l.input, 0), coalesce(l.output, 0), coalesce(l.spent, 0))";
        assert_eq!(self.database.number(usage).await, 0, "usage");
        let open = "SELECT coalesce(sum(div(input_tokens::numeric * input_price + 999999, 1000000) \
            + div(greatest(output_tokens, expected_output_tokens)::numeric * output_price + 999999, 1000000)), 0) \
            FROM billing.calls c WHERE ended_at IS NULL";
        let held = format!(
            "SELECT (SELECT count(*) FROM billing.accounts a WHERE held_micro_cents <> ({open} AND c.org_id = a.org_id)) \
             + (SELECT count(*) FROM billing.project_usage u \
                WHERE held_micro_cents <> ({open} AND c.project_id = u.project_id))"
        );
        assert_eq!(self.database.number(&held).await, 0, "held");
        let sums = "SELECT count(*) FROM (SELECT *, count(*) OVER w AS calls, -sum(amount_micro_cents) OVER w AS spent \
            FROM billing.ledger WHERE kind = 'call' WINDOW w AS (PARTITION BY project_id ORDER BY ledger_id)) l \
            WHERE project_calls <> calls OR project_spent_micro_cents <> spent";
        assert_eq!(self.database.number(sums).await, 0, "running sums");
    }

    /// Delivers a body under a new id. Returns whether the plan changed.
    pub async fn deliver(&self, body: &Value) -> bool {
        // Advance the clock, so that the ids of the audit log are in the order of the events.
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

    /// Returns the names of the audit events of an organization, oldest first.
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

/// Returns the event `subscription.updated`. `modified` is its modification time, in seconds after the start of 2026.
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

/// Returns the event `order.paid` of AI credit.
pub fn order(org: OrgId, id: &str, cents: i64) -> Value {
    json!({ "type": "order.paid", "timestamp": "2026-01-01T00:00:00Z", "data": {
        "id": id, "product_id": CREDIT, "billing_reason": "purchase", "net_amount": cents, "currency": "usd",
        "customer_id": "cus_1", "customer": { "external_id": org.to_string() }, "metadata": {},
    } })
}

/// Returns the actor of the changes in these tests.
pub fn actor() -> Actor {
    Actor::service("test")
}
