//! Automatic top-ups of AI credit (contract section 8, "Auto top-up"; providers.md section 1, "off-session charge").

use std::sync::LazyLock;

use kernel::audit::Event;
use kernel::{OrgId, ProjectId, Time};
use opentelemetry::metrics::Gauge;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{Connection, Error};
use uuid::Uuid;

use super::Billing;
use crate::MICRO_CENTS_PER_CENT;
use crate::model::{AUTO_TOPUPS_PER_DAY, AutoTopup, TopUpState};
use crate::ports::{Charge, NewOrder, Notice, Payments, PaymentsError};
use crate::repository::{TopUpRecord, TopUpRepository as _};

/// The outbox topic of top-ups that must be charged. Its messages are [`TopUpMessage`]s.
pub const TOP_UP_TOPIC: &str = "billing.topup";

/// The name of the system actor in the audit log.
const ACTOR: &str = "billing.topup";

/// The age of a charged top-up above which it counts as stuck.
const STUCK_SECONDS: i64 = 3600;

static STUCK: LazyLock<Gauge<u64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .u64_gauge("svc.billing.topups_stuck")
        .with_description("Top-ups that were charged and are not credited an hour after their start")
        .build()
});

/// A top-up that must be charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopUpMessage {
    pub id: Uuid,
}

