//! Reads domains, and checks names at the registrar.

use kernel::{DomainId, InvalidField, InvalidFields, OrgId, Page, Paging};

use super::{Domains, Result, call_registrar};
use crate::model::{
    ChargeState, Domain, DomainCheck, DomainDetail, DomainName, DomainOffer, DomainOffers, UnavailableReason,
};
use crate::ports::Offer;
use crate::repository::{ChargeRepository as _, DomainRepository as _, HistoryRepository as _};

/// The maximum number of changes in the detail of a domain (contract section 7).
const MAX_HISTORY: i64 = 50;

impl Domains {
    /// Lists the domains of an organization, newest first.
    ///
    /// # Errors
    /// [`DomainError::Store`](crate::DomainError::Store).
    pub async fn list(&self, org: OrgId, paging: &Paging<DomainId>) -> Result<Page<Domain>> {
        let records = self.store.connection().await?.domain_list(org, paging).await?;
        let domains = records.into_iter().map(|record| self.view(record)).collect();
        Ok(Page::cut(domains, paging, |domain: &Domain| domain.id))
    }

    /// Returns a domain with its latest changes. Accepts `name` in every spelling.
    ///
    /// # Errors
    /// [`DomainError::NotFound`](crate::DomainError::NotFound).
    pub async fn get(&self, org: OrgId, name: &str) -> Result<DomainDetail> {
        let record = self.find(org, name).await?;
        let mut connection = self.store.connection().await?;
        let history = connection.history_recent(record.id, MAX_HISTORY).await?;
        let renewal_cents = record.renewal_cents.filter(|_| record.state.is_managed());
        let (mut unpaid_cents, mut unbilled_cents) = (0, 0);
        if record.state.is_managed() && self.ports.payments.is_some() {
            for charge in connection.charges_before_renewal(org, record.id).await? {
                match charge.state {
                    // It is being charged, without another renewal.
                    ChargeState::Pending => continue,
                    ChargeState::Unbilled => unbilled_cents += charge.cents,
                    _ => {}
                }
                unpaid_cents += charge.cents;
            }
        }
        drop(connection);
        Ok(DomainDetail { domain: self.view(record), renewal_cents, unpaid_cents, unbilled_cents, history })
    }

    /// Returns availability and prices. Uses one request of the organization's share.
    ///
    /// # Errors
    /// [`DomainError::Fields`](crate::DomainError::Fields) for an invalid name,
    /// [`DomainError::RegistrarNotConfigured`](crate::DomainError::RegistrarNotConfigured),
    /// [`DomainError::RegistrarFailed`](crate::DomainError::RegistrarFailed),
    /// [`DomainError::TooManyRequests`](crate::DomainError::TooManyRequests).
    pub async fn check(&self, org: OrgId, check: DomainCheck) -> Result<DomainOffers> {
        let until = self.request_end();
        let registrar = self.registrar()?;
        let parsed = InvalidFields::all(check.names.iter().enumerate().map(|(index, text)| {
            DomainName::parse(text).map_err(|error| InvalidField::new(format!("names[{index}]"), error))
        }))?;
        let mut names: Vec<String> = Vec::new();
        for name in parsed.iter().map(ToString::to_string) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        self.take_requests(org, 1).await?;
        let offers = call_registrar(until, registrar.check(&names)).await?;
        let mut connection = self.store.connection().await?;
        let mut taken = self.ports.zones.taken(&mut connection, org, &names).await?;
        let live = connection.domains_live(&names).await?;
        taken.extend(live.into_iter().filter(|(_, owner)| *owner != org).map(|(name, _)| name));
        let results = names.into_iter().map(|name| {
            let offer = offers.iter().find(|offer| offer.name == name);
            let is_taken = taken.contains(&name);
            describe(name, offer, is_taken)
        });
        Ok(DomainOffers { results: results.collect() })
    }
}

fn describe(name: String, offer: Option<&Offer>, is_taken: bool) -> DomainOffer {
    let reason = match offer {
        None => Some(UnavailableReason::Unsupported),
        Some(Offer { prices: None, .. }) => Some(UnavailableReason::Registered),
        Some(_) if is_taken => Some(UnavailableReason::Reserved),
        Some(_) => None,
    };
    let prices = offer.and_then(|offer| offer.prices).filter(|_| reason.is_none());
    DomainOffer {
        name,
        available: reason.is_none(),
        reason,
        price_cents: prices.map(|prices| prices.first_year_cents),
        renewal_cents: prices.map(|prices| prices.renewal_cents),
        premium: offer.is_some_and(|offer| offer.premium),
    }
}
