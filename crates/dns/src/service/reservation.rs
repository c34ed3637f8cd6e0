//! Reservations of names for zones. While an organization registers a domain, no other one can create a zone that
//! overlaps with it.

use kernel::OrgId;
use kernel::ownership::ZoneProof;
use store::Connection;

use super::delegation::check_overlap;
use super::takeover::Replaced;
use super::{Dns, InitialContent, Result};
use crate::ZoneName;
use crate::error::DnsError;
use crate::repository::{ReservationRepository as _, ZoneRepository as _};

impl Dns {
    /// Reserves a name for the organization in the caller's transaction, until the zone exists or the name is released.
    /// Locks the catalog. If the organization has already reserved the name, this is a no-op.
    ///
    /// A deleted zone of another organization does not conflict: the organization that registers the domain becomes its
    /// owner.
    ///
    /// # Errors
    /// [`DnsError::InvalidFields`] for an invalid name or one of the platform, [`DnsError::ZoneTaken`],
    /// [`DnsError::ZoneLimit`].
    pub async fn name_reserve(&self, tx: &mut Connection, org: OrgId, name: &str) -> Result<()> {
        let name = self.parse_new_name(org, name)?;
        tx.catalog_lock().await?;
        check_overlap(tx, org, &name).await?;
        if tx.reservation_exists(org, &name).await? {
            return Ok(());
        }
        if tx.zone_find(org, &name).await?.is_none() {
            self.check_zone_count(tx, org).await?;
        }
        // Reserve the name even if the organization already has the zone, because it can delete the zone before the
        // domain is registered.
        Ok(tx.reservation_insert(org, &name).await?)
    }

    /// Releases a reserved name, in the caller's transaction.
    ///
    /// # Errors
    /// [`DnsError::Store`].
    pub async fn name_release(&self, tx: &mut Connection, name: &str) -> Result<()> {
        Ok(tx.reservation_delete(&ZoneName::new_unchecked(name.to_owned())).await?)
    }

    /// Creates the zone of a reserved name in the caller's transaction, or finds the organization's zone, and releases
    /// the name. Writes no audit event, because the zone is part of the purchase. Locks the catalog.
    ///
    /// # Errors
    /// [`DnsError::ZoneTaken`] if the name was not reserved.
    pub async fn zone_create_reserved(&self, tx: &mut Connection, org: OrgId, name: &str) -> Result<()> {
        let name = self.parse_new_name(org, name)?;
        let catalog = self.lock_zones_and_catalog(tx, org, &name, &ZoneProof::default()).await?;
        check_overlap(tx, org, &name).await?;
        match tx.zone_find(org, &name).await? {
            // The existing zone may be signed. Its DS records are sent to the registry when the purchase is complete.
            Some(zone) => self.enqueue_ds(tx, org, zone.id).await?,
            None => {
                let unopposed = (catalog, Replaced::default());
                self.insert_zone(tx, unopposed, (org, &name), InitialContent::default()).await?;
            }
        }
        Ok(tx.reservation_delete(&name).await?)
    }

    /// Returns which of these names the organization cannot reserve, because they overlap with a zone or a reserved
    /// name of another organization, or with a domain of the platform.
    ///
    /// # Errors
    /// [`DnsError::Store`].
    pub async fn names_taken(&self, connection: &mut Connection, org: OrgId, names: &[String]) -> Result<Vec<String>> {
        let mut taken = Vec::new();
        for name in names {
            let zone = ZoneName::new_unchecked(name.clone());
            let is_of_platform = self.hosting.as_ref().is_some_and(|it| it.overlapping_domain(org, &zone).is_some());
            let is_taken = is_of_platform
                || match check_overlap(connection, org, &zone).await {
                    Ok(()) => false,
                    Err(DnsError::ZoneTaken { .. }) => true,
                    Err(error) => return Err(error),
                };
            if is_taken {
                taken.push(name.clone());
            }
        }
        Ok(taken)
    }
}
