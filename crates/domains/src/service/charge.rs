//! Charges renewals, from the outbox.

use async_trait::async_trait;
use kernel::{DomainId, OrgId, Time};
use serde::{Deserialize, Serialize};
use store::outbox::{DeliveryError, Message, OutboxHandler, withdraw};
use store::{Connection, Error};
use tokio::time::Instant;
use uuid::Uuid;

use super::Domains;
use super::sync::cancel_unbilled_renewals;
use crate::error::DomainError;
use crate::model::{ChargePurpose, ChargeState};
use crate::ports::{Charge, NewOrder, Notice, Payments, PaymentsError};
use crate::repository::{ChargeRecord, ChargeRepository as _, DomainRecord, DomainRepository as _};

/// The outbox topic of the renewals that must be charged.
const TOPIC: &str = "domains.charge";

#[derive(Serialize, Deserialize)]
struct ChargeMessage {
    id: Uuid,
    /// Whether a request claimed the charge, so that the organization has not ordered it otherwise.
    #[serde(default)]
    is_claimed: bool,
}

/// The outbox handler that charges renewals.
#[derive(Clone)]
pub struct RenewalCharges(pub Domains);

impl Domains {
    /// Records the charge of a renewal in the transaction that records the renewal, and enqueues it if it is pending.
    /// Otherwise it is unbilled. Each new expiry is charged once. Does nothing if domains are free of charge.
    pub(super) async fn record_renewal_charge(
        &self,
        tx: &mut Connection,
        id: Uuid,
        renewed: &DomainRecord,
        cents: i64,
        state: ChargeState,
    ) -> store::Result<()> {
        if self.ports.payments.is_none() || cents <= 0 {
            return Ok(());
        }
        let charge = ChargeRecord {
            id,
            org: renewed.org,
            domain: renewed.id,
            name: renewed.name.clone(),
            purpose: ChargePurpose::Renewal,
            renewed_until: renewed.expires_at,
            cents,
            order_id: None,
            state,
            created_at: self.now(),
        };
        if tx.charge_insert(&charge).await? && state == ChargeState::Pending {
            self.enqueue_charge(tx, id).await?;
        }
        Ok(())
    }

    async fn enqueue_charge(&self, tx: &mut Connection, id: Uuid) -> store::Result<()> {
        self.store.enqueue(tx, TOPIC, &id.to_string(), &ChargeMessage { id, is_claimed: false }).await
    }

    /// Enqueues the charges of a domain's unbilled renewals, because the organization now orders them.
    pub(super) async fn charge_unbilled_renewals(&self, tx: &mut Connection, domain: DomainId) -> store::Result<()> {
        if self.ports.payments.is_none() {
            return Ok(());
        }
        for id in tx.charges_order_unbilled(domain).await? {
            self.enqueue_charge(tx, id).await?;
        }
        Ok(())
    }

    /// Finds the oldest renewal that the organization must pay before it renews this domain, whose row is locked. Makes an
    /// unbilled one pending, so that no reading of the registrar cancels it while the request charges it. If the request
    /// dies, the outbox charges it. The returned record has the state before.
    pub(super) async fn claim_unpaid_renewal(
        &self,
        tx: &mut Connection,
        domain: &DomainRecord,
    ) -> store::Result<Option<ChargeRecord>> {
        let unpaid = tx.charges_before_renewal(domain.org, domain.id).await?;
        let Some(charge) = unpaid.into_iter().next() else { return Ok(None) };
        if charge.state == ChargeState::Unbilled {
            if !tx.charge_move(charge.id, ChargeState::Unbilled, ChargeState::Pending).await? {
                return Err(Error::inconsistent("an unbilled charge changed under the lock of its domain"));
            }
            let now = self.store.corrected_now(tx).await?;
            let due = now.plus_seconds(self.config.request_timeout.as_secs().cast_signed());
            let (key, message) = (charge.id.to_string(), ChargeMessage { id: charge.id, is_claimed: true });
            self.store.enqueue_for_at(tx, TOPIC, charge.org, &key, &message, due).await?;
        }
        Ok(Some(charge))
    }

    /// Releases a charge that was declined after [`Self::claim_unpaid_renewal`] made it pending. Returns false if the
    /// charge is not unbilled afterwards.
    async fn release_unbilled(&self, charge: &ChargeRecord) -> store::Result<bool> {
        self.store
            .transaction_unaudited(async |tx: &mut Connection| {
                let released = release_claimed(tx, charge).await?;
                if released.is_some() {
                    withdraw(tx, TOPIC, &charge.id.to_string()).await?;
                }
                Ok(released == Some(ChargeState::Unbilled))
            })
            .await
    }

