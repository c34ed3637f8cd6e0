//! The saga of a purchase, with the steps price, order, charge, register, zone and nameservers.
//!
//! The commit that starts the saga also reserves the name. The charge has two steps, because the provider has no
//! idempotency keys for orders: the first step records the id of a draft, and the second one finalizes the draft.

mod refusal;
mod response;

use std::time::Duration;

use async_trait::async_trait;
use kernel::audit::Event;
use serde::Serialize;
use serde_json::{Value, json};
use store::saga::{Attempt, Saga, SagaHandler, StepOutcome};
use store::{Connection, Error, Result};

use self::response::{OrderResponse, PriceResponse, RegisterResponse};
use super::purchase::PurchaseInput;
use super::{Domains, MIN_ORDER_TIME};
use crate::error::DomainError;
use crate::model::{ChargePurpose, ChargeState, DomainState};
use crate::ports::{
    Charge, NewOrder, PaymentsError, Prices, Refund, RegisteredDomain, Registrar, RegistrarError, Registration,
};
use crate::repository::{ChargeRecord, ChargeRepository as _, DomainRecord, DomainRepository as _};

pub(super) use self::refusal::Refusal;

/// The kind of the saga.
pub(super) const PURCHASE: &str = "domains.purchase";

const PRICE: &str = "price";
const ORDER: &str = "order";
const CHARGE: &str = "charge";
const REGISTER: &str = "register";
const ZONE: &str = "zone";
const NAMESERVERS: &str = "nameservers";

/// Executes the steps of purchases.
pub(super) struct PurchaseSaga(pub(super) Domains);

impl PurchaseSaga {
    /// Returns the error of a purchase that did not complete this step.
    pub(super) fn incomplete(step: &str) -> DomainError {
        match step {
            PRICE | REGISTER | NAMESERVERS => DomainError::RegistrarFailed,
            _ => DomainError::Incomplete,
        }
    }

    async fn price(&self, input: &PurchaseInput) -> Result<StepOutcome> {
        let Some(registrar) = self.0.ports.registrar.as_deref() else { return Ok(no_registrar()) };
        let offers = match registrar.check(std::slice::from_ref(&input.name)).await {
            Ok(offers) => offers,
            Err(RegistrarError::Rejected(reason)) => return Refusal::RegistrarRejected.outcome(reason),
            Err(RegistrarError::NameUnavailable(reason)) => return Refusal::NameUnavailable.outcome(reason),
            Err(error) => return Ok(retry(&error)),
        };
        let offer = offers.into_iter().find(|offer| offer.name == input.name);
        let Some((prices, premium)) = offer.and_then(|offer| Some((offer.prices?, offer.premium))) else {
            return Refusal::NameUnavailable.outcome("the registrar does not offer the name");
        };
        let Some(total_cents) = prices.total(input.years) else {
            return Refusal::NameUnavailable.outcome("the price is out of bounds");
        };
        match input.expected_price_cents {
            Some(expected_cents) if expected_cents != total_cents => {
                Refusal::PriceChanged { price_cents: total_cents, expected_cents }.outcome("the price changed")
            }
            None if premium => Refusal::PremiumPrice { price_cents: total_cents }
                .outcome("the request states no price of a premium name"),
            _ => {
                let Prices { first_year_cents, renewal_cents } = prices;
                done(&PriceResponse { first_year_cents, renewal_cents, total_cents, premium })
            }
        }
    }

    async fn order(&self, saga: &Saga) -> Result<StepOutcome> {
        let price: PriceResponse = required(saga, PRICE)?;
        let payments = self.0.ports.payments.as_deref().filter(|_| price.total_cents > 0);
        let Some(payments) = payments else { return done(&OrderResponse { order: None }) };
        let order = NewOrder {
            org: saga.org,
            cents: price.total_cents,
            purpose: "domain-purchase",
            reference: saga.id.to_string(),
        };
        match payments.create_order(&order).await {
            Ok(Some(order)) => done(&OrderResponse { order: Some(order) }),
            Ok(None) => Refusal::PaymentFailed.outcome("the organization is not a customer"),
            Err(PaymentsError::Rejected(reason)) => Refusal::PaymentFailed.outcome(reason),
            Err(error) => Ok(StepOutcome::Retry { reason: error.to_string(), new_key: false }),
        }
    }

