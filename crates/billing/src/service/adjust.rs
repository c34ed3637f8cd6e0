//! Corrections of AI credit by operators.

use kernel::OrgId;
use kernel::audit::{Actor, Event};
use serde_json::json;
use store::{Connection, Outcome, Store};

use crate::repository::AccountRepository as _;

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
}
