//! The webhook of the payments provider.

use std::sync::LazyLock;

use kernel::audit::Event;
use kernel::{OrgId, Plan};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;
use serde_json::json;
use store::Connection;
use webhooks::{SignedMessage, VerifyingKeys};

use super::Billing;
use crate::error::WebhookError;
use crate::event::{Effect, Envelope, EventProducts, PaidOrder, PaymentEvent, SubscriptionState};
use crate::model::WebhookResult;
use crate::repository::{
    AccountRepository as _, SubscriptionRecord, SubscriptionRepository as _, TopUpRepository as _, UnassignedEvent,
    WebhookRepository as _,
};

/// The name of the system actor in the audit log.
const ACTOR: &str = "billing.webhook";

impl Billing {
    /// Returns the keys of the provider's webhooks.
    ///
    /// # Errors
    /// Returns [`WebhookError::Off`] if no secret is configured.
    pub fn webhook_keys(&self) -> Result<&VerifyingKeys, WebhookError> {
        self.config.webhook_keys.as_ref().ok_or(WebhookError::Off)
    }

    /// Applies a webhook of the payments provider, once for each id. The id is recorded in the transaction of the
    /// effect. So the webhook can be delivered again if the effect fails.
    ///
    /// # Errors
    /// Returns [`WebhookError`] if the webhook is not applied.
    pub async fn receive(&self, message: SignedMessage<'_>) -> Result<WebhookResult, WebhookError> {
        let received = self.receive_authentic(message).await;
        match &received {
            // Only count this error, because anyone can send such a request, and a log line for each could fill the
            // log.
            Err(WebhookError::NotAuthentic(_)) => count("", "not_authentic"),
            // Only the provider can cause this error. The response does not contain the reason.
            Err(WebhookError::Malformed(reason)) => {
                count("", "malformed");
                tracing::warn!(webhook = message.id, reason, "rejected a malformed webhook");
            }
            _ => {}
        }
        received
    }

    async fn receive_authentic(&self, message: SignedMessage<'_>) -> Result<WebhookResult, WebhookError> {
        self.webhook_keys()?.verify(message, self.store.clock_rng().now().unix_seconds())?;
        let envelope = Envelope::parse(message.body)?;
        let body = str::from_utf8(message.body).map_err(|_| WebhookError::Malformed("the body is not UTF-8"))?;
        let products = &self.config.products;
        let products = EventProducts { pro: products.pro.as_deref(), credit: products.credit.as_deref() };
        // The order of a top-up is stored before it can be paid.
        let top_up = match envelope.paid_order_id() {
            Some(order) => self.store.connection().await?.topup_org(order).await?,
            None => None,
        };
        let is_stored = match envelope.subscription_id() {
            Some(id) => self.store.connection().await?.subscription_get(id).await?.is_some(),
            None => false,
        };
        let event = envelope.event(&products, top_up, is_stored)?;
        let applied = self
            .store
            .transaction_unaudited(async |tx: &mut Connection| {
                let now = self.store.clock_rng().now();
                if !tx.webhook_insert(message.id, &envelope.kind, now).await? {
                    return Ok(Applied::Repeated);
                }
                let Some(event) = &event else { return Ok(Applied::Recorded) };
                let org = event.organization.id();
                let locked = match org {
                    Some(org) => self.ports.organizations.lock(tx, org).await?.map(|plan| (org, plan)),
                    None => None,
                };
                if let Some((org, plan)) = locked {
                    return self.apply(tx, org, plan, event).await;
                }
                let event = UnassignedEvent {
                    webhook_id: message.id.to_owned(),
                    kind: envelope.kind.clone(),
                    organization: event.organization.0.clone(),
                    body: body.to_owned(),
                    received_at: now,
                };
                tx.unassigned_insert(&event).await?;
                Ok(Applied::Unassigned)
            })
            .await
            .map_err(WebhookError::Store)?;
        count(&envelope.kind, applied.label());
        if matches!(applied, Applied::Unassigned) {
            tracing::warn!(webhook = message.id, kind = envelope.kind, "kept an event of an unknown organization");
        }
        if let Some(event) = event.filter(|_| !matches!(applied, Applied::Unassigned | Applied::Repeated)) {
            report_mismatch(message.id, &event);
        }
        Ok(WebhookResult { applied: matches!(applied, Applied::Plan) })
    }

    /// Applies an event of a locked organization.
    async fn apply(&self, tx: &mut Connection, org: OrgId, plan: Plan, event: &PaymentEvent) -> store::Result<Applied> {
        let customer_id = event.customer_id.as_deref();
        match &event.effect {
            Effect::Subscription(state) => self.apply_subscription(tx, org, plan, customer_id, state).await,
            Effect::Credit(order) => self.apply_order(tx, org, customer_id, order).await,
        }
    }

