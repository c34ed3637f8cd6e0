//! AI credit: balance, ledger, checkout, and the settings of auto top-up.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kernel::audit::{Actor, Event};
use kernel::{InvalidField, InvalidFields, OrgId, Secret, Time};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Billing, Result};
use crate::MICRO_CENTS_PER_CENT;
use crate::error::BillingError;
use crate::model::{
    AUTO_TOPUPS_PER_DAY, AiCredit, AutoTopup, AutoTopupChange, BillingPage, CREDIT_TIERS, LedgerPage, NewCreditCheckout,
};
use crate::ports::Checkout;
use crate::repository::{AccountRepository as _, TopUpRepository as _};

/// The longest wait for the provider's response about the payment method, when the credit is read.
const CARD_TIMEOUT: Duration = Duration::from_secs(2);
/// The time for which a known payment method is cached, so that clients can poll the balance.
const CARD_SECONDS: i64 = 60;

/// The organizations whose payment method the provider confirmed, with the time. A missing payment method is not
/// cached, so that a new one is shown immediately.
#[derive(Debug, Default)]
pub(super) struct Cards(Mutex<HashMap<OrgId, Time>>);

impl Cards {
    fn contains(&self, org: OrgId, now: Time) -> bool {
        let cards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cards.get(&org).is_some_and(|at| now < at.plus_seconds(CARD_SECONDS))
    }

    fn set(&self, org: OrgId, has_card: bool, now: Time) {
        let mut cards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cards.retain(|found, at| *found != org && now < at.plus_seconds(CARD_SECONDS));
        if has_card {
            cards.insert(org, now);
        }
    }
}

impl Billing {
    /// Returns the AI credit of an organization, even while the payments provider is down.
    ///
    /// # Errors
    /// Returns [`BillingError::Store`].
    pub async fn credit(&self, org: OrgId) -> Result<AiCredit> {
        let has_payment_method = async {
            if self.cards.contains(org, self.store.clock_rng().now()) {
                return Ok(Ok(true));
            }
            tokio::time::timeout(CARD_TIMEOUT, self.has_payment_method(org)).await
        };
        let (mut credit, has_payment_method) = tokio::join!(self.stored_credit(org), has_payment_method);
        if let (Ok(credit), Ok(Ok(has_payment_method))) = (&mut credit, has_payment_method) {
            credit.has_payment_method = has_payment_method;
        }
        credit
    }

    /// Returns a page of at most `limit` rows of the ledger whose id is less than `before`, newest first.
    ///
    /// # Errors
    /// Returns [`BillingError::Store`].
    pub async fn ledger(&self, org: OrgId, limit: u16, before: Option<i64>) -> Result<LedgerPage> {
        let mut items = self.store.connection().await?.ledger_list(org, i64::from(limit) + 1, before).await?;
        let has_more = items.len() > usize::from(limit);
        items.truncate(usize::from(limit));
        let next_before = items.last().filter(|_| has_more).map(|row| row.ledger_id);
        Ok(LedgerPage { items, next_before })
    }

    /// Creates a checkout of AI credit. The payment itself does not change the balance; the webhook of the order does.
    ///
    /// # Errors
    /// Returns [`BillingError::Fields`], [`BillingError::CreditOff`] or [`BillingError::Unavailable`].
    pub async fn check_out_credit(&self, actor: &Actor, org: OrgId, new: NewCreditCheckout) -> Result<BillingPage> {
        let (return_to, micro_cents) = InvalidFields::both(
            self.return_address(&new.return_to),
            require_tier("microCents", Some(new.micro_cents)),
        )?;
        let (payments, product) = self.sale_of_credit().ok_or(BillingError::CreditOff)?;
        let checkout = Checkout {
            org,
            product: product.to_owned(),
            return_to: return_to.url,
            embed_origin: return_to.origin,
            credit_cents: Some(micro_cents / MICRO_CENTS_PER_CENT),
        };
        let url = payments.check_out(&checkout).await.map_err(BillingError::Unavailable)?;
        let data = json!({ "amountMicroCents": micro_cents });
        self.record(actor, Event::in_org("ai.credit.checkout", org, org, data)).await?;
        Ok(BillingPage { url: Secret::new(url) })
    }