    async fn charge(&self, saga: &Saga, attempt: &Attempt) -> Result<StepOutcome> {
        let Some(order) = required::<OrderResponse>(saga, ORDER)?.order else {
            return Ok(StepOutcome::Done(Value::Null));
        };
        let Some(payments) = self.0.ports.payments.as_deref() else { return Ok(no_payments()) };
        match payments.finalize_order(&order).await {
            Ok(Charge::Paid) => Ok(StepOutcome::Done(Value::Null)),
            Ok(Charge::Declined) => Refusal::PaymentFailed.outcome("declined"),
            Err(PaymentsError::NotPayable(reason)) => Refusal::PaymentFailed.outcome(reason),
            Err(PaymentsError::Rejected(reason)) if attempt.number == 1 => Refusal::PaymentFailed.outcome(reason),
            // An earlier attempt may have charged the order.
            Err(error) => Ok(StepOutcome::Retry { reason: error.to_string(), new_key: false }),
        }
    }

    async fn register(&self, saga: &Saga, input: &PurchaseInput, attempt: &Attempt) -> Result<StepOutcome> {
        let Some(registrar) = self.0.ports.registrar.as_deref() else { return Ok(no_registrar()) };
        // If an earlier attempt registered the domain, the name is not available any more.
        if let Some(outcome) = self.find_registered(registrar, input, attempt).await? {
            return Ok(outcome);
        }
        let price: PriceResponse = required(saga, PRICE)?;
        let registration = Registration {
            name: input.name.clone(),
            years: input.years,
            prices: Prices { first_year_cents: price.first_year_cents, renewal_cents: price.renewal_cents },
            premium: price.premium,
            contact: self.0.contact(input.domain).await?,
            key: attempt.key.clone(),
        };
        let refusal = match registrar.register(&registration).await {
            Ok(registered) => return registered_outcome(registered),
            Err(error @ (RegistrarError::Unavailable(_) | RegistrarError::NotSent(_))) => return Ok(retry(&error)),
            Err(refusal) => refusal,
        };
        // A slow earlier attempt may have registered the domain after the read above, or may still do so.
        if let Some(outcome) = self.find_registered(registrar, input, attempt).await? {
            return Ok(outcome);
        }
        match refusal {
            refusal if self.0.may_be_in_progress(attempt) => Ok(inconclusive(&refusal)),
            RegistrarError::NameUnavailable(reason) => Refusal::NameUnavailable.outcome(reason),
            RegistrarError::Rejected(reason) => Refusal::RegistrarRejected.outcome(reason),
            refusal => Ok(retry(&refusal)),
        }
    }

    /// Reads the domain if an earlier attempt may have registered it. Returns an outcome if the account has the domain or
    /// the read failed.
    async fn find_registered(
        &self,
        registrar: &dyn Registrar,
        input: &PurchaseInput,
        attempt: &Attempt,
    ) -> Result<Option<StepOutcome>> {
        if attempt.unanswered_at.is_none() {
            return Ok(None);
        }
        match registrar.read(&input.name).await {
            Ok(found) => found.map(registered_outcome).transpose(),
            Err(error) => Ok(Some(inconclusive(&error))),
        }
    }

    /// The domain is already registered, so this step is never refused.
    async fn set_nameservers(&self, input: &PurchaseInput) -> Result<StepOutcome> {
        let Some(nameservers) = self.0.ports.zones.nameservers() else {
            return Ok(StepOutcome::Retry { reason: "no nameservers are configured".to_owned(), new_key: false });
        };
        let Some(registrar) = self.0.ports.registrar.as_deref() else { return Ok(no_registrar()) };
        match registrar.set_nameservers(&input.name, &nameservers).await {
            Ok(()) => done(&nameservers),
            Err(error) => Ok(retry(&error)),
        }
    }

    /// Locks the domain of a purchase.
    async fn lock(&self, tx: &mut Connection, input: &PurchaseInput) -> Result<DomainRecord> {
        let domain = tx.domain_lock_by_id(input.domain).await?;
        domain.ok_or_else(|| Error::inconsistent("the purchase has no domain"))
    }

