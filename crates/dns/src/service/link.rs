//! Managed records for hostnames of projects in hosted zones.

use kernel::{OrgId, ZoneId};
use store::Connection;

use super::edit::{RrsetChange, conflicts};
use super::{Dns, Result};
use crate::model::ManagedBy;
use crate::repository::{RrsetRepository as _, ZoneRecord, ZoneRepository as _};
use crate::{OwnerName, RecordSet, RecordType, ZoneName};

/// The result of linking a hostname.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkResult {
    /// The records exist. `changed` states whether this call wrote them.
    Linked { changed: bool },
    /// The organization has no zone that contains the name, or another organization has a more specific one.
    NoZone,
    /// The zone would exceed a limit.
    Full { zone: String },
    /// The name has other records.
    Occupied { zone: String },
    /// The name is the apex, which cannot have a CNAME, and no fallback addresses are configured.
    NoAddress { zone: String },
}

impl Dns {
    /// Returns the most specific zone that contains a name. Returns `None` if there is no such zone, if it belongs to
    /// another organization, or if this installation does not host zones.
    ///
    /// # Errors
    /// Returns [`crate::DnsError::Store`].
    pub async fn enclosing_zone(
        &self,
        connection: &mut Connection,
        org: OrgId,
        host: &str,
    ) -> Result<Option<(ZoneId, ZoneName)>> {
        if self.hosting.is_none() {
            return Ok(None);
        }
        Ok(connection.zone_enclosing(org, host).await?)
    }

    /// Writes the records that point a hostname to the platform, in the caller's transaction.
    ///
    /// # Errors
    /// Returns [`crate::DnsError::Store`].
    pub async fn link(&self, tx: &mut Connection, org: OrgId, host: &str) -> Result<LinkResult> {
        let Some(hosting) = self.hosting.as_deref() else { return Ok(LinkResult::NoZone) };
        let Some((zone, owner)) = self.lock_enclosing_zone(tx, org, host).await? else { return Ok(LinkResult::NoZone) };
        let records = hosting.link_records(&owner, &zone.name);
        let zone_name = zone.name.as_str().to_owned();
        if records.is_empty() {
            return Ok(LinkResult::NoAddress { zone: zone_name });
        }
        let ours = |kind: RecordType| records.iter().find(|(it, _)| *it == kind).map(|(_, records)| records);
        let is_occupied = tx.rrset_at(zone.id, &[&owner]).await?.into_iter().any(|stored| {
            let is_replaceable = stored.managed_by == Some(ManagedBy::Project);
            let conflicts = records.iter().any(|(kind, _)| conflicts(*kind, stored.set.kind));
            !is_replaceable && conflicts && ours(stored.set.kind) != Some(&stored.set.records)
        });
        if is_occupied {
            return Ok(LinkResult::Occupied { zone: zone_name });
        }
        let changes = records.into_iter().map(|(kind, records)| {
            let set = RecordSet { owner: owner.clone(), kind, ttl: RecordSet::DEFAULT_TTL, records };
            RrsetChange::set(set, Some(ManagedBy::Project))
        });
        let edits = self.plan_edits(tx, &zone, changes.collect(), Some(ManagedBy::Project)).await?;
        let is_applied = self.apply_within_limits(tx, zone, &edits).await?;
        Ok(if is_applied {
            LinkResult::Linked { changed: !edits.is_empty() }
        } else {
            LinkResult::Full { zone: zone_name }
        })
    }

    /// Locks the most specific zone that contains a name. Returns the zone and the owner name in it. Returns `None` if
    /// there is no such zone, or if it belongs to another organization.
    pub(super) async fn lock_enclosing_zone(
        &self,
        tx: &mut Connection,
        org: OrgId,
        host: &str,
    ) -> Result<Option<(ZoneRecord, OwnerName)>> {
        let Some((_, name)) = tx.zone_enclosing(org, host).await? else { return Ok(None) };
        // The zone was deleted concurrently.
        let Some(zone) = tx.zone_lock(org, &name).await? else { return Ok(None) };
        Ok(OwnerName::parse(host, &zone.name).ok().map(|owner| (zone, owner)))
    }

    /// Deletes the records that [`Dns::link`] wrote, in the caller's transaction.
    ///
    /// # Errors
    /// Returns [`crate::DnsError::Store`].
    pub async fn unlink(&self, tx: &mut Connection, org: OrgId, host: &str) -> Result<()> {
        self.delete_managed(tx, org, host, ManagedBy::Project).await
    }

    /// Deletes the rrsets at a name that a part of the platform manages.
    pub(super) async fn delete_managed(
        &self,
        tx: &mut Connection,
        org: OrgId,
        host: &str,
        manager: ManagedBy,
    ) -> Result<()> {
        if self.hosting.is_none() {
            return Ok(());
        }
        // The records can be in any enclosing zone: a more specific zone may have been created since they were written.
        for name in tx.zones_enclosing(org, host).await? {
            let Some(zone) = tx.zone_lock(org, &name).await? else { continue };
            let Ok(owner) = OwnerName::parse(host, &zone.name) else { continue };
            let stored = tx.rrset_at(zone.id, &[&owner]).await?;
            let ours = stored.into_iter().filter(|stored| stored.managed_by == Some(manager));
            let changes: Vec<RrsetChange> =
                ours.map(|stored| RrsetChange::delete(owner.clone(), stored.set.kind)).collect();
            let edits = self.plan_edits(tx, &zone, changes, Some(manager)).await?;
            self.apply_edits(tx, zone, &edits).await?;
        }
        Ok(())
    }
}
