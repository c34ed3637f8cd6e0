//! Synchronizes the DS records at the registry with the keys of the hosted zone.

use kernel::ZoneId;
use store::Error;

use super::Domains;
use crate::model::DomainState;
use crate::ports::{DsRecord, Registrar, RegistrarError};
use crate::repository::DomainRepository as _;

/// The number of requests to the registrar for most changes of DS records: one lists the records, and one changes them.
const DS_REQUESTS: u32 = 2;

/// The reason why the DS records of a domain were not applied. Another attempt may succeed.
#[derive(Debug, thiserror::Error)]
pub enum DsError {
    #[error("the purchase of the domain is not complete")]
    Registering,
    #[error("this installation has no registrar")]
    NotConfigured,
    /// The organization has used up its share of the registrar's rate limit.
    #[error("the organization caused too many requests to the registrar")]
    TooManyRequests,
    #[error(transparent)]
    Registrar(#[from] RegistrarError),
    #[error(transparent)]
    Store(#[from] Error),
}

impl Domains {
    /// Makes the DS records at the registry equal to those that a zone needs: first adds the missing ones, then removes
    /// the others. For a zone whose signing ends, removes all. Does nothing if the zone's domain is not registered
    /// here. Safe to repeat.
    ///
    /// # Errors
    /// [`DsError`].
    pub async fn apply_ds(&self, zone: ZoneId) -> Result<(), DsError> {
        let Some(wanted) = self.ports.zones.ds_wanted(zone).await? else { return Ok(()) };
        let domain = self.store.connection().await?.domain_find(wanted.org, &wanted.name).await?;
        match domain.map(|domain| domain.state) {
            Some(DomainState::Active | DomainState::Expired) => {}
            Some(DomainState::Registering) => return Err(DsError::Registering),
            // The domain is not registered here, so this service cannot change its DS records.
            _ if wanted.is_ending => return Ok(self.ports.zones.ds_absent(zone, false).await?),
            _ => return Ok(()),
        }
        // The keys are not known yet, and an existing DS record may belong to one of them. So change nothing.
        if wanted.ds.is_empty() && !wanted.is_ending {
            return Ok(());
        }
        let registrar = self.ports.registrar.as_deref().ok_or(DsError::NotConfigured)?;
        if self.try_take_requests(wanted.org, DS_REQUESTS).await?.is_some() {
            return Err(DsError::TooManyRequests);
        }
        let removed = replace(registrar, &wanted.name, &wanted.ds).await?;
        if wanted.is_ending {
            self.ports.zones.ds_absent(zone, removed).await?;
        }
        Ok(())
    }
}

/// Replaces the DS records of a domain. Returns whether it removed some.
async fn replace(registrar: &dyn Registrar, name: &str, wanted: &[DsRecord]) -> Result<bool, RegistrarError> {
    let current = registrar.ds(name).await?;
    for ds in wanted.iter().filter(|ds| !current.contains(ds)) {
        registrar.add_ds(name, ds).await?;
    }
    let stale: Vec<&DsRecord> = current.iter().filter(|ds| !wanted.contains(ds)).collect();
    for ds in &stale {
        registrar.remove_ds(name, &ds.digest).await?;
    }
    Ok(!stale.is_empty())
}