    async fn complete(&self, tx: &mut Connection, saga: &Saga, nameservers: Vec<String>) -> Result<Option<Event>> {
        let input: PurchaseInput = saga.input()?;
        let price: PriceResponse = required(saga, PRICE)?;
        let (domain, now) = (self.lock(tx, &input).await?, self.0.now());
        let completed = DomainRecord {
            state: DomainState::Active,
            previous_state: None,
            nameservers,
            renewal_cents: Some(price.renewal_cents),
            next_sync_at: Some(self.0.next_sync_at(now)),
            ..domain
        };
        self.0.update_locked(tx, &completed).await?;
        let data = json!({ "domain": input.name, "years": input.years, "priceCents": price.total_cents });
        let event = Event::in_org("domain.purchase", saga.org, input.domain, data);
        self.0.append_history(tx, input.domain, &event, saga.user).await?;
        Ok(Some(event))
    }
}

#[async_trait]
impl SagaHandler for PurchaseSaga {
    fn kind(&self) -> &'static str {
        PURCHASE
    }

    fn steps(&self) -> &'static [&'static str] {
        &[PRICE, ORDER, CHARGE, REGISTER, ZONE, NAMESERVERS]
    }

    fn min_time(&self, step: &str) -> Duration {
        if step == REGISTER { MIN_ORDER_TIME } else { Duration::ZERO }
    }

    async fn execute(&self, saga: &Saga, attempt: &Attempt) -> Result<StepOutcome> {
        let input: PurchaseInput = saga.input()?;
        match attempt.step {
            PRICE => self.price(&input).await,
            ORDER => self.order(saga).await,
            CHARGE => self.charge(saga, attempt).await,
            REGISTER => self.register(saga, &input, attempt).await,
            NAMESERVERS => self.set_nameservers(&input).await,
            // The commit that records this step also creates the zone.
            _ => Ok(StepOutcome::Done(Value::Null)),
        }
    }

    async fn record(&self, tx: &mut Connection, saga: &Saga, step: &str, response: &Value) -> Result<Option<Event>> {
        let input: PurchaseInput = saga.input()?;
        match step {
            ORDER => {
                let OrderResponse { order } = parse(response)?;
                let price: PriceResponse = required(saga, PRICE)?;
                if order.is_some() {
                    let charge = ChargeRecord {
                        id: saga.id,
                        org: saga.org,
                        domain: input.domain,
                        name: input.name,
                        purpose: ChargePurpose::Purchase,
                        renewed_until: None,
                        cents: price.total_cents,
                        order_id: order,
                        state: ChargeState::Pending,
                        created_at: self.0.now(),
                    };
                    tx.charge_insert(&charge).await?;
                }
            }
            CHARGE => {
                tx.charge_move(saga.id, ChargeState::Pending, ChargeState::Paid).await?;
            }
            REGISTER => {
                let registered: RegisterResponse = parse(response)?;
                let domain = self.lock(tx, &input).await?;
                let RegisterResponse { registered_at, expires_at, locked, nameservers, transferable_at } = registered;
                let changed = DomainRecord {
                    registered_at: Some(registered_at),
                    expires_at: Some(expires_at),
                    locked: Some(locked),
                    transferable_at: Some(transferable_at),
                    nameservers,
                    ..domain
                };
                self.0.update_locked(tx, &changed).await?;
            }
            ZONE => self.0.ports.zones.create_reserved(tx, saga.org, &input.name).await?,
            NAMESERVERS => return self.complete(tx, saga, parse(response)?).await,
            _ => {}
        }
        Ok(None)
    }

    /// Frees the name.
    async fn refuse(&self, tx: &mut Connection, saga: &Saga, _: &Value) -> Result<Option<Event>> {
        let input: PurchaseInput = saga.input()?;
        // The commit may be repeated after a lost acknowledgement.
        let domain = tx.domain_lock_by_id(input.domain).await?;
        let Some(domain) = domain.filter(|domain| domain.state == DomainState::Registering) else { return Ok(None) };
        self.0.ports.zones.release(tx, &input.name).await?;
        match domain.previous_state {
            Some(state) => {
                let auto_renew = input.previous_auto_renew.unwrap_or(domain.auto_renew);
                let before = DomainRecord { state, previous_state: None, auto_renew, ..domain };
                self.0.update_locked(tx, &before).await?;
            }
            None => tx.domain_delete(domain.id).await?,
        }
        Ok(None)
    }

    async fn compensate(&self, saga: &Saga, step: &str) -> Result<StepOutcome> {
        let order = saga.response::<OrderResponse>(ORDER)?.and_then(|response| response.order);
        let (CHARGE, Some(order)) = (step, order) else { return Ok(StepOutcome::Done(Value::Null)) };
        let Some(payments) = self.0.ports.payments.as_deref() else { return Ok(no_payments()) };
        let price: PriceResponse = required(saga, PRICE)?;
        match payments.refund_order(&order, price.total_cents).await {
            Ok(refund) => done(&(refund == Refund::Refunded)),
            Err(error) => Ok(StepOutcome::Retry { reason: error.to_string(), new_key: false }),
        }
    }

    async fn record_compensation(
        &self,
        tx: &mut Connection,
        saga: &Saga,
        step: &str,
        response: &Value,
    ) -> Result<Option<Event>> {
        match step {
            // Nothing to undo: the order was not finalized, or the payment was declined.
            ORDER => {
                tx.charge_move(saga.id, ChargeState::Pending, ChargeState::Canceled).await?;
                Ok(None)
            }
            CHARGE if *response == Value::Bool(true) => {
                let input: PurchaseInput = saga.input()?;
                let price: PriceResponse = required(saga, PRICE)?;
                let mut is_refunded = false;
                for from in [ChargeState::Paid, ChargeState::Pending] {
                    is_refunded |= tx.charge_move(saga.id, from, ChargeState::Refunded).await?;
                }
                // The commit may be repeated after a lost acknowledgement.
                if !is_refunded {
                    return Ok(None);
                }
                let data = json!({ "domain": input.name, "cents": price.total_cents });
                Ok(Some(Event::in_org("domain.refund", saga.org, input.domain, data)))
            }
            _ => Ok(None),
        }
    }
}