/// The reason why a top-up was not completed. The next attempt continues with the same order.
#[derive(Debug, thiserror::Error)]
pub enum TopUpError {
    #[error(transparent)]
    Payments(#[from] PaymentsError),
    #[error("the sale of AI credit is not configured")]
    Off,
    #[error(transparent)]
    Store(#[from] Error),
}

impl Billing {
    /// Starts a top-up of a locked account, unless one is in progress or the limit of the day is reached.
    pub(super) async fn start_topup(
        &self,
        tx: &mut Connection,
        org: OrgId,
        amount: i64,
        now: Time,
    ) -> store::Result<()> {
        let topup = TopUpRecord {
            id: self.store.clock_rng().id_at(now),
            org,
            amount_micro_cents: amount,
            order_id: None,
            state: TopUpState::Pending,
            created_at: now,
        };
        if tx.topup_create(&topup, start_of_day(now), AUTO_TOPUPS_PER_DAY).await? {
            let message = TopUpMessage { id: topup.id };
            self.store.enqueue(tx, TOP_UP_TOPIC, &topup.id.to_string(), &message).await?;
        }
        Ok(())
    }

    /// Starts a top-up for a project whose call was rejected because no credit is left. No deduction would start one,
    /// because no call is admitted.
    pub(super) async fn start_due_topup(&self, project: ProjectId) -> store::Result<()> {
        let now = self.store.clock_rng().now();
        let is_due = self.store.connection().await?.topup_due(project).await?.is_some();
        if !is_due {
            return Ok(());
        }
        self.store
            .transaction_unaudited(async |tx: &mut Connection| {
                tx.account_lock(project).await?;
                match tx.topup_due(project).await? {
                    Some((org, amount)) => self.start_topup(tx, org, amount, now).await,
                    None => Ok(()),
                }
            })
            .await
    }

    /// Charges a top-up: creates the draft order, stores it, and finalizes it. Safe to repeat, because each attempt
    /// finalizes the stored order. The charge itself does not change the balance; the webhook of the order does.
    ///
    /// # Errors
    /// Returns [`TopUpError`] if the top-up was not completed.
    pub async fn charge_topup(&self, id: Uuid) -> Result<(), TopUpError> {
        let Some(topup) = self.pending_topup(id).await? else { return Ok(()) };
        match self.charge(&topup).await {
            Ok(Charge::Paid) => {
                self.store.connection().await?.topup_end_pending(id, TopUpState::Charged).await?;
                Ok(())
            }
            Ok(Charge::Declined) => self.decline_topup(&topup, "declined").await,
            Err(TopUpError::Payments(PaymentsError::Rejected(_))) => self.decline_topup(&topup, "rejected").await,
            Err(error) => Err(error),
        }
    }

    async fn charge(&self, topup: &TopUpRecord) -> Result<Charge, TopUpError> {
        let (payments, credit) = self.sale_of_credit().ok_or(TopUpError::Off)?;
        let product = self.config.products.topup.as_deref().unwrap_or(credit);
        let order = match topup.order_id.clone() {
            Some(order) => Some(order),
            None => self.create_order(topup, payments, product).await?,
        };
        match order {
            Some(order) => Ok(payments.finalize_order(&order).await?),
            // Without a customer, there is no payment method. A top-up that ended in the meantime stays as it is.
            None => Ok(Charge::Declined),
        }
    }

    /// Returns a top-up that must be charged. Cancels it if auto top-up was turned off, or now has another amount: a
    /// deduction may have read the settings immediately before their change.
    async fn pending_topup(&self, id: Uuid) -> Result<Option<TopUpRecord>, TopUpError> {
        let mut connection = self.store.connection().await?;
        let found = connection.topup_find(id).await?.filter(|topup| topup.state == TopUpState::Pending);
        let Some(topup) = found else { return Ok(None) };
        let AutoTopup { enabled, amount_micro_cents, .. } = connection.auto_topup_get(topup.org).await?;
        if enabled && amount_micro_cents == Some(topup.amount_micro_cents) {
            return Ok(Some(topup));
        }
        // Do not cancel a top-up with an order: the order may be paid already, and only the response was lost.
        if topup.order_id.is_none() {
            connection.topup_end_pending(id, TopUpState::Canceled).await?;
            return Ok(None);
        }
        Ok(Some(topup))
    }

    /// Creates the draft order of a top-up, and stores it. Returns the stored order, or `None` if the organization is
    /// not a customer or the top-up has ended. An order that is not stored stays a draft.
    async fn create_order(
        &self,
        topup: &TopUpRecord,
        payments: &dyn Payments,
        product: &str,
    ) -> Result<Option<String>, TopUpError> {
        let stored = self.store.connection().await?.customer_find(topup.org).await?;
        let customer = match stored {
            Some(customer) => Some(customer),
            None => payments.customer(topup.org).await?,
        };
        let Some(customer) = customer else { return Ok(None) };
        let order = NewOrder {
            org: topup.org,
            customer,
            product: product.to_owned(),
            cents: topup.amount_micro_cents / MICRO_CENTS_PER_CENT,
            purpose: "ai-credit",
            reference: topup.id.to_string(),
        };
        let order = payments.create_order(&order).await?;
        Ok(self.store.connection().await?.topup_set_order(topup.id, &order).await?)
    }

    /// Ends a top-up that could not be charged within the retry period, in the transaction that makes its message a dead
    /// letter. Otherwise it would prevent all later top-ups. If the order was charged after all, its webhook still adds
    /// the credit.
    ///
    /// # Errors
    /// Returns an error if Postgres fails.
    pub async fn give_up_topup(&self, tx: &mut Connection, id: Uuid) -> store::Result<()> {
        match tx.topup_find(id).await? {
            Some(topup) => self.end_declined(tx, &topup, "unavailable").await,
            None => Ok(()),
        }
    }

    /// Counts the charged top-ups whose event has not arrived within an hour, in a metric. They prevent further top-ups
    /// until an operator ends them.
    ///
    /// # Errors
    /// Returns [`BillingError::Store`](crate::BillingError::Store).
    pub async fn count_stuck_topups(&self) -> super::Result<()> {
        let created_before = self.store.clock_rng().now().plus_seconds(-STUCK_SECONDS);
        let stuck = self.store.connection().await?.topup_count_charged(created_before).await?;
        STUCK.record(stuck.unsigned_abs(), &[]);
        Ok(())
    }

    /// Turns auto top-up off, because the bank declined the charge or the provider rejected the order.
    async fn decline_topup(&self, topup: &TopUpRecord, reason: &str) -> Result<(), TopUpError> {
        self.store
            .transaction_unaudited(async |tx: &mut Connection| Ok(self.end_declined(tx, topup, reason).await?))
            .await
    }

    /// Ends a pending top-up as declined, notifies the organization, and turns auto top-up off.
    async fn end_declined(&self, tx: &mut Connection, topup: &TopUpRecord, reason: &str) -> store::Result<()> {
        if !tx.topup_end_pending(topup.id, TopUpState::Declined).await? {
            return Ok(());
        }
        self.ports.organizations.raise(tx, topup.org, Notice::TopUpDeclined).await?;
        if tx.auto_topup_disable(topup.org).await? {
            let data = json!({ "reason": reason, "topup": topup.id });
            let event = Event::in_org("ai.autotopup.off", topup.org, topup.org, data);
            self.store.append_system_event(tx, ACTOR, &event).await?;
        }
        Ok(())
    }
}

/// Returns the start of the UTC day.
pub(super) fn start_of_day(now: Time) -> Time {
    const DAY: i64 = 24 * 3600 * 1000;
    now.plus_millis(-now.unix_millis().rem_euclid(DAY))
}
