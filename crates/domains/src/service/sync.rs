//! Reads domains at the registrar again.

use std::sync::LazyLock;

use kernel::audit::{Actor, Event};
use kernel::{DomainId, OrgId, Time, UserId};
use opentelemetry::metrics::Counter;
use serde_json::{Map, Value, json};
use store::Connection;
use store::saga::{self, SagaResult};

use super::change::AUTO_RENEW;
use super::renewal::{RENEWAL, RenewalSaga};
use super::{Domains, MIN_YEAR_SECONDS, Result, call_registrar, or_taken, registrar_failed};
use crate::error::DomainError;
use crate::model::{ChargeState, Domain, DomainState};
use crate::ports::RegisteredDomain;
use crate::repository::{ChargeRepository as _, DomainRecord, DomainRepository as _, HistoryRepository as _};

/// The number of domains that are claimed at once.
const CLAIM_SIZE: i64 = 10;

/// After this number of consecutive failures, a run stops.
const MAX_FAILURES: usize = 3;

/// The delay before a failed read is repeated, in seconds.
pub(super) const RETRY_SECONDS: i64 = 15 * 60;

pub(super) const YEAR_SECONDS: i64 = 365 * 24 * 3600;

static UNBILLED: LazyLock<Counter<u64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .u64_counter("svc.domains.unbilled_renewals")
        .with_description("Renewals by the registrar that are not charged")
        .build()
});

/// Creates the counter, because an alert needs the series before the first event.
pub(super) fn create_counter() {
    UNBILLED.add(0, &[]);
}

/// The name of the system actor in the audit log.
const ACTOR: &str = "domains.sync";

impl Domains {
    /// Reads the domain at the registrar again. Does nothing for an imported domain, or while a purchase is in
    /// progress.
    ///
    /// # Errors
    /// [`DomainError::NotFound`], [`DomainError::RegistrarFailed`], [`DomainError::RegistrarNotConfigured`],
    /// [`DomainError::TooManyRequests`].
    pub async fn sync(&self, actor: &Actor, org: OrgId, name: &str) -> Result<Domain> {
        let until = self.request_end();
        let domain = self.find(org, name).await?;
        if matches!(domain.state, DomainState::External | DomainState::Registering) {
            return Ok(self.view(domain));
        }
        let registrar = self.registrar()?;
        self.take_requests(org, 1).await?;
        // The new expiry may be the result of an unfinished renewal, not of the registrar's auto-renewal.
        let renewal = saga::find_open(&mut *self.store.connection().await?, RENEWAL, &domain.id.to_string()).await?;
        if let Some(renewal) = renewal {
            let result = self.store.saga_run(&RenewalSaga(self.clone()), renewal, until).await?;
            if matches!(result, SagaResult::Incomplete { .. }) {
                return Err(DomainError::RegistrarFailed);
            }
        }
        let domain = self.find(org, name).await?;
        let reading = call_registrar(until, registrar.read(&domain.name)).await?;
        Ok(self.view(self.apply_reading(Some(actor), &domain, reading).await?))
    }

    /// Reads all domains whose daily read at the registrar is due, until the registrar fails or its rate limit is
    /// reached. Run it every minute. Does nothing if no registrar is configured.
    ///
    /// # Errors
    /// [`DomainError::Store`].
    pub async fn sync_due(&self) -> Result<()> {
        let Some(registrar) = self.ports.registrar.as_deref() else { return Ok(()) };
        let (mut failures, mut result) = (0, Ok(()));
        loop {
            let now = self.now();
            let mut connection = self.store.connection().await?;
            let due = connection.domains_claim_sync(now, now.plus_seconds(RETRY_SECONDS), CLAIM_SIZE).await?;
            drop(connection);
            for domain in &due {
                match registrar.read(&domain.name).await {
                    Ok(reading) => {
                        failures = 0;
                        // An error of one domain must not prevent the reads of the others.
                        if let Err(error) = self.apply_reading(None, domain, reading).await {
                            result = Err(error);
                        }
                    }
                    Err(error) => {
                        registrar_failed(&error);
                        failures += 1;
                    }
                }
                // Further reads would probably fail too. These domains become due again later.
                if failures == MAX_FAILURES {
                    return result;
                }
            }
            if i64::try_from(due.len()).is_ok_and(|count| count < CLAIM_SIZE) {
                return result;
            }
        }
    }

    /// Stores the state that the registrar returned for a domain, unless the domain has changed since it was loaded.
    async fn apply_reading(
        &self,
        actor: Option<&Actor>,
        domain: &DomainRecord,
        reading: Option<RegisteredDomain>,
    ) -> Result<DomainRecord> {
        let applied = self
            .store
            .transaction_unaudited(async |tx: &mut Connection| {
                let before = self.lock_domain(tx, domain).await?;
                let is_renewing = saga::find_open(tx, RENEWAL, &before.id.to_string()).await?.is_some();
                if before.revision != domain.revision || is_renewing {
                    return Ok(before);
                }
                let after = self.with_reading(&before, reading);
                let stored = self.store_reading(tx, &before, &after, actor.and_then(|actor| actor.user)).await;
                stored.map_err(|error| or_taken(error, &after.name))?;
                if let Some(actor) = actor {
                    self.store.authorize(tx, actor).await?;
                }
                Ok::<_, DomainError>(after)
            })
            .await;
        match applied {
            // The domain was transferred away, and another organization has it now. The state belongs to the domain of
            // that organization.
            Err(DomainError::Taken(_)) => Ok(domain.clone()),
            applied => applied,
        }
    }