    /// Records that a renewal is paid.
    async fn record_paid(&self, tx: &mut Connection, id: Uuid) -> store::Result<()> {
        if !tx.charge_set_paid(id).await? {
            tracing::error!(charge = %id, "the order of a canceled renewal was paid; refund it");
        }
        Ok(())
    }

    /// Charges a renewal. Each attempt finalizes the stored order.
    async fn charge_renewal(&self, message: &ChargeMessage, attempt: i32) -> Result<(), ChargeError> {
        let &ChargeMessage { id, is_claimed } = message;
        let found = self.store.connection().await?.charge_find(id).await?;
        let Some(charge) = found.filter(|charge| charge.state == ChargeState::Pending) else { return Ok(()) };
        let payments = self.payments()?;
        let charged = match self.order_of(&charge, payments).await {
            Ok(Some(order)) => payments.finalize_order(&order).await,
            // An organization that is not a customer of the provider has no saved card. Without an order, nothing is
            // charged.
            Ok(None) | Err(ChargeError::Payments(PaymentsError::Rejected(_))) => Ok(Charge::Declined),
            Err(error) => return Err(error),
        };
        match charged {
            Ok(Charge::Paid) => {
                let mut connection = self.store.connection().await?;
                Ok(self.record_paid(&mut connection, id).await?)
            }
            Ok(Charge::Declined) | Err(PaymentsError::NotPayable(_)) => self.decline(&charge, is_claimed).await,
            // Only a rejection of the first attempt proves that nothing was charged: the provider also rejects a
            // repeated attempt if an earlier one charged the order. A request may have made it before the outbox did.
            Err(PaymentsError::Rejected(_)) if attempt == 1 && charge.order_id.is_none() => {
                self.decline(&charge, is_claimed).await
            }
            Err(error) => Err(error.into()),
        }
    }

    fn payments(&self) -> Result<&dyn Payments, PaymentsError> {
        let payments = self.ports.payments.as_deref();
        payments.ok_or_else(|| PaymentsError::Unavailable("payments are not configured".to_owned()))
    }

    /// Requires that the organization has saved a payment method, because the platform pays the registrar before it charges
    /// the organization.
    pub(super) async fn require_payment_method(&self, until: Instant, org: OrgId) -> Result<(), DomainError> {
        // The adapter logs the error.
        let unavailable = |_| DomainError::Incomplete;
        let payments = self.payments().map_err(unavailable)?;
        let found = tokio::time::timeout_at(until, payments.has_payment_method(org)).await;
        let is_saved = found.map_err(|_| DomainError::Incomplete)?.map_err(unavailable)?;
        if is_saved { Ok(()) } else { Err(DomainError::PaymentFailed) }
    }

    /// Charges a renewal that [`Self::claim_unpaid_renewal`] returned. Each attempt finalizes the stored order, so
    /// concurrent requests and the outbox charge it once. A declined charge stays unbilled, declined, or pending: the
    /// outbox ends a pending one.
    pub(super) async fn charge_unpaid_renewal(&self, until: Instant, charge: &ChargeRecord) -> Result<(), DomainError> {
        let charged = tokio::time::timeout_at(until, self.charge_again(charge)).await;
        match charged.unwrap_or_else(|_| Err(PaymentsError::Unavailable("no response in time".to_owned()).into())) {
            Ok(Charge::Paid) => {
                self.store
                    .transaction_unaudited(async |tx: &mut Connection| {
                        self.record_paid(tx, charge.id).await?;
                        withdraw(tx, TOPIC, &charge.id.to_string()).await?;
                        Ok::<_, DomainError>(())
                    })
                    .await
            }
            Ok(Charge::Declined)
            | Err(ChargeError::Payments(PaymentsError::Rejected(_) | PaymentsError::NotPayable(_))) => {
                // Another request or the outbox may have ended the charge, or the domain no longer has the renewal. Then
                // the state of the charge decides.
                if charge.state == ChargeState::Unbilled && !self.release_unbilled(charge).await? {
                    return Ok(());
                }
                Err(DomainError::RenewalUnpaid {
                    name: charge.name.clone(),
                    until: charge.renewed_until.unwrap_or(charge.created_at),
                    cents: charge.cents,
                })
            }
            // The adapter logs the error.
            Err(ChargeError::Payments(PaymentsError::Unavailable(_))) => Err(DomainError::Incomplete),
            Err(ChargeError::Store(error)) => Err(error.into()),
        }
    }

