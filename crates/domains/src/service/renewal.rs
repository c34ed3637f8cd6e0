//! Renewals: first the registrar renews, then the outbox charges.

use std::time::Duration;

use async_trait::async_trait;
use kernel::audit::{Actor, Event};
use kernel::{DomainId, OrgId, Time};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::saga::{self, Attempt, NewSaga, Saga, SagaHandler, SagaResult, StepOutcome};
use store::{Connection, Error};
use uuid::Uuid;

use super::purchase_saga::{done, inconclusive, no_registrar, retry};
use super::sync::YEAR_SECONDS;
use super::{Domains, MIN_ORDER_TIME, MIN_YEAR_SECONDS, Result};
use crate::error::DomainError;
use crate::model::{ChargeState, Domain, DomainRenewal};
use crate::ports::{Registrar, RegistrarError, RenewalOrder};
use crate::repository::{ChargeRecord, ChargeRepository as _, DomainRecord, DomainRepository as _};

/// The kind of the saga.
pub(super) const RENEWAL: &str = "domains.renewal";

const PRICE: &str = "price";
const RENEW: &str = "renew";
const CONFIRM: &str = "confirm";

/// The number of requests to the registrar for a renewal.
const RENEWAL_REQUESTS: u32 = 2;

/// The time after a completed renewal, in seconds, in which a request for the same number of years can count as a
/// repetition: a client repeats a request whose response was lost.
const REPEAT_SECONDS: i64 = 24 * 3600;

/// Executes the steps of renewals.
pub(super) struct RenewalSaga(pub(super) Domains);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RenewalInput {
    domain: DomainId,
    name: String,
    years: u8,
    /// The idempotency claim of the request that started the renewal.
    claim: Option<Uuid>,
}

impl RenewalInput {
    /// Returns the earliest expiry that contains all requested years.
    fn min_expiry(&self, price: PriceResponse) -> Time {
        price.expires_at.plus_seconds(i64::from(self.years) * MIN_YEAR_SECONDS)
    }
}