    fn with_reading(&self, before: &DomainRecord, reading: Option<RegisteredDomain>) -> DomainRecord {
        let now = self.now();
        let Some(reading) = reading else {
            return DomainRecord { state: DomainState::TransferredOut, next_sync_at: None, ..before.clone() };
        };
        let transferable_at = reading.transferable_at();
        let RegisteredDomain { registered_at, expires_at, locked, nameservers, renewal_cents, .. } = reading;
        DomainRecord {
            registered_at: Some(registered_at),
            locked: Some(locked),
            transferable_at: Some(transferable_at),
            nameservers,
            next_sync_at: Some(self.next_sync_at(now)),
            ..self.with_expiry(before, expires_at, renewal_cents)
        }
    }

    /// Returns the domain with another expiry, and another renewal price if the registrar states one.
    pub(super) fn with_expiry(
        &self,
        before: &DomainRecord,
        expires_at: Time,
        renewal_cents: Option<i64>,
    ) -> DomainRecord {
        DomainRecord {
            state: if expires_at > self.now() { DomainState::Active } else { DomainState::Expired },
            expires_at: Some(expires_at),
            renewal_cents: renewal_cents.or(before.renewal_cents),
            ..before.clone()
        }
    }

    /// Stores the state that the registrar returned for a domain, whose row is locked. Records the changes, and the
    /// renewals that the registrar made or no longer has. `reader` is the user who requested the reading.
    pub(super) async fn store_reading(
        &self,
        tx: &mut Connection,
        before: &DomainRecord,
        after: &DomainRecord,
        reader: Option<UserId>,
    ) -> store::Result<()> {
        let changes = changes(before, after);
        cancel_unbilled_renewals(tx, after).await?;
        if !changes.is_empty() {
            let event = Event::in_org("domain.sync", before.org, before.id, Value::Object(changes));
            self.append_history(tx, before.id, &event, reader).await?;
            self.record_renewal(tx, before, after, false).await?;
        }
        self.update_locked(tx, after).await
    }

    /// Records a renewal that the registrar made automatically, and charges it if the organization ordered it: with
    /// auto-renewal, or with the completed renewal that found it (`is_requested`).
    pub(super) async fn record_renewal(
        &self,
        tx: &mut Connection,
        before: &DomainRecord,
        after: &DomainRecord,
        is_requested: bool,
    ) -> store::Result<()> {
        let (Some(old), Some(new)) = (before.expires_at, after.expires_at) else { return Ok(()) };
        let gained = new.unix_seconds() - old.unix_seconds();
        if gained < MIN_YEAR_SECONDS || !before.state.is_managed() {
            return Ok(());
        }
        let years = (gained + YEAR_SECONDS / 2) / YEAR_SECONDS;
        let is_ordered = is_requested || after.auto_renew || was_disabled_after(tx, after.id, old).await?;
        let state = if is_ordered { ChargeState::Pending } else { ChargeState::Unbilled };
        let cents = after.renewal_cents.and_then(|cents| cents.checked_mul(years));
        if let Some(cents) = cents {
            self.record_renewal_charge(tx, self.store.clock_rng().id(), after, cents, state).await?;
        }
        let charged_cents = cents.filter(|_| is_ordered);
        if charged_cents.is_none() && self.ports.payments.is_some() {
            tracing::warn!(domain = after.name, "the registrar renewed a domain that is not charged");
            UNBILLED.add(1, &[]);
        }
        let data = json!({
            "domain": after.name, "years": years, "priceCents": charged_cents, "expiresAt": new, "automatic": true,
        });
        let event = Event::in_org("domain.renew", after.org, after.id, data);
        self.append_history(tx, after.id, &event, None).await?;
        self.store.append_system_event(tx, ACTOR, &event).await
    }
}

/// Cancels the unbilled renewals that the domain no longer has: the operator canceled a renewal at the registrar, or the
/// domain was transferred away. A renewal adds at least [`MIN_YEAR_SECONDS`], so a smaller correction of the expiry
/// cancels nothing. Logs an error for a pending renewal that the domain no longer has, because it may already be
/// charged.
pub(super) async fn cancel_unbilled_renewals(tx: &mut Connection, after: &DomainRecord) -> store::Result<()> {
    let expires_at = after.expires_at.filter(|_| after.state.is_managed());
    let last = expires_at.map(|at| at.plus_seconds(MIN_YEAR_SECONDS));
    let canceled = tx.charges_cancel_unbilled(after.id, last).await?;
    if canceled > 0 {
        tracing::info!(domain = after.name, canceled, "canceled the charges of unbilled renewals");
    }
    if let Some(last) = last {
        for charge in tx.charges_pending_after(after.id, last).await? {
            tracing::error!(%charge, "a canceled renewal is being charged; refund its order if it is paid");
        }
    }
    Ok(())
}

/// Returns whether the auto-renewal of a domain was on at this time, and was turned off later. The registrar renews at
/// the expiry, and the daily read finds this up to a day later.
async fn was_disabled_after(tx: &mut Connection, domain: DomainId, at: Time) -> store::Result<bool> {
    let change = tx.history_first_after(domain, AUTO_RENEW, at).await?;
    Ok(change.is_some_and(|change| change.get("enabled") == Some(&Value::Bool(false))))
}

/// Returns the values that changed at the registrar, under their names in the API.
fn changes(before: &DomainRecord, after: &DomainRecord) -> Map<String, Value> {
    let values = [
        ("state", json!(before.state), json!(after.state)),
        ("expiresAt", json!(before.expires_at), json!(after.expires_at)),
        ("locked", json!(before.locked), json!(after.locked)),
        ("nameservers", json!(before.nameservers), json!(after.nameservers)),
    ];
    let changed = values.into_iter().filter(|(_, before, after)| before != after);
    changed.map(|(name, _, after)| (name.to_owned(), after)).collect()
}