    async fn charge_again(&self, charge: &ChargeRecord) -> Result<Charge, ChargeError> {
        let payments = self.payments()?;
        let Some(order) = self.order_of(charge, payments).await? else { return Ok(Charge::Declined) };
        let charged = payments.finalize_order(&order).await;
        if let Err(PaymentsError::NotPayable(_)) = charged {
            // The provider ended the draft without a payment, so the next request creates another one.
            self.store.connection().await?.charge_remove_order(charge.id, &order).await?;
        }
        Ok(charged?)
    }

    /// Returns the draft order of a charge, which is stored before it is finalized. Returns `None` if the organization
    /// is not a customer.
    async fn order_of(&self, charge: &ChargeRecord, payments: &dyn Payments) -> Result<Option<String>, ChargeError> {
        if let Some(order) = &charge.order_id {
            return Ok(Some(order.clone()));
        }
        let order = NewOrder {
            org: charge.org,
            cents: charge.cents,
            purpose: "domain-renewal",
            reference: charge.id.to_string(),
        };
        let Some(order) = payments.create_order(&order).await? else { return Ok(None) };
        Ok(self.store.connection().await?.charge_set_order(charge.id, &order).await?)
    }

    /// Records a declined charge. The domain stays renewed. See [`Self::end_declined`].
    async fn decline(&self, charge: &ChargeRecord, is_claimed: bool) -> Result<(), ChargeError> {
        self.store
            .transaction_unaudited(async |tx: &mut Connection| Ok(self.end_declined(tx, charge, is_claimed).await?))
            .await
    }

    /// Ends a pending charge as declined, and notifies the organization. Instead releases a charge that a request
    /// claimed, unless auto-renewal is now on. Does not withdraw the outbox message, because its worker removes it.
    async fn end_declined(&self, tx: &mut Connection, charge: &ChargeRecord, is_claimed: bool) -> store::Result<()> {
        if is_claimed && release_claimed(tx, charge).await?.is_some() {
            return Ok(());
        }
        if tx.charge_move(charge.id, ChargeState::Pending, ChargeState::Declined).await? {
            let notice = Notice::RenewalDeclined { domain: charge.name.clone() };
            self.ports.organizations.raise(tx, charge.org, notice).await?;
        }
        Ok(())
    }
}

/// Makes a charge unbilled again that [`Domains::claim_unpaid_renewal`] made pending, or cancels it if the domain no
/// longer has the renewal. Returns the new state. Does nothing if the charge is no longer pending, or if the
/// organization has turned auto-renewal on, which orders the renewal.
async fn release_claimed(tx: &mut Connection, charge: &ChargeRecord) -> store::Result<Option<ChargeState>> {
    let domain = tx.domain_lock_by_id(charge.domain).await?;
    let is_ordered = domain.as_ref().is_some_and(|domain| domain.auto_renew);
    if is_ordered || !tx.charge_move(charge.id, ChargeState::Pending, ChargeState::Unbilled).await? {
        return Ok(None);
    }
    // A reading of the registrar does not cancel a pending charge.
    if let Some(domain) = &domain {
        cancel_unbilled_renewals(tx, domain).await?;
    }
    Ok(tx.charge_find(charge.id).await?.map(|released| released.state))
}

/// The reason why a renewal was not charged. Another attempt continues with the same order.
#[derive(Debug, thiserror::Error)]
enum ChargeError {
    #[error(transparent)]
    Payments(#[from] PaymentsError),
    #[error(transparent)]
    Store(#[from] Error),
}

#[async_trait]
impl OutboxHandler for RenewalCharges {
    fn topic(&self) -> &'static str {
        TOPIC
    }

    async fn deliver(&self, message: &Message) -> Result<(), DeliveryError> {
        let charge: ChargeMessage = message.parse()?;
        let charged = self.0.charge_renewal(&charge, message.attempts).await;
        charged.map_err(|error| DeliveryError::Transient(error.to_string()))
    }

    /// Ends the charge, so that the organization is notified. A retry of the dead letter does not charge it.
    async fn on_dead_letter(&self, tx: &mut Connection, message: &Message, _: Time) -> store::Result<()> {
        let ChargeMessage { id, is_claimed } = message.parse_delivered()?;
        match tx.charge_find(id).await? {
            Some(charge) => self.0.end_declined(tx, &charge, is_claimed).await,
            None => Ok(()),
        }
    }
}