    /// Stores the state of a subscription, and sets the plan that follows from all subscriptions of the organization.
    async fn apply_subscription(
        &self,
        tx: &mut Connection,
        org: OrgId,
        plan: Plan,
        customer_id: Option<&str>,
        state: &SubscriptionState,
    ) -> store::Result<Applied> {
        let SubscriptionState { id, status, current_period_end, cancel_at_period_end, modified_at } = state;
        let record = SubscriptionRecord {
            id: id.clone(),
            org,
            status: status.clone(),
            current_period_end: *current_period_end,
            cancel_at_period_end: *cancel_at_period_end,
            modified_at: *modified_at,
        };
        if !tx.subscription_set(&record).await? {
            return Ok(Applied::Recorded);
        }
        if let Some(customer_id) = customer_id {
            tx.customer_set(org, customer_id).await?;
        }
        let has_live = tx.subscription_list(org).await?.iter().any(SubscriptionRecord::is_live);
        let new = if has_live { Plan::Pro } else { Plan::Free };
        if new == plan {
            return Ok(Applied::Recorded);
        }
        self.ports.organizations.set_plan(tx, org, new).await?;
        let data = json!({ "from": plan, "to": new, "subscription": id, "status": status });
        let event = Event::in_org("billing.plan", org, org, data);
        self.store.append_system_event(tx, ACTOR, &event).await?;
        Ok(Applied::Plan)
    }

    /// Credits an order, unless it was credited before.
    async fn apply_order(
        &self,
        tx: &mut Connection,
        org: OrgId,
        customer_id: Option<&str>,
        order: &PaidOrder,
    ) -> store::Result<Applied> {
        let PaidOrder { id, micro_cents } = order;
        if tx.ledger_has_order(id).await? {
            return Ok(Applied::Recorded);
        }
        if let Some(customer_id) = customer_id {
            tx.customer_set(org, customer_id).await?;
        }
        tx.account_credit(org, id, *micro_cents, self.store.clock_rng().now()).await?;
        tx.topup_credited(id).await?;
        let data = json!({ "order": id, "amountMicroCents": micro_cents });
        self.store.append_system_event(tx, ACTOR, &Event::in_org("billing.credit", org, org, data)).await?;
        Ok(Applied::Credit)
    }
}

/// The effect of a webhook.
#[derive(Debug, Clone, Copy)]
enum Applied {
    /// The plan of an organization changed.
    Plan,
    /// An order was credited.
    Credit,
    /// The event was recorded. It changed nothing that users see.
    Recorded,
    /// The webhook was processed before.
    Repeated,
    /// The organization is unknown.
    Unassigned,
}

impl Applied {
    fn label(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Credit => "credit",
            Self::Recorded => "recorded",
            Self::Repeated => "repeated",
            Self::Unassigned => "unassigned",
        }
    }
}

static WEBHOOKS: LazyLock<Counter<u64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .u64_counter("svc.billing.webhooks")
        .with_description("Webhooks of the payments provider, by their effect or the reason of their rejection")
        .build()
});

static CUSTOMER_MISMATCHES: LazyLock<Counter<u64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .u64_counter("svc.billing.customer_mismatches")
        .with_description("Events whose customer belongs to another organization than their checkout")
        .build()
});

/// Logs and counts an applied event if its customer belongs to another organization than its checkout.
fn report_mismatch(webhook: &str, event: &PaymentEvent) {
    if let Some((org, checkout_org)) = event.organization.id().zip(event.checkout_org) {
        tracing::warn!(
            webhook,
            %org,
            %checkout_org,
            "the customer of an event belongs to another organization than its checkout"
        );
        CUSTOMER_MISMATCHES.add(1, &[]);
    }
}

/// The families of events. The provider adds types, so only these become metric labels, and `other`.
const FAMILIES: [&str; 2] = ["subscription", "order"];
const OTHER: &str = "other";

/// Creates the counters of which an alert needs the series before the first event.
pub(super) fn create_counters() {
    for family in FAMILIES.into_iter().chain([OTHER]) {
        add(0, family, Applied::Unassigned.label());
    }
    CUSTOMER_MISMATCHES.add(0, &[]);
}

/// Counts a webhook by its effect, or by the reason for its rejection.
fn count(kind: &str, effect: &'static str) {
    add(1, FAMILIES.into_iter().find(|family| kind.starts_with(family)).unwrap_or(OTHER), effect);
}

fn add(count: u64, family: &'static str, effect: &'static str) {
    WEBHOOKS.add(count, &[KeyValue::new("effect", effect), KeyValue::new("event", family)]);
}
