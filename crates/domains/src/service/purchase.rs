//! The purchase of a domain: the reservation of its name, and the run of its saga.

use kernel::audit::Actor;
use kernel::{DomainId, InvalidField, OrgId};
use serde::{Deserialize, Serialize};
use store::saga::{self, NewSaga, SagaResult};
use store::{Connection, Error};
use uuid::Uuid;

use super::purchase_saga::{PURCHASE, PurchaseSaga, Refusal};
use super::{CONTACT, Created, Domains, Result, or_taken};
use crate::error::DomainError;
use crate::model::{Contact, DomainName, DomainPurchase, DomainState};
use crate::repository::{DomainRecord, DomainRepository as _};

/// The number of requests to the registrar for a purchase: price, registration and nameservers.
const PURCHASE_REQUESTS: u32 = 3;

/// The input of a purchase's saga.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PurchaseInput {
    pub(super) domain: DomainId,
    pub(super) name: String,
    pub(super) years: u8,
    pub(super) expected_price_cents: Option<i64>,
    /// The setting of an existing domain before the purchase; `None` for a new domain.
    pub(super) previous_auto_renew: Option<bool>,
}

/// The result of reserving a name.
enum Reservation {
    /// The organization already has the domain.
    Owned(Box<DomainRecord>),
    /// A purchase is in progress: a new one, or an earlier one.
    Purchase { domain: DomainId, saga: Uuid },
}

impl Domains {
    /// Buys a domain, or continues the purchase that an earlier request started. Returns within the request timeout.
    /// Does not commit the actor's idempotency claim, so that a repeated request resumes the purchase.
    ///
    /// # Errors
    /// After these errors, the purchase has ended, the name is free, and any charge is refunded:
    /// [`DomainError::Fields`], [`DomainError::PaymentFailed`], [`DomainError::Taken`], [`DomainError::ZoneTaken`],
    /// [`DomainError::NameUnavailable`], [`DomainError::PriceChanged`], [`DomainError::RegistrarRejected`]. After these
    /// errors, the name stays reserved, and the purchase continues: [`DomainError::Incomplete`],
    /// [`DomainError::RegistrarFailed`]. Also [`DomainError::RegistrarNotConfigured`],
    /// [`DomainError::DnsNotConfigured`], [`DomainError::Zone`], [`DomainError::TooManyRequests`].
    pub async fn purchase(&self, actor: &Actor, org: OrgId, purchase: DomainPurchase) -> Result<Created> {
        let until = self.request_end();
        let name = DomainName::parse(&purchase.name).map_err(|error| InvalidField::new("name", error))?;
        let (domain, saga) = match self.reserve(actor, org, &name, purchase).await? {
            Reservation::Owned(domain) => return Ok(Created { domain: self.view(*domain), is_new: false }),
            Reservation::Purchase { domain, saga } => (domain, saga),
        };
        let refusal = match self.store.saga_run(&PurchaseSaga(self.clone()), saga, until).await? {
            SagaResult::Done => {
                let record = self.store.connection().await?.domain_find_by_id(domain).await?;
                let record = record.ok_or(DomainError::NotFound)?;
                return Ok(Created { domain: self.view(record), is_new: true });
            }
            SagaResult::Incomplete { step } => return Err(PurchaseSaga::incomplete(&step)),
            SagaResult::Refused(refusal) => refusal,
        };
        if saga::is_abandonment(&refusal) {
            return Err(DomainError::Incomplete);
        }
        let refusal: Refusal = serde_json::from_value(refusal).map_err(Error::inconsistent)?;
        Err(refusal.into_error(name.as_str()))
    }

