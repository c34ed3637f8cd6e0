//! Zones within zones of the same organization. All have the same nameservers, which answer from the zone that is
//! nearest to the name.
//!
//! The nearest zone above a zone delegates it with an NS rrset that the platform manages. Otherwise a signed zone above
//! would prove that the names of the zone do not exist (RFC 4035 section 5.4). The managed records of hostnames and
//! certificates are always in the nearest zone. The caller of each function holds the catalog lock.

use std::collections::HashSet;

use kernel::OrgId;
use store::Connection;

use super::edit::{MAX_JOURNAL_ENTRIES, RrsetChange, conflicts};
use super::limit::is_exempt;
use super::link::possible_cuts;
use super::zone::nameserver_change;
use super::{Dns, Result, relock_zone};
use crate::error::DnsError;
use crate::hosting::Hosting;
use crate::model::ManagedBy;
use crate::notify::Notice;
use crate::repository::{Edit, RrsetRepository as _, StoredSet, ZoneRecord, ZoneRepository as _};
use crate::{OwnerName, RecordSet, RecordType, ZoneName};

/// The maximum number of rrsets that an error names.
const MAX_NAMED: usize = 5;

impl Dns {
    /// Locks the organization's nearest zone above a name. Fails if another transaction has locked it.
    pub(super) async fn lock_zone_above(
        &self,
        tx: &mut Connection,
        org: OrgId,
        name: &ZoneName,
    ) -> Result<Option<ZoneRecord>> {
        let enclosing = tx.zones_enclosing(org, name.as_str()).await?;
        match enclosing.iter().rfind(|zone| *zone != name) {
            Some(above) => relock_zone(tx, org, above).await.map(Some),
            None => Ok(None),
        }
    }

    /// Makes a new zone part of the organization's zones: the zone above delegates it and loses its managed records to
    /// it, and it delegates the zones below. Fails if the zone above has other records that the new zone would hide.
    /// `content` is the content of the new zone, which replaces rrsets of users in the zone above.
    pub(super) async fn nest_zone(
        &self,
        tx: &mut Connection,
        org: OrgId,
        zone: ZoneRecord,
        content: &[Edit],
    ) -> Result<ZoneRecord> {
        let hosting = self.hosting()?;
        let mut changes = self.delegations_below(tx, org, &zone.name, &zone).await?;
        if let Some(above) = self.lock_zone_above(tx, org, &zone.name).await? {
            let managed = self.delegate(tx, above, &zone, content).await?;
            changes.extend(moved_changes(hosting, managed, &zone.name));
        }
        if changes.is_empty() {
            return Ok(zone);
        }
        let changes = without_conflicts(tx, &zone, changes).await?;
        let edits = self.plan_edits(tx, &zone, changes, Some(ManagedBy::System)).await?;
        if edits.is_empty() { Ok(zone) } else { self.write_edits(tx, zone, &edits, MAX_JOURNAL_ENTRIES).await }
    }

