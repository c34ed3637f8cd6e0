//! Construction of billing, and its ports. Organizations and the adapter of the payments provider implement the ports.

use std::sync::Arc;

use async_trait::async_trait;
use billing::{
    Billing, Charge, Checkout, CustomerSession, NewOrder, Notice, PaymentsError, Ports, RemoteSubscription,
    TOP_UP_TOPIC, TopUpMessage,
};
use futures_util::future::join_all;
use gateway::http::without_write_permit;
use kernel::{OrgId, Plan, Time};
use orgs::Orgs;
use providers::OutboundError;
use providers::payments::{Finalized, NewCheckout, PaymentsClient, Subscription};
use store::outbox::{DeliveryError, Message, OutboxHandler};
use store::{Connection, Store};

use super::error::IntoStoreError as _;
use crate::config::{Config, PAYMENTS_URL, PaymentsConfig};
use crate::jobs::{Background, Job, MINUTE};

pub(super) fn wire(
    config: &Config,
    store: &Store,
    orgs: &Orgs,
    background: &mut Background,
) -> anyhow::Result<Billing> {
    let payments = match config.payments.clone() {
        None => None,
        Some(PaymentsConfig { url, token }) => {
            let client = PaymentsClient::new(&url, token).map_err(|error| PAYMENTS_URL.malformed(error))?;
            Some(Arc::new(PaymentsPort(client)) as Arc<dyn billing::Payments>)
        }
    };
    let ports = Ports { payments, organizations: Arc::new(OrgsPort(orgs.clone())) };
    let billing = Billing::new(store.clone(), config.limits, config.billing.clone(), ports);
    background.outbox(store.spawn_outbox_worker(Arc::new(TopUps(billing.clone()))));
    background.job(Job::every(MINUTE, "billing.end_lost_calls"), billing.clone(), async |billing| {
        billing.end_lost_calls().await
    });
    background.job(Job::every(MINUTE, "billing.count_stuck_topups"), billing.clone(), async |billing| {
        billing.count_stuck_topups().await
    });
    Ok(billing)
}

/// Charges automatic top-ups.
struct TopUps(Billing);

#[async_trait]
impl OutboxHandler for TopUps {
    fn topic(&self) -> &'static str {
        TOP_UP_TOPIC
    }

    async fn deliver(&self, message: &Message) -> Result<(), DeliveryError> {
        let TopUpMessage { id } = message.parse()?;
        // The order is stored, so each attempt continues with the same order.
        self.0.charge_topup(id).await.map_err(|error| DeliveryError::transient(&error))
    }

    async fn on_dead_letter(&self, tx: &mut Connection, message: &Message, _: Time) -> store::Result<()> {
        let TopUpMessage { id } = message.parse_delivered()?;
        self.0.give_up_topup(tx, id).await
    }
}

struct PaymentsPort(PaymentsClient);

#[async_trait]
impl billing::Payments for PaymentsPort {
    async fn check_out(&self, checkout: &Checkout) -> Result<String, PaymentsError> {
        let Checkout { org, product, return_to, embed_origin, credit_cents } = checkout;
        let org = org.to_string();
        let new = NewCheckout {
            product,
            external_customer_id: &org,
            success_url: return_to,
            embed_origin,
            credit_cents: *credit_cents,
        };
        Ok(call(self.0.create_checkout(&new)).await?.into())
    }

    async fn customer_session(
        &self,
        org: OrgId,
        return_to: Option<&str>,
    ) -> Result<Option<CustomerSession>, PaymentsError> {
        let created = call(self.0.create_customer_session(&org.to_string(), return_to)).await?;
        Ok(created.map(|session| CustomerSession {
            token: session.token,
            customer_id: session.customer_id,
            expires_at: Time::new(session.expires_at),
            portal_url: session.portal_url,
        }))
    }