    /// Turns auto top-up on or off. Cancels a top-up with the previous settings whose draft order does not exist yet.
    /// Returns the credit if auto top-up is on.
    ///
    /// # Errors
    /// Returns [`BillingError::Fields`], [`BillingError::TopUpOff`], [`BillingError::NoPaymentMethod`] or
    /// [`BillingError::Unavailable`].
    pub async fn set_auto_topup(&self, actor: &Actor, org: OrgId, change: AutoTopupChange) -> Result<Option<AiCredit>> {
        if !change.enabled {
            self.disable_auto_topup(actor, org).await?;
            return Ok(None);
        }
        let amount = require_tier("amountMicroCents", change.amount_micro_cents);
        let limit = amount.as_ref().map_or(i64::MAX, |amount| *amount);
        let threshold = change.threshold_micro_cents.filter(|threshold| (1..limit).contains(threshold));
        let threshold = threshold
            .ok_or_else(|| InvalidField::new("thresholdMicroCents", "must be more than 0 and less than the amount"));
        let (amount, threshold) = InvalidFields::both(amount, threshold)?;
        if self.sale_of_credit().is_none() {
            return Err(BillingError::TopUpOff);
        }
        if !self.has_payment_method(org).await? {
            return Err(BillingError::NoPaymentMethod);
        }
        let new = AutoTopup { enabled: true, amount_micro_cents: Some(amount), threshold_micro_cents: Some(threshold) };
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                self.ports.organizations.lock(tx, org).await?;
                if tx.auto_topup_get(org).await? == new {
                    return Ok(Outcome::Unchanged(()));
                }
                tx.topup_cancel(org).await?;
                tx.auto_topup_enable(org, amount, threshold).await?;
                let data = json!({ "amountMicroCents": amount, "thresholdMicroCents": threshold });
                Ok::<_, BillingError>(Outcome::Changed((), Event::in_org("ai.autotopup.on", org, org, data)))
            })
            .await?;
        let credit = self.stored_credit(org).await?;
        Ok(Some(AiCredit { has_payment_method: true, ..credit }))
    }

    async fn disable_auto_topup(&self, actor: &Actor, org: OrgId) -> Result<()> {
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                // A declined charge also locks the top-up before the settings. If auto top-up is off, no top-up without
                // an order is pending, so the rollback reverts nothing.
                tx.topup_cancel(org).await?;
                if !tx.auto_topup_disable(org).await? {
                    return Ok(Outcome::Unchanged(()));
                }
                Ok(Outcome::Changed((), Event::in_org("ai.autotopup.off", org, org, json!({}))))
            })
            .await
    }

    /// Returns the credit without the provider's response. Auto top-up requires a payment method, so an organization
    /// with auto top-up has one.
    async fn stored_credit(&self, org: OrgId) -> Result<AiCredit> {
        let today = super::topup::start_of_day(self.store.clock_rng().now());
        let mut connection = self.store.connection().await?;
        let auto_topup = connection.auto_topup_get(org).await?;
        Ok(AiCredit {
            balance_micro_cents: connection.account_balance(org).await?,
            has_payment_method: auto_topup.enabled,
            auto_topups_today: connection.topup_count(org, today).await?,
            auto_topup_per_day: AUTO_TOPUPS_PER_DAY,
            auto_topup,
            tiers_micro_cents: CREDIT_TIERS.to_vec(),
        })
    }

    /// Returns whether the organization has a payment method that can be charged for credit.
    async fn has_payment_method(&self, org: OrgId) -> Result<bool> {
        let Some((payments, _)) = self.sale_of_credit() else { return Ok(false) };
        let has_card = payments.has_payment_method(org).await.map_err(BillingError::Unavailable)?;
        self.cards.set(org, has_card, self.store.clock_rng().now());
        Ok(has_card)
    }
}

/// Returns the amount in a field if it is for sale.
fn require_tier(field: &'static str, micro_cents: Option<i64>) -> std::result::Result<i64, InvalidField> {
    micro_cents.filter(|amount| CREDIT_TIERS.contains(amount)).ok_or_else(|| {
        let tiers = CREDIT_TIERS.map(|tier| tier.to_string()).join(", ");
        InvalidField::new(field, format!("must be one of {tiers}"))
    })
}
