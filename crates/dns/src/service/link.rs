//! Managed records for hostnames of projects in hosted zones.

use kernel::{OrgId, ZoneId};
use store::Connection;

use super::edit::{RrsetChange, conflicts};
use super::{Dns, Result};
use crate::model::ManagedBy;
use crate::repository::{RrsetRepository as _, StoredSet, ZoneRecord, ZoneRepository as _};
use crate::{OwnerName, RecordSet, RecordType, ZoneName};

/// The maximum number of attempts to lock the nearest zone, while others create and delete zones.
pub(super) const MAX_LOCK_ATTEMPTS: usize = 8;

/// The result of linking a hostname.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkResult {
    /// The records exist. `changed` states whether this call wrote them.
    Linked { changed: bool },
    /// The organization has no zone that contains the name, or another organization has a more specific one.
    NoZone,
    /// The zone would exceed a limit.
    Full { zone: String },
    /// The zone delegates the name, or a name between it and the apex, to other nameservers.
    Delegated { zone: String },
    /// The name has other records.
    Occupied { zone: String },
    /// The name is the apex, which cannot have a CNAME, and no fallback addresses are configured. `changed` states
    /// whether this call deleted the records of earlier addresses.
    NoAddress { zone: String, changed: bool },
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
        // Lock the zones above it first, because the caller can lock all of them for the certificate of the hostname.
        let locked = self.lock_all_enclosing_zones(tx, &[(org, host.to_owned())]).await?;
        let Some((zone, owner)) = self.lock_enclosing_zone(tx, org, host, locked).await? else {
            return Ok(LinkResult::NoZone);
        };
        let records = hosting.link_records(&owner, &zone.name);
        let zone_name = zone.name.as_str().to_owned();
        let Some(stored) = rrsets_at_host(tx, &zone, host, &owner).await? else {
            return Ok(LinkResult::Delegated { zone: zone_name });
        };
        let ours = |kind: RecordType| records.iter().find(|(it, _)| *it == kind).map(|(_, records)| records);
        let is_occupied = stored.iter().any(|stored| {
            let is_replaceable = stored.managed_by == Some(ManagedBy::Project);
            let conflicts = records.iter().any(|(kind, _)| conflicts(*kind, stored.set.kind));
            !is_replaceable && conflicts && ours(stored.set.kind) != Some(&stored.set.records)
        });
        if is_occupied {
            return Ok(LinkResult::Occupied { zone: zone_name });
        }
        // Delete the records of addresses that are no longer configured.
        let is_stale =
            |stored: &&StoredSet| stored.managed_by == Some(ManagedBy::Project) && ours(stored.set.kind).is_none();
        let stale = stored.iter().filter(is_stale).map(|stored| RrsetChange::delete(owner.clone(), stored.set.kind));
        let mut changes: Vec<RrsetChange> = stale.collect();
        let has_records = !records.is_empty();
        changes.extend(records.into_iter().map(|(kind, records)| {
            let set = RecordSet { owner: owner.clone(), kind, ttl: RecordSet::DEFAULT_TTL, records };
            RrsetChange::set(set, Some(ManagedBy::Project))
        }));
        let edits = self.plan_edits(tx, &zone, changes, Some(ManagedBy::Project)).await?;
        let is_applied = self.apply_within_limits(tx, zone, &edits).await?;
        let changed = !edits.is_empty();
        Ok(match (is_applied, has_records) {
            (false, _) => LinkResult::Full { zone: zone_name },
            (true, true) => LinkResult::Linked { changed },
            (true, false) => LinkResult::NoAddress { zone: zone_name, changed },
        })
    }

    /// Locks the most specific zone that contains a name, unless `locked` is this zone. Returns the zone and the owner
    /// name in it. Returns `None` if there is no such zone, if it belongs to another organization, or if zones change
    /// concurrently all the time.
    pub(super) async fn lock_enclosing_zone(
        &self,
        tx: &mut Connection,
        org: OrgId,
        host: &str,
        mut locked: Option<ZoneRecord>,
    ) -> Result<Option<(ZoneRecord, OwnerName)>> {
        for attempt in 0..=MAX_LOCK_ATTEMPTS {
            // A zone may have been created or deleted before the lock. The creation of a zone locks the nearest zone
            // above it, so no zone is created between the locked zone and the name.
            let Some((id, name)) = tx.zone_enclosing(org, host).await? else { return Ok(None) };
            if let Some(zone) = locked.filter(|zone| zone.id == id) {
                return Ok(OwnerName::parse(host, &zone.name).ok().map(|owner| (zone, owner)));
            }
            if attempt == MAX_LOCK_ATTEMPTS {
                break;
            }
            locked = tx.zone_lock(org, &name).await?;
        }
        Ok(None)
    }

    /// Deletes the records that [`Dns::link`] wrote for these names, in the caller's transaction. This also works
    /// without `hosting`, because users cannot delete these records.
    ///
    /// # Errors
    /// Returns [`crate::DnsError::Store`].
    pub async fn unlink(&self, tx: &mut Connection, org: OrgId, hosts: &[&str]) -> Result<()> {
        if hosts.len() > 1 {
            let names: Vec<_> = hosts.iter().map(|host| (org, (*host).to_owned())).collect();
            self.lock_all_enclosing_zones(tx, &names).await?;
        }
        for host in hosts {
            let delete = |set: RecordSet| RrsetChange::delete(set.owner, set.kind);
            self.change_managed(tx, org, host, ManagedBy::Project, delete).await?;
        }
        Ok(())
    }

    /// Locks all zones of these organizations that contain one of these names, in a fixed order: shorter names first,
    /// like [`Self::unlink`], and then alphabetically. So transactions with several zones cannot deadlock. Returns the
    /// last zone, which is the most specific one of a single name. Returns `None` if no zone contains the names, or if
    /// it was deleted concurrently.
    ///
    /// # Errors
    /// Returns [`crate::DnsError::Store`].
    pub async fn lock_all_enclosing_zones(
        &self,
        tx: &mut Connection,
        hosts: &[(OrgId, String)],
    ) -> Result<Option<ZoneRecord>> {
        let mut zones: Vec<(ZoneName, OrgId)> = Vec::new();
        for (org, host) in hosts {
            zones.extend(tx.zones_enclosing(*org, host).await?.into_iter().map(|zone| (zone, *org)));
        }
        zones.sort_unstable();
        zones.dedup();
        zones.sort_by_key(|(zone, _)| zone.as_str().len());
        let mut locked = None;
        for (zone, org) in &zones {
            locked = tx.zone_lock(*org, zone).await?;
        }
        Ok(locked)
    }

    /// Changes the rrsets at a name that a part of the platform manages.
    pub(super) async fn change_managed(
        &self,
        tx: &mut Connection,
        org: OrgId,
        host: &str,
        manager: ManagedBy,
        change: impl Fn(RecordSet) -> RrsetChange,
    ) -> Result<()> {
        // The records can be in any enclosing zone: a more specific zone may have been created since they were written.
        // Read the zones again after each lock, because a creation moves the records out of the zone that it locks.
        let mut done: Vec<ZoneName> = Vec::new();
        while let Some(name) = tx.zones_enclosing(org, host).await?.into_iter().find(|name| !done.contains(name)) {
            if let Some(zone) = tx.zone_lock(org, &name).await?
                && let Ok(owner) = OwnerName::parse(host, &zone.name)
            {
                let stored = tx.rrset_at(zone.id, &[&owner]).await?;
                let ours = stored.into_iter().filter(|stored| stored.managed_by == Some(manager));
                let changes: Vec<RrsetChange> = ours.map(|stored| change(stored.set)).collect();
                let edits = self.plan_edits(tx, &zone, changes, Some(manager)).await?;
                self.apply_edits(tx, zone, &edits).await?;
            }
            done.push(name);
        }
        Ok(())
    }
}

/// Returns the rrsets at a host of a zone. Returns `None` if the zone delegates the host, or a name between it and the
/// apex (RFC 1034 section 4.2), because records at the host would then not be visible.
pub(super) async fn rrsets_at_host(
    tx: &mut Connection,
    zone: &ZoneRecord,
    host: &str,
    owner: &OwnerName,
) -> Result<Option<Vec<StoredSet>>> {
    let cuts = possible_cuts(zone, host);
    let mut stored = tx.rrset_at(zone.id, &cuts.iter().chain([owner]).collect::<Vec<_>>()).await?;
    if stored.iter().any(|stored| stored.set.kind == RecordType::Ns && cuts.contains(&stored.set.owner)) {
        return Ok(None);
    }
    stored.retain(|stored| stored.set.owner == *owner);
    Ok(Some(stored))
}

/// Returns the names at which a zone can delegate a host: the host, and the names between it and the apex.
pub(super) fn possible_cuts(zone: &ZoneRecord, host: &str) -> Vec<OwnerName> {
    std::iter::successors(Some(host), |name| name.split_once('.').map(|(_, parent)| parent))
        .take_while(|name| *name != zone.name.as_str())
        .filter_map(|name| OwnerName::parse(name, &zone.name).ok())
        .collect()
}
