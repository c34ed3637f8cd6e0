//! Synchronizes the DS records at the registry with the keys of the hosted zone.

use kernel::ZoneId;
use store::Error;

use super::Domains;
use crate::model::DomainState;
use crate::ports::RegistrarError;
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
    /// here. Safe to repeat. Calls may overlap, and one that read an earlier state may finish last. So call it
    /// after a change of the zone, and again when the calls that began before the change have ended.
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
            _ if wanted.is_ending => return Ok(self.ports.zones.ds_absent(zone).await?),
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
        let current = registrar.ds(&wanted.name).await?;
        for ds in wanted.ds.iter().filter(|ds| !current.contains(ds)) {
            registrar.add_ds(&wanted.name, ds).await?;
        }
        for ds in current.iter().filter(|ds| !wanted.ds.contains(ds)) {
            // Commit before the call, because its response may be lost.
            self.ports.zones.ds_removal_begin(zone).await?;
            registrar.remove_ds(&wanted.name, &ds.digest).await?;
        }
        if wanted.is_ending {
            self.ports.zones.ds_absent(zone).await?;
        }
        Ok(())
    }
}