    /// Returns a zone that will be deleted to the zone above it, which gets its managed records and delegates the zones
    /// below it.
    pub(super) async fn unnest_zone(
        &self,
        tx: &mut Connection,
        org: OrgId,
        above: ZoneRecord,
        zone: &ZoneRecord,
    ) -> Result<()> {
        let hosting = self.hosting()?;
        let Some(owner) = owner_in(zone.name.as_str(), &above.name) else { return Ok(()) };
        let cuts = possible_cuts(&above, zone.name.as_str());
        let mut delegations = tx.rrset_at(above.id, &cuts.iter().collect::<Vec<_>>()).await?;
        delegations.retain(|stored| stored.set.kind == RecordType::Ns);
        let is_of_zone = |stored: &StoredSet| stored.set.owner == owner && is_of_platform(hosting, stored);
        let mut gained = self.delegations_below(tx, org, &zone.name, &above).await?;
        // If a user has delegated the name or a name above it, records below it would not be visible.
        if delegations.iter().all(is_of_zone) {
            let managed = tx.rrsets_within(zone.id, &OwnerName::apex(), true, i64::MAX).await?;
            let managed = managed.into_iter().filter(is_movable).map(|stored| with_name(stored, &zone.name)).collect();
            gained.extend(moved_changes(hosting, managed, &above.name));
        }
        let mut changes = without_conflicts(tx, &above, gained).await?;
        if delegations.iter().any(is_of_zone) {
            changes.push(RrsetChange::delete(owner, RecordType::Ns));
        }
        let mut edits = self.plan_edits(tx, &above, changes, Some(ManagedBy::System)).await?;
        if !self.apply_within_limits(tx, above.clone(), &edits).await? {
            // The zone above is full. The daily check of a hostname reports that its record is missing.
            edits.retain(is_exempt);
            self.apply_edits(tx, above, &edits).await?;
        }
        Ok(())
    }

    /// Delegates a new zone in the zone above it, and removes the managed records at and below its name there, and the
    /// rrsets of users that the new zone has too. Returns the managed records with their absolute names.
    async fn delegate(
        &self,
        tx: &mut Connection,
        above: ZoneRecord,
        zone: &ZoneRecord,
        content: &[Edit],
    ) -> Result<Vec<(String, StoredSet)>> {
        let hosting = self.hosting()?;
        let Some(owner) = owner_in(zone.name.as_str(), &above.name) else { return Ok(Vec::new()) };
        let is_delegation = |stored: &StoredSet| stored.set.owner == owner && stored.set.kind == RecordType::Ns;
        let replaced: HashSet<(String, RecordType)> =
            content.iter().map(|edit| (edit.owner.absolute(&zone.name), edit.kind)).collect();
        let is_replaced = |stored: &StoredSet| {
            let name = stored.set.owner.absolute(&above.name);
            replaced.contains(&(name, stored.set.kind))
        };
        // At most the delegation and the replaced rrsets are not hidden.
        let limit = (1 + replaced.len() + MAX_NAMED) as i64;
        let of_users = tx.rrsets_within(above.id, &owner, false, limit).await?;
        let managed = tx.rrsets_within(above.id, &owner, true, i64::MAX).await?;
        // A hostname at the apex needs addresses.
        let has_addresses = !hosting.link_records(&OwnerName::apex(), &zone.name).is_empty();
        let is_immovable = |stored: &&StoredSet| {
            stored.managed_by == Some(ManagedBy::Project) && stored.set.owner == owner && !has_addresses
        };
        let is_hidden = |stored: &&StoredSet| !is_delegation(stored) && !is_replaced(stored);
        let hidden = of_users.iter().filter(is_hidden).chain(managed.iter().filter(is_immovable)).take(MAX_NAMED);
        let hidden: Vec<String> =
            hidden.map(|stored| format!("{} {}", stored.set.owner.absolute(&above.name), stored.set.kind)).collect();
        if !hidden.is_empty() {
            let (zone, name) = (above.name.as_str().to_owned(), zone.name.as_str().to_owned());
            return Err(DnsError::ZoneOccupied { zone, name, rrsets: hidden });
        }
        let removed = managed.iter().chain(of_users.iter().filter(|stored| is_replaced(stored)));
        let removed = removed.map(|stored| RrsetChange::delete(stored.set.owner.clone(), stored.set.kind));
        let mut changes: Vec<RrsetChange> = removed.collect();
        // A delegation of a user to other nameservers stays.
        if of_users.iter().filter(|stored| is_delegation(stored)).all(|stored| is_of_platform(hosting, stored)) {
            changes.push(nameserver_change(hosting, owner.clone()));
        }
        let edits = self.plan_edits(tx, &above, changes, Some(ManagedBy::System)).await?;
        if !edits.is_empty() {
            self.write_edits(tx, above.clone(), &edits, MAX_JOURNAL_ENTRIES).await?;
            // A nameserver that had the delegation, but not yet the new zone, could answer for neither.
            self.enqueue_notice(tx, above.org, &Notice::for_zone_after_catalog(&above.name)).await?;
        }
        Ok(managed.into_iter().filter(is_movable).map(|stored| with_name(stored, &above.name)).collect())
    }