    /// Reserves a name and starts its purchase, or finds an existing purchase or domain.
    async fn reserve(
        &self,
        actor: &Actor,
        org: OrgId,
        name: &DomainName,
        purchase: DomainPurchase,
    ) -> Result<Reservation> {
        let existing = self.store.connection().await?.domain_find(org, name.as_str()).await?;
        if let Some(owned) = existing.as_ref().filter(|domain| domain.state.is_managed()) {
            return Ok(Reservation::Owned(owned.clone().into()));
        }
        self.registrar()?;
        self.take_requests(org, PURCHASE_REQUESTS).await?;
        match existing {
            Some(domain) if domain.state == DomainState::Registering => {
                let key = domain.id.to_string();
                if let Some(saga) = saga::find_open(&mut *self.store.connection().await?, PURCHASE, &key).await? {
                    return Ok(Reservation::Purchase { domain: domain.id, saga });
                }
            }
            _ => {}
        }
        self.ports.zones.nameservers().ok_or(DomainError::DnsNotConfigured)?;
        self.store
            .transaction_unaudited_as(actor, async |tx: &mut Connection| {
                // This call locks the catalog, so that reservations and new zones wait for each other.
                self.ports.zones.reserve(tx, org, name.as_str()).await?;
                Ok(match tx.domain_lock(org, name.as_str()).await? {
                    Some(owned) if owned.state.is_managed() => {
                        self.ports.zones.release(tx, name.as_str()).await?;
                        return Ok(Reservation::Owned(owned.into()));
                    }
                    Some(domain) if domain.state == DomainState::Registering => {
                        let saga = saga::find_open(tx, PURCHASE, &domain.id.to_string()).await?;
                        let saga = saga.ok_or_else(|| Error::inconsistent("the purchase has no saga"))?;
                        Reservation::Purchase { domain: domain.id, saga }
                    }
                    other => self.start_purchase(tx, actor, org, name, (other, &purchase)).await?,
                })
            })
            .await
    }

    /// Writes the domain, its contact and the saga. `before` is an existing domain that was imported or transferred
    /// away.
    async fn start_purchase(
        &self,
        tx: &mut Connection,
        actor: &Actor,
        org: OrgId,
        name: &DomainName,
        (before, purchase): (Option<DomainRecord>, &DomainPurchase),
    ) -> Result<Reservation> {
        let auto_renew = purchase.auto_renew.unwrap_or(true);
        let previous_auto_renew = before.as_ref().map(|before| before.auto_renew);
        let is_stored = match &before {
            Some(before) => {
                let (state, previous_state) = (DomainState::Registering, Some(before.state));
                let reserved = DomainRecord { state, previous_state, auto_renew, ..before.clone() };
                tx.domain_update(&reserved).await.map_err(|error| or_taken(error, name.as_str()))?
            }
            None => false,
        };
        let domain = match before {
            Some(before) if is_stored => before.id,
            _ => {
                let new = self.new_domain(org, name, DomainState::Registering, auto_renew);
                if !tx.domain_insert(&new).await? {
                    return Err(DomainError::Taken(name.to_string()));
                }
                new.id
            }
        };
        tx.contact_put(domain, self.seal_contact(domain, &purchase.contact)?).await?;
        let input = PurchaseInput {
            domain,
            name: name.to_string(),
            years: purchase.years.unwrap_or(1),
            expected_price_cents: purchase.expected_price_cents,
            previous_auto_renew,
        };
        let input = serde_json::to_value(input).map_err(Error::inconsistent)?;
        let key = domain.to_string();
        let new = NewSaga { kind: PURCHASE, key: &key, org, user: actor.user, input };
        let saga = self.store.saga_start(tx, &new).await?;
        // An earlier purchase was refused, and its refund is still in progress.
        let saga = saga.ok_or(DomainError::Incomplete)?;
        Ok(Reservation::Purchase { domain, saga })
    }

    /// Returns a new domain to insert.
    pub(super) fn new_domain(
        &self,
        org: OrgId,
        name: &DomainName,
        state: DomainState,
        auto_renew: bool,
    ) -> DomainRecord {
        let now = self.now();
        DomainRecord {
            id: self.store.clock_rng().id_at(now),
            org,
            name: name.to_string(),
            state,
            previous_state: None,
            registered_at: None,
            expires_at: None,
            locked: None,
            transferable_at: None,
            renewal_cents: None,
            nameservers: Vec::new(),
            auto_renew,
            revision: 0,
            next_sync_at: None,
            notified_days: None,
            notified_expiry: None,
            created_at: now,
        }
    }

    fn seal_contact(&self, domain: DomainId, contact: &Contact) -> store::Result<kernel::seal::Sealed> {
        let plain = serde_json::to_vec(contact).map_err(Error::inconsistent)?;
        self.store.seal(CONTACT.associated_data(&domain.as_uuid().to_string()), &plain)
    }

    /// Decrypts the contact of a purchase.
    pub(super) async fn contact(&self, domain: DomainId) -> store::Result<Contact> {
        let sealed = self.store.connection().await?.contact_find(domain).await?;
        let sealed = sealed.ok_or_else(|| Error::inconsistent("the domain has no contact"))?;
        let plain = self.store.open(CONTACT.associated_data(&domain.as_uuid().to_string()), &sealed)?;
        // An error of serde may quote the contact.
        serde_json::from_slice(&plain).map_err(|_| Error::inconsistent("the contact is malformed"))
    }
}