/// Returns the response of an earlier step.
fn required<T: serde::de::DeserializeOwned>(saga: &Saga, step: &str) -> Result<T> {
    saga.response(step)?.ok_or_else(|| Error::inconsistent("an earlier step has no response"))
}

fn parse<T: serde::de::DeserializeOwned>(response: &Value) -> Result<T> {
    T::deserialize(response).map_err(Error::inconsistent)
}

pub(super) fn done(response: &impl Serialize) -> Result<StepOutcome> {
    serde_json::to_value(response).map(StepOutcome::Done).map_err(Error::inconsistent)
}

fn registered_outcome(registered: RegisteredDomain) -> Result<StepOutcome> {
    let transferable_at = registered.transferable_at();
    let RegisteredDomain { registered_at, expires_at, locked, nameservers, .. } = registered;
    done(&RegisterResponse { registered_at, expires_at, locked, nameservers, transferable_at })
}

/// Returns the outcome after a transient failure of the registrar.
pub(super) fn retry(error: &RegistrarError) -> StepOutcome {
    match error {
        RegistrarError::NotSent(_) => inconclusive(error),
        _ => StepOutcome::Retry { reason: error.to_string(), new_key: matches!(error, RegistrarError::Deferred(_)) },
    }
}

/// Returns the outcome of an attempt that had no effect. The result of an earlier attempt may be unknown.
pub(super) fn inconclusive(error: &RegistrarError) -> StepOutcome {
    StepOutcome::Inconclusive { reason: error.to_string() }
}

/// Returns the outcome of a step of a saga that began when a registrar was configured. No call was made.
pub(super) fn no_registrar() -> StepOutcome {
    StepOutcome::Inconclusive { reason: "the registrar is not configured any more".to_owned() }
}

fn no_payments() -> StepOutcome {
    StepOutcome::Retry { reason: "payments are not configured any more".to_owned(), new_key: false }
}