    async fn set_cancel_at_period_end(
        &self,
        subscriptions: &[&str],
        cancel: bool,
    ) -> Vec<Result<Option<RemoteSubscription>, PaymentsError>> {
        let changes = subscriptions.iter().map(|subscription| self.0.set_cancel_at_period_end(subscription, cancel));
        let changes: Vec<_> = changes.collect();
        let Some(changed) = without_write_permit(join_all(changes)).await else {
            return subscriptions.iter().map(|_| Err(no_write_permit())).collect();
        };
        let changed = changed.into_iter().map(|changed| changed.map_err(classify_change));
        changed.map(|changed| Ok(changed?.map(remote_subscription))).collect()
    }

    async fn has_payment_method(&self, org: OrgId) -> Result<bool, PaymentsError> {
        call(self.0.has_payment_method(&org.to_string())).await
    }

    async fn customer(&self, org: OrgId) -> Result<Option<String>, PaymentsError> {
        call(self.0.customer_id(&org.to_string())).await
    }

    async fn create_order(&self, order: &NewOrder) -> Result<String, PaymentsError> {
        let NewOrder { org, customer, product, cents, purpose, reference } = order;
        let org = org.to_string();
        let new = providers::payments::NewOrder {
            customer_id: customer,
            product_id: product,
            amount_cents: *cents,
            org: &org,
            purpose,
            reference,
        };
        let created = call(self.0.create_order(&new)).await?;
        created.ok_or_else(|| PaymentsError::Rejected("a charge without the customer was refused".to_owned()))
    }

    async fn finalize_order(&self, order: &str) -> Result<Charge, PaymentsError> {
        Ok(match call(self.0.finalize_order(order)).await? {
            Finalized::Paid => Charge::Paid,
            Finalized::Declined | Finalized::Forbidden => Charge::Declined,
        })
    }
}

/// Calls the provider. Releases the request's write permit during the call, so that other requests can use it.
async fn call<T>(call: impl Future<Output = Result<T, OutboundError>>) -> Result<T, PaymentsError> {
    without_write_permit(call).await.ok_or_else(no_write_permit)?.map_err(classify)
}

fn no_write_permit() -> PaymentsError {
    PaymentsError::Unavailable("too many concurrent changes to the organization".to_owned())
}

/// Logs an error of the provider, and returns whether another attempt may succeed.
fn classify(error: OutboundError) -> PaymentsError {
    tracing::warn!(%error, "the payments provider failed");
    match error {
        OutboundError::Status(400 | 404 | 410 | 412 | 422) => PaymentsError::Rejected(error.to_string()),
        error => PaymentsError::Unavailable(error.to_string()),
    }
}

/// Like [`classify`], for the change of a subscription. Other rejections do not show that it has ended.
fn classify_change(error: OutboundError) -> PaymentsError {
    let is_gone = matches!(error, OutboundError::Status(404 | 410 | 412));
    match classify(error) {
        PaymentsError::Rejected(reason) if is_gone => PaymentsError::Gone(reason),
        error => error,
    }
}

fn remote_subscription(subscription: Subscription) -> RemoteSubscription {
    let Subscription { status, current_period_end, cancel_at_period_end, modified_at } = subscription;
    RemoteSubscription { status, current_period_end, cancel_at_period_end, modified_at }
}

struct OrgsPort(Orgs);

#[async_trait]
impl billing::Organizations for OrgsPort {
    async fn lock(&self, tx: &mut Connection, org: OrgId) -> store::Result<Option<Plan>> {
        self.0.lock(tx, org).await
    }

    async fn set_plan(&self, tx: &mut Connection, org: OrgId, plan: Plan) -> store::Result<()> {
        self.0.set_plan(tx, org, plan).await
    }

    async fn raise(&self, tx: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()> {
        let raised = match notice {
            Notice::AiCreditLimit => self.0.raise_audited(tx, org, orgs::Notice::AiCreditLimit).await,
            // The end of auto top-up is the audit event.
            Notice::TopUpDeclined => {
                let notice = orgs::Notice::PaymentFailed { charge: orgs::Charge::TopUp };
                self.0.raise(tx, org, notice).await.map(drop)
            }
        };
        raised.map_err(|error| error.into_store_error())
    }
}