/// The price of the renewal, and the expiry before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct PriceResponse {
    renewal_cents: i64,
    total_cents: i64,
    expires_at: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct RenewResponse {
    expires_at: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RenewalRefusal {
    /// The account no longer has the domain.
    NotManaged,
    /// The registrar states no valid price.
    NoPrice,
    Rejected,
}

/// The result of a request to start a renewal.
enum Started {
    /// The renewal, or the one that the request repeats.
    Saga(Uuid),
    /// An unfinished renewal of another domain of the organization, which must be completed first.
    Other { saga: Uuid, name: String },
    /// An earlier renewal must be paid first.
    Unpaid(ChargeRecord),
    /// Nothing is started, because it is not known whether the organization has a payment method.
    PaymentMethodRequired,
}

impl Domains {
    /// Renews a domain, and enqueues the charge. A request during a renewal waits for the same renewal. A request for
    /// the same number of years within a day after a renewal counts as a repetition, which only charges the declined
    /// renewals of the organization: the caller may have lost the first response, or received
    /// [`DomainError::RegistrarFailed`] before a background job completed the renewal. This does not apply if both
    /// requests have an idempotency key and the first one received its response: another key then means another renewal.
    /// Does not commit the actor's idempotency claim.
    ///
    /// The platform pays the registrar first. So that an organization cannot renew at the platform's expense, it has at
    /// most one requested renewal that is in progress or unpaid: a new one first completes and charges the earlier
    /// renewals of any of its domains, and renewals of this domain by the registrar that are not billed yet. Renewals
    /// by the registrar that only the new renewal finds are charged together with it. It also requires a saved payment
    /// method.
    ///
    /// # Errors
    /// [`DomainError::NotFound`], [`DomainError::NotManaged`], [`DomainError::RenewalInProgress`],
    /// [`DomainError::RenewalUnpaid`], [`DomainError::PaymentFailed`], [`DomainError::Incomplete`],
    /// [`DomainError::RenewalRejected`], [`DomainError::RegistrarFailed`], [`DomainError::RegistrarNotConfigured`],
    /// [`DomainError::TooManyRequests`].
    pub async fn renew(&self, actor: &Actor, org: OrgId, name: &str, renewal: DomainRenewal) -> Result<Domain> {
        let until = self.request_end();
        let domain = self.find_managed(org, name).await?;
        self.registrar()?;
        self.take_requests(org, RENEWAL_REQUESTS).await?;
        // Without payments, domains are free of charge.
        let mut is_payable = self.ports.payments.is_none();
        let mut awaited = None;
        let saga = loop {
            match self.start_renewal(actor, &domain, renewal.years, is_payable).await? {
                Started::Saga(saga) => break saga,
                // It was refused, and its end is not recorded yet.
                Started::Other { saga, name } if awaited == Some(saga) => {
                    return Err(DomainError::RenewalInProgress { name });
                }
                Started::Other { saga, name } => {
                    awaited = Some(saga);
                    let result = self.store.saga_run(&RenewalSaga(self.clone()), saga, until).await?;
                    if matches!(result, SagaResult::Incomplete { .. }) {
                        return Err(DomainError::RenewalInProgress { name });
                    }
                }
                Started::Unpaid(charge) => self.charge_unpaid_renewal(until, &charge).await?,
                Started::PaymentMethodRequired => {
                    self.require_payment_method(until, org).await?;
                    is_payable = true;
                }
            }
        };
        match self.store.saga_run(&RenewalSaga(self.clone()), saga, until).await? {
            SagaResult::Done => {
                let renewed = self.store.connection().await?.domain_find_by_id(domain.id).await?;
                Ok(self.view(renewed.ok_or(DomainError::NotFound)?))
            }
            SagaResult::Incomplete { .. } => Err(DomainError::RegistrarFailed),
            SagaResult::Refused(refusal)
                if saga::is_abandonment(&refusal) || refusal == json!(RenewalRefusal::NoPrice) =>
            {
                Err(DomainError::RegistrarFailed)
            }
            SagaResult::Refused(refusal) if refusal == json!(RenewalRefusal::NotManaged) => {
                Err(DomainError::NotManaged)
            }
            SagaResult::Refused(_) => Err(DomainError::RenewalRejected),
        }
    }

    /// Starts a renewal, or finds the one that the request repeats, unless an earlier renewal is not complete or not paid.
    /// `is_payable` states whether the organization can pay a new one.
    async fn start_renewal(
        &self,
        actor: &Actor,
        domain: &DomainRecord,
        years: u8,
        is_payable: bool,
    ) -> Result<Started> {
        self.store
            .transaction_unaudited_as(actor, async |tx: &mut Connection| {
                let locked = self.lock_domain(tx, domain).await?;
                if !locked.state.is_managed() {
                    return Err(DomainError::NotManaged);
                }
                let key = locked.id.to_string();
                if let Some(open) = saga::find_open(tx, RENEWAL, &key).await? {
                    return Ok(Started::Saga(open));
                }
                let claim = actor.idempotency.map(|claim| claim.id);
                if let Some(repeated) = self.find_repeated(tx, &key, years, claim).await? {
                    if self.ports.payments.is_none() {
                        return Ok(Started::Saga(repeated));
                    }
                    // The user may repeat the request after the notification about a declined charge.
                    let unpaid = tx.charges_before_renewal(locked.org, locked.id).await?;
                    let declined = unpaid.into_iter().find(|charge| charge.state == ChargeState::Declined);
                    return Ok(declined.map_or(Started::Saga(repeated), Started::Unpaid));
                }
                if self.ports.payments.is_some() {
                    // Concurrent requests of the organization must not start several renewals.
                    self.ports.organizations.lock(tx, locked.org).await?;
                    // The end of a renewal commits its charge, so look for the charge after the renewal.
                    if let Some((saga, input)) = saga::find_open_of_org(tx, RENEWAL, locked.org).await? {
                        let RenewalInput { name, .. } =
                            RenewalInput::deserialize(input).map_err(Error::inconsistent)?;
                        return Ok(Started::Other { saga, name });
                    }
                    if let Some(unpaid) = self.claim_unpaid_renewal(tx, &locked).await? {
                        return Ok(Started::Unpaid(unpaid));
                    }
                }
                if !is_payable {
                    return Ok(Started::PaymentMethodRequired);
                }
                let input = RenewalInput { domain: locked.id, name: locked.name.clone(), years, claim };
                let input = serde_json::to_value(input).map_err(Error::inconsistent)?;
                let new = NewSaga { kind: RENEWAL, key: &key, org: locked.org, user: actor.user, input };
                let saga = self.store.saga_start(tx, &new).await?;
                let saga = saga.ok_or_else(|| Error::inconsistent("another renewal of the domain is not finished"))?;
                Ok(Started::Saga(saga))
            })
            .await
    }

    /// Finds the completed renewal that a request repeats. `key` names the domain.
    async fn find_repeated(
        &self,
        tx: &mut Connection,
        key: &str,
        years: u8,
        claim: Option<Uuid>,
    ) -> Result<Option<Uuid>> {
        let since = self.store.corrected_now(tx).await?.plus_seconds(-REPEAT_SECONDS);
        let Some((saga, last)) = saga::find_completed(tx, RENEWAL, key, since).await? else { return Ok(None) };
        let last = RenewalInput::deserialize(last).map_err(Error::inconsistent)?;
        let is_another = match last.claim.filter(|_| claim.is_some()) {
            Some(first) => self.store.idempotency_has_response(tx, first).await?,
            None => false,
        };
        Ok(Some(saga).filter(|_| last.years == years && !is_another))
    }
}

impl RenewalSaga {
    async fn price(&self, input: &RenewalInput) -> store::Result<StepOutcome> {
        let Some(registrar) = self.0.ports.registrar.as_deref() else { return Ok(no_registrar()) };
        let found = match registrar.read(&input.name).await {
            Ok(Some(found)) => found,
            Ok(None) => return refused(RenewalRefusal::NotManaged, "the account does not have the domain"),
            Err(error) => return Ok(retry(&error)),
        };
        let stored = self.0.store.connection().await?.domain_find_by_id(input.domain).await?;
        let renewal_cents = found.renewal_cents.or_else(|| stored?.renewal_cents);
        let price = renewal_cents.and_then(|cents| Some((cents, cents.checked_mul(i64::from(input.years))?)));
        let Some((renewal_cents, total_cents)) = price.filter(|(cents, _)| *cents > 0) else {
            // Not retried: an unfinished renewal blocks the others of the organization.
            return refused(RenewalRefusal::NoPrice, "the registrar states no valid price");
        };
        done(&PriceResponse { renewal_cents, total_cents, expires_at: found.expires_at })
    }

    async fn renew(&self, saga: &Saga, input: &RenewalInput, attempt: &Attempt) -> store::Result<StepOutcome> {
        let Some(registrar) = self.0.ports.registrar.as_deref() else { return Ok(no_registrar()) };
        let price = price_of(saga)?;
        if attempt.unanswered_at.is_some() {
            if let Some(outcome) = find_renewed(registrar, input, price).await? {
                return Ok(outcome);
            }
            // The registrar may ignore the key, and would then renew the domain twice.
            if self.0.may_be_in_progress(attempt) {
                return Ok(StepOutcome::Inconclusive { reason: "an earlier attempt may be in progress".to_owned() });
            }
        }
        let order = RenewalOrder {
            name: input.name.clone(),
            years: input.years,
            total_cents: price.total_cents,
            key: attempt.key.clone(),
        };
        match registrar.renew(&order).await {
            Ok(renewed) => done(&RenewResponse { expires_at: renewed.expires_at }),
            Err(RegistrarError::Rejected(reason) | RegistrarError::NameUnavailable(reason)) => {
                refused(RenewalRefusal::Rejected, &reason)
            }
            Err(error) => Ok(retry(&error)),
        }
    }

    /// Reads the domain until it has the requested years, if the response to the renewal does not contain them. The
    /// renewal succeeded, so it is never repeated.
    async fn confirm(&self, saga: &Saga, input: &RenewalInput) -> store::Result<StepOutcome> {
        let price = price_of(saga)?;
        let renewed = saga.response::<RenewResponse>(RENEW)?;
        if let Some(renewed) = renewed.filter(|renewed| renewed.expires_at >= input.min_expiry(price)) {
            return done(&renewed);
        }
        let Some(registrar) = self.0.ports.registrar.as_deref() else { return Ok(no_registrar()) };
        let found = find_renewed(registrar, input, price).await?;
        let reason = "the account does not have the domain, or its expiry lacks the renewed years";
        Ok(found.unwrap_or_else(|| StepOutcome::Inconclusive { reason: reason.to_owned() }))
    }
}

#[async_trait]
impl SagaHandler for RenewalSaga {
    fn kind(&self) -> &'static str {
        RENEWAL
    }

    fn steps(&self) -> &'static [&'static str] {
        &[PRICE, RENEW, CONFIRM]
    }

    fn min_time(&self, step: &str) -> Duration {
        if step == RENEW { MIN_ORDER_TIME } else { Duration::ZERO }
    }

    async fn execute(&self, saga: &Saga, attempt: &Attempt) -> store::Result<StepOutcome> {
        let input: RenewalInput = saga.input()?;
        match attempt.step {
            PRICE => self.price(&input).await,
            CONFIRM => self.confirm(saga, &input).await,
            _ => self.renew(saga, &input, attempt).await,
        }
    }

    async fn record(
        &self,
        tx: &mut Connection,
        saga: &Saga,
        step: &str,
        response: &Value,
    ) -> store::Result<Option<Event>> {
        if step == RENEW {
            return Ok(None);
        }
        let input: RenewalInput = saga.input()?;
        let domain = tx.domain_lock_by_id(input.domain).await?;
        let before = domain.ok_or_else(|| Error::inconsistent("the renewal has no domain"))?;
        if step == PRICE {
            // The daily reading may not have found an automatic renewal yet. Afterwards it cannot, because CONFIRM
            // stores the expiry after both renewals.
            let price = PriceResponse::deserialize(response).map_err(Error::inconsistent)?;
            let after = self.0.with_expiry(&before, price.expires_at, Some(price.renewal_cents));
            self.0.store_reading(tx, &before, &after, None).await?;
            return Ok(None);
        }
        let price = price_of(saga)?;
        let RenewResponse { expires_at } = RenewResponse::deserialize(response).map_err(Error::inconsistent)?;
        // Years that were not requested are an automatic renewal after the step PRICE.
        let automatic = expires_at.plus_seconds(-YEAR_SECONDS * i64::from(input.years));
        let automatic = self.0.with_expiry(&before, automatic, Some(price.renewal_cents));
        self.0.record_renewal(tx, &before, &automatic, true).await?;
        let renewed = self.0.with_expiry(&before, expires_at, Some(price.renewal_cents));
        self.0.update_locked(tx, &renewed).await?;
        self.0.record_renewal_charge(tx, saga.id, &renewed, price.total_cents, ChargeState::Pending).await?;
        // The renewal orders the automatic one that PRICE found. The organization has paid the earlier ones.
        self.0.charge_unbilled_renewals(tx, input.domain).await?;
        let data = json!({
            "domain": input.name, "years": input.years, "priceCents": price.total_cents, "expiresAt": expires_at,
        });
        let event = Event::in_org("domain.renew", saga.org, input.domain, data);
        self.0.append_history(tx, input.domain, &event, saga.user).await?;
        Ok(Some(event))
    }

    async fn refuse(&self, _: &mut Connection, _: &Saga, _: &Value) -> store::Result<Option<Event>> {
        Ok(None)
    }

    /// A renewal cannot be undone. It is charged only after it has succeeded.
    async fn compensate(&self, _: &Saga, _: &str) -> store::Result<StepOutcome> {
        Ok(StepOutcome::Done(Value::Null))
    }

    async fn record_compensation(
        &self,
        _: &mut Connection,
        _: &Saga,
        _: &str,
        _: &Value,
    ) -> store::Result<Option<Event>> {
        Ok(None)
    }
}

/// Reads the domain. Returns an outcome if it is renewed or the read failed.
async fn find_renewed(
    registrar: &dyn Registrar,
    input: &RenewalInput,
    price: PriceResponse,
) -> store::Result<Option<StepOutcome>> {
    match registrar.read(&input.name).await {
        Ok(Some(found)) if found.expires_at >= input.min_expiry(price) => {
            done(&RenewResponse { expires_at: found.expires_at }).map(Some)
        }
        Ok(_) => Ok(None),
        Err(error) => Ok(Some(inconclusive(&error))),
    }
}

fn price_of(saga: &Saga) -> store::Result<PriceResponse> {
    saga.response(PRICE)?.ok_or_else(|| Error::inconsistent("the renewal has no price"))
}

fn refused(refusal: RenewalRefusal, reason: &str) -> store::Result<StepOutcome> {
    let refusal = serde_json::to_value(refusal).map_err(Error::inconsistent)?;
    Ok(StepOutcome::Refused { refusal, reason: reason.to_owned() })
}