    /// Returns the changes with which a zone delegates the organization's topmost zones below a name.
    async fn delegations_below(
        &self,
        tx: &mut Connection,
        org: OrgId,
        name: &ZoneName,
        zone: &ZoneRecord,
    ) -> Result<Vec<RrsetChange>> {
        let hosting = self.hosting()?;
        let mut topmost: Vec<ZoneName> = Vec::new();
        // Sorted by path, so that a zone precedes the zones in it.
        for below in tx.zones_below(org, name).await? {
            if topmost.last().is_none_or(|last| !below.is_within(last)) {
                topmost.push(below);
            }
        }
        let owners = topmost.iter().filter_map(|below| owner_in(below.as_str(), &zone.name));
        Ok(owners.map(|owner| nameserver_change(hosting, owner)).collect())
    }
}

/// Returns the name of an absolute name in a zone.
fn owner_in(name: &str, zone: &ZoneName) -> Option<OwnerName> {
    OwnerName::parse(&format!("{name}."), zone).ok()
}

fn with_name(stored: StoredSet, zone: &ZoneName) -> (String, StoredSet) {
    (stored.set.owner.absolute(zone), stored)
}

/// Returns whether a delegation is the platform's: it manages the rrset, or a user has written the same records.
fn is_of_platform(hosting: &Hosting, stored: &StoredSet) -> bool {
    stored.managed_by.is_some() || stored.set.records == hosting.ns().1
}

/// Returns whether a managed rrset moves between zones. The platform's own rrsets depend on the zone.
fn is_movable(stored: &StoredSet) -> bool {
    stored.managed_by != Some(ManagedBy::System)
}

/// Returns the changes that write managed rrsets, with these absolute names, into a zone.
fn moved_changes(hosting: &Hosting, managed: Vec<(String, StoredSet)>, zone: &ZoneName) -> Vec<RrsetChange> {
    let mut changes = Vec::new();
    for (name, StoredSet { set, managed_by }) in managed {
        let Some(owner) = owner_in(&name, zone) else { continue };
        if managed_by == Some(ManagedBy::Project) {
            // The records of a hostname depend on whether it is the apex.
            for (kind, records) in hosting.link_records(&owner, zone) {
                let set = RecordSet { owner: owner.clone(), kind, ttl: set.ttl, records };
                changes.push(RrsetChange::set(set, managed_by));
            }
        } else {
            changes.push(RrsetChange::set(RecordSet { owner, ..set }, managed_by));
        }
    }
    changes
}

/// Drops the changes that conflict with rrsets of users in the zone, which stay. An rrset of a user with the same records
/// becomes managed.
async fn without_conflicts(
    tx: &mut Connection,
    zone: &ZoneRecord,
    mut changes: Vec<RrsetChange>,
) -> Result<Vec<RrsetChange>> {
    let owners: Vec<&OwnerName> = changes.iter().map(|change| &change.owner).collect();
    let stored = tx.rrset_at(zone.id, &owners).await?;
    let of_users: Vec<&StoredSet> = stored.iter().filter(|stored| stored.managed_by.is_none()).collect();
    let is_same = |change: &RrsetChange, set: &RecordSet| {
        change.kind == set.kind && change.content.as_ref().is_some_and(|(_, records, _)| *records == set.records)
    };
    changes.retain(|change| {
        !of_users.iter().any(|StoredSet { set, .. }| {
            set.owner == change.owner && conflicts(change.kind, set.kind) && !is_same(change, set)
        })
    });
    Ok(changes)
}
