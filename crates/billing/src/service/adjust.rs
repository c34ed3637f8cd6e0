//! Corrections of AI credit and of top-ups by operators.

use kernel::OrgId;
use kernel::audit::{Actor, Event};
use serde_json::json;
use store::{Connection, Outcome, Store};
use uuid::Uuid;

use crate::model::TopUpState;
use crate::repository::{AccountRepository as _, TopUpRepository as _};

/// The corrections of AI credit in an installation. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Adjustments {
    store: Store,
}

/// The reason why AI credit was not corrected.
#[derive(Debug, thiserror::Error)]
pub enum AdjustmentError {
    #[error("the amount must not be 0")]
    NoAmount,
    #[error("this installation has no organization {0}")]
    UnknownOrg(OrgId),
    #[error("{0} is not a top-up that was charged and not credited; `xtask billing topups` lists them")]
    NotCharged(Uuid),
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Adjustments {
    /// Returns the corrections in this database.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// Adds an amount in microcents to the AI credit of an organization. A negative amount may make the balance negative.
    /// Returns the new balance. The reason is for the audit log of the organization. Raises no notification, and starts
    /// no automatic top-up.
    ///
    /// # Errors
    /// Returns [`AdjustmentError`].
    pub async fn adjust(
        &self,
        actor: &Actor,
        org: OrgId,
        micro_cents: i64,
        reason: &str,
    ) -> Result<i64, AdjustmentError> {
        if micro_cents == 0 {
            return Err(AdjustmentError::NoAmount);
        }
        let now = self.store.clock_rng().now();
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let balance = tx.account_adjust(org, micro_cents, now).await;
                let balance = balance.map_err(|error| match error.violates("accounts_org_id_fkey") {
                    true => AdjustmentError::UnknownOrg(org),
                    false => error.into(),
                })?;
                let data = json!({ "amountMicroCents": micro_cents, "reason": reason });
                Ok(Outcome::Changed(balance, Event::in_org("billing.adjust", org, org, data)))
            })
            .await
    }

    /// Ends a charged top-up whose event `order.paid` had no effect, and which prevents further top-ups. If `is_credited`
    /// is set, adds its amount to the AI credit, as the event would. Otherwise, ends it without credit. The reason is for
    /// the audit log of the organization. An order that was not credited here is still credited by a later event.
    ///
    /// # Errors
    /// Returns [`AdjustmentError`].
    pub async fn end_topup(
        &self,
        actor: &Actor,
        id: Uuid,
        is_credited: bool,
        reason: &str,
    ) -> Result<(), AdjustmentError> {
        let now = self.store.clock_rng().now();
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let found = tx.topup_find(id).await?.filter(|topup| topup.state == TopUpState::Charged);
                let topup = found.ok_or(AdjustmentError::NotCharged(id))?;
                let order = topup.order_id.ok_or(AdjustmentError::NotCharged(id))?;
                let (state, event) = match is_credited {
                    true => (TopUpState::Credited, "billing.topup.credit"),
                    false => (TopUpState::Canceled, "billing.topup.void"),
                };
                if is_credited {
                    // The webhook also locks the account before the top-up.
                    let credited = tx.account_credit(topup.org, &order, topup.amount_micro_cents, now).await;
                    credited.map_err(|error| match error.violates("ledger_order_id_key") {
                        true => AdjustmentError::NotCharged(id),
                        false => error.into(),
                    })?;
                }
                if !tx.topup_end_charged(id, state).await? {
                    return Err(AdjustmentError::NotCharged(id));
                }
                let amount = topup.amount_micro_cents;
                let data = json!({ "topup": id, "order": order, "amountMicroCents": amount, "reason": reason });
                Ok(Outcome::Changed((), Event::in_org(event, topup.org, topup.org, data)))
            })
            .await
    }
}
