//! Use cases of zones.

use kernel::audit::{Actor, Event};
use kernel::ownership::ZoneProof;
use kernel::{InvalidField, OrgId, Page, Paging, ZoneId};
use serde_json::{Map, Value, json};
use store::{Connection, Outcome};

use super::delegation::find_conflicts;
use super::dnssec::ACTIVE_INTERVAL;
use super::edit::{MAX_JOURNAL_ENTRIES, RrsetChange};
use super::link::MAX_LOCK_ATTEMPTS;
use super::takeover::{Replaced, held_within};
use super::{Dns, Precondition, Result, ZoneReader, is_zone_busy, load_zone, parse_zone_name};
use crate::error::DnsError;
use crate::hosting::Hosting;
use crate::model::{DnssecState, ManagedBy, NewZone, RrsetPatch, Zone};
use crate::notify::Notice;
use crate::repository::{DeletedZoneRepository as _, RrsetRepository as _, ZoneRecord, ZoneRepository as _};
use crate::{OwnerName, Rdata, RecordSet, RecordType, ZoneName, serial};

/// The content of a new zone, in addition to its SOA and NS records.
#[derive(Debug, Clone, Copy, Default)]
pub struct InitialContent<'a> {
    pub rrsets: &'a [RrsetPatch],
    /// Whether the zone is signed.
    pub dnssec: bool,
}

/// The result of the creation of a zone.
#[derive(Debug)]
pub struct CreatedZone {
    pub zone: ZoneReader,
    /// Whether this call created the zone.
    pub is_new: bool,
}

impl Dns {
    /// Lists the zones of an organization by name: all zones, or those in `only`.
    ///
    /// # Errors
    /// Returns [`DnsError::NotConfigured`].
    pub async fn zones(&self, org: OrgId, only: Option<&[ZoneId]>, paging: &Paging<String>) -> Result<Page<Zone>> {
        self.hosting()?;
        let zones = self.store.connection().await?.zone_list(org, only, paging).await?;
        let zones = zones.iter().map(|zone| self.zone_view(zone)).collect::<Result<_>>()?;
        Ok(Page::cut(zones, paging, |zone: &Zone| zone.name.clone()))
    }

    /// Returns one zone without its rrsets.
    ///
    /// # Errors
    /// Returns [`DnsError::ZoneNotFound`].
    pub async fn zone_entry(&self, org: OrgId, name: &str) -> Result<Zone> {
        self.hosting()?;
        self.zone_view(&load_zone(&mut *self.store.connection().await?, org, name).await?)
    }

    /// Creates a zone with SOA and NS records, which the organization's zone above it, if any, delegates. If the
    /// organization already has the zone, returns it unchanged.
    ///
    /// # Errors
    /// Returns [`DnsError::InvalidFields`] for an invalid name. Also returns [`DnsError::ZoneTaken`],
    /// [`DnsError::ZoneDelegated`], [`DnsError::ZoneOccupied`], [`DnsError::DelegationUnknown`],
    /// [`DnsError::ZoneLimit`] and [`DnsError::TooManyReads`].
    pub async fn zone_create(&self, actor: &Actor, org: OrgId, new: NewZone) -> Result<ZoneReader> {
        Ok(self.zone_create_with(actor, org, new, InitialContent::default()).await?.zone)
    }

    /// Creates a zone with initial content. If the zone already exists, its content is not changed.
    ///
    /// # Errors
    /// Returns the errors of [`Dns::zone_create`], [`DnsError::InvalidItems`] or [`DnsError::ZoneBytesLimit`].
    pub async fn zone_create_with(
        &self,
        actor: &Actor,
        org: OrgId,
        new: NewZone,
        content: InitialContent<'_>,
    ) -> Result<CreatedZone> {
        let name = self.parse_new_name(org, &new.name)?;
        if let Some(created) = self.zone_try_create(actor, org, (&name, &ZoneProof::default()), content).await? {
            return Ok(created);
        }
        // Check between the attempts, so that no transaction waits for the lookups.
        let proof = self.resolve_conflicts(actor, org, &name, None).await?;
        if let Some(created) = self.zone_try_create(actor, org, (&name, &proof), content).await? {
            return Ok(created);
        }
        // Others changed their zones since the check. With a proof, this does not matter.
        let at = self.store.clock_rng().now();
        let authority = match self.prove(org, &name).await {
            Err(DnsError::ZoneTaken { .. }) => return Err(unchecked_zones()),
            proved => proved?,
        };
        let proof = self.resolve_conflicts(actor, org, &name, Some((at, authority))).await?;
        self.zone_try_create(actor, org, (&name, &proof), content).await?.ok_or_else(unchecked_zones)
    }

    /// Prepares [`Dns::zone_create_within`]. Call it outside transactions, because it may look up DNS records.
    ///
    /// # Errors
    /// Returns the errors of [`Dns::zone_create`], except [`DnsError::ZoneLimit`].
    pub async fn zone_prepare(&self, actor: &Actor, org: OrgId, name: &str) -> Result<ZoneProof> {
        let name = self.parse_new_name(org, name)?;
        if self.store.connection().await?.zone_find(org, &name).await?.is_some() {
            return Ok(ZoneProof::default());
        }
        self.resolve_conflicts(actor, org, &name, None).await
    }

    /// Creates a zone in the caller's transaction, or finds the organization's existing zone. Writes no audit event,
    /// because the creation is part of another operation. Locks the catalog, so the zone cannot be deleted before the
    /// transaction ends.
    ///
    /// # Errors
    /// Returns the errors of [`Dns::zone_create`].
    pub async fn zone_create_within(
        &self,
        tx: &mut Connection,
        org: OrgId,
        name: &str,
        proof: &ZoneProof,
    ) -> Result<()> {
        let name = self.parse_new_name(org, name)?;
        let catalog = self.lock_zones_and_catalog(tx, org, &name, proof).await?;
        let found = self.find_or_insert(tx, catalog, org, (&name, proof), InitialContent::default()).await?;
        found.map(drop).ok_or_else(unchecked_zones)
    }

    /// Parses the name of a new zone, which must not overlap with a domain of the platform.
    pub(super) fn parse_new_name(&self, org: OrgId, name: &str) -> Result<ZoneName> {
        let hosting = self.hosting()?;
        let name = ZoneName::parse(name).map_err(|error| InvalidField::new("name", error))?;
        match hosting.overlapping_domain(org, &name) {
            Some(own) => {
                Err(InvalidField::new("name", format!("overlaps with a domain of this platform: {own}")).into())
            }
            None => Ok(name),
        }
    }

    /// Creates a zone. Returns `None` if zones of other organizations must be checked first.
    async fn zone_try_create(
        &self,
        actor: &Actor,
        org: OrgId,
        (name, proof): (&ZoneName, &ZoneProof),
        content: InitialContent<'_>,
    ) -> Result<Option<CreatedZone>> {
        let mut attempts = 1;
        loop {
            match self.zone_try_create_once(actor, org, (name, proof), content).await {
                Err(error) if is_zone_busy(&error) && attempts < MAX_LOCK_ATTEMPTS => attempts += 1,
                result => return result,
            }
        }
    }

    /// Creates a zone, like [`Self::zone_try_create`]. Fails if another transaction has locked a zone that must change.
    async fn zone_try_create_once(
        &self,
        actor: &Actor,
        org: OrgId,
        (name, proof): (&ZoneName, &ZoneProof),
        content: InitialContent<'_>,
    ) -> Result<Option<CreatedZone>> {
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                // If the zone exists, this lookup avoids the catalog lock. Otherwise, one under the lock decides.
                let found = match tx.zone_find(org, name).await? {
                    Some(existing) => Some((existing, None)),
                    None => {
                        let catalog = self.lock_zones_and_catalog(tx, org, name, proof).await?;
                        self.find_or_insert(tx, catalog, org, (name, proof), content).await?
                    }
                };
                let Some((zone, event)) = found else { return Ok(Outcome::Unchanged(None)) };
                let zone = self.open_zone(tx, org, zone).await?;
                let created = Some(CreatedZone { zone, is_new: event.is_some() });
                Ok(match event {
                    Some(event) => Outcome::Changed(created, event),
                    None => Outcome::Unchanged(created),
                })
            })
            .await
    }

    /// Finds the zone of the organization, or inserts it and lists it in the locked catalog, in place of the zones
    /// that give way. Returns a new zone with its audit event. Returns `None` if zones of other organizations must be checked
    /// first.
    async fn find_or_insert(
        &self,
        tx: &mut Connection,
        catalog: ZoneRecord,
        org: OrgId,
        (name, proof): (&ZoneName, &ZoneProof),
        content: InitialContent<'_>,
    ) -> Result<Option<(ZoneRecord, Option<Event>)>> {
        if let Some(existing) = tx.zone_find(org, name).await? {
            return Ok(Some((existing, None)));
        }
        self.check_zone_count(tx, org).await?;
        if !find_conflicts(tx, org, name, proof).await?.is_empty() {
            return Ok(None);
        }
        let held = held_within(tx, org, name, proof).await?;
        let replaced = self.take_over(tx, org, name, held).await?;
        let (zone, event) = self.insert_zone(tx, (catalog, replaced), (org, name), content).await?;
        Ok(Some((zone, Some(event))))
    }

    /// Inserts a zone and lists it in the locked catalog, in place of the replaced zones. Returns its audit event.
    pub(super) async fn insert_zone(
        &self,
        tx: &mut Connection,
        (catalog, replaced): (ZoneRecord, Replaced),
        (org, name): (OrgId, &ZoneName),
        content: InitialContent<'_>,
    ) -> Result<(ZoneRecord, Event)> {
        let hosting = self.hosting()?;
        let dnssec = if content.dnssec { DnssecState::Signing } else { DnssecState::Off };
        let deleted = tx.deleted_zone_purge(name).await?;
        let zone = ZoneRecord { dnssec, ..self.new_zone(org, name.clone(), replaced.serial.or(deleted)) };
        tx.zone_insert(org, &zone).await?;
        self.hostnames.zone_created(tx, org, zone.name.as_str()).await?;
        if content.dnssec {
            tx.zone_set_dnssec(&zone, zone.created_at.plus_seconds(ACTIVE_INTERVAL)).await?;
        }
        let apex_ns = nameserver_change(hosting, OwnerName::apex()).into_insert();
        let zone = self.write_edits(tx, zone, &[apex_ns], MAX_JOURNAL_ENTRIES).await?;
        let edits = self.plan_patch(tx, &zone, content.rrsets, false).await?;
        let zone =
            if edits.is_empty() { zone } else { self.write_edits(tx, zone, &edits, MAX_JOURNAL_ENTRIES).await? };
        let zone = self.nest_zone(tx, org, zone, &edits).await?;
        let count = replaced.count;
        let mut listing = replaced.delisted;
        listing.extend(catalog_rrsets(&zone, true));
        self.edit_catalog(tx, catalog, listing).await?;
        let name = zone.name.as_str();
        let mut data = Map::from_iter([("zone".to_owned(), Value::from(name))]);
        if content.dnssec {
            data.insert("dnssec".to_owned(), true.into());
        }
        if count > 0 {
            data.insert("takenOver".to_owned(), count.into());
        }
        let event = Event::in_org("dns.zone.create", org, zone.id, data.into());
        Ok((zone, event))
    }

    /// Deletes a zone with all its rrsets and removes it from the catalog. Its managed records move to the organization's
    /// zone above it, if any. Stores its name, so that another organization cannot take over a domain that is still
    /// delegated here. Also ends the import of its domain.
    ///
    /// # Errors
    /// Returns [`DnsError::ZoneNotFound`], [`DnsError::SerialMismatch`], or [`DnsError::DnssecOn`] if the registry may
    /// have a DS record that this installation set: resolvers would reject the domain.
    pub async fn zone_delete(&self, actor: &Actor, org: OrgId, name: &str, precondition: &Precondition) -> Result<()> {
        self.hosting()?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                self.lock_all_enclosing_zones(tx, &[(org, parse_zone_name(name)?.as_str().to_owned())]).await?;
                let zone = self.lock_zone(tx, org, name, precondition).await?;
                let catalog = tx.catalog_lock().await?;
                let above = self.lock_zone_above(tx, org, &zone.name).await?;
                let is_signed = zone.dnssec != DnssecState::Off || zone.is_unsigning;
                if is_signed && self.registrations.is_registered(tx, org, zone.name.as_str()).await? {
                    return Err(DnsError::DnssecOn(zone.name.as_str().to_owned()));
                }
                let gone = self.remove_zone(tx, org, above, &zone).await?;
                self.remember_deleted(tx, org, &zone).await?;
                self.edit_catalog(tx, catalog, gone).await?;
                let data = json!({ "zone": zone.name.as_str(), "rrsets": zone.rrset_count });
                Ok(Outcome::Changed((), Event::in_org("dns.zone.delete", org, zone.id, data)))
            })
            .await
    }

    /// Deletes the rrsets and the journals of deleted zones. Several processes share the work.
    ///
    /// # Errors
    /// Returns [`DnsError::Store`]. Rows that were deleted before the error stay deleted.
    pub async fn purge_zone_contents(&self) -> Result<()> {
        while self.store.connection().await?.zone_purge_batch().await? {}
        Ok(())
    }

    /// Deletes a locked zone of an organization and ends the import of its domain. `above` is the result of
    /// [`Self::lock_zone_above`]. Returns the changes that remove the zone from the catalog.
    pub(super) async fn remove_zone(
        &self,
        tx: &mut Connection,
        org: OrgId,
        above: Option<ZoneRecord>,
        zone: &ZoneRecord,
    ) -> Result<Vec<RrsetChange>> {
        if let Some(above) = above {
            self.unnest_zone(tx, org, above, zone).await?;
        }
        tx.zone_delete(zone.id).await?;
        self.registrations.release_imported(tx, org, zone.name.as_str()).await?;
        Ok(catalog_rrsets(zone, false))
    }

    pub(super) async fn edit_catalog(
        &self,
        tx: &mut Connection,
        catalog: ZoneRecord,
        changes: Vec<RrsetChange>,
    ) -> Result<()> {
        let edits = self.plan_edits(tx, &catalog, changes, Some(ManagedBy::System)).await?;
        self.apply_edits(tx, catalog, &edits).await.map(drop)
    }

    /// Updates the managed NS rrsets of all zones to the configured nameservers. Returns the number of changed zones.
    ///
    /// # Errors
    /// Returns [`DnsError::Store`]. Zones that were changed before the error stay changed.
    pub async fn reconcile_nameservers(&self) -> Result<usize> {
        let Some(hosting) = self.hosting.as_deref() else { return Ok(0) };
        let (_, ns) = hosting.ns();
        let (mut updated, mut after) = (0, None);
        loop {
            let mut connection = self.store.connection().await?;
            let page = connection.zones_after(after, store::BATCH_SIZE).await?;
            let ids: Vec<ZoneId> = page.iter().map(|(zone, _)| *zone).collect();
            let stale = connection.zones_with_stale_nameservers(&ids, ns).await?;
            drop(connection);
            for &(zone, org) in page.iter().filter(|(zone, _)| stale.contains(zone)) {
                self.store
                    .transaction(&Actor::service("nameservers"), async |tx: &mut Connection| {
                        let Some(zone) = tx.zone_lock_by_id(zone).await? else { return Ok(Outcome::Unchanged(())) };
                        let managed = tx.rrsets_within(zone.id, &OwnerName::apex(), true, i64::MAX).await?;
                        let own = managed.into_iter().filter(|stored| stored.managed_by == Some(ManagedBy::System));
                        let changes = own.map(|stored| nameserver_change(hosting, stored.set.owner)).collect();
                        let edits = self.plan_edits(tx, &zone, changes, Some(ManagedBy::System)).await?;
                        if edits.is_empty() {
                            return Ok(Outcome::Unchanged(()));
                        }
                        // Clear the journal, because it does not contain the change of the primary nameserver in the
                        // SOA.
                        let zone = self.write_edits(tx, zone, &edits, 0).await?;
                        self.enqueue_notice(tx, zone.org, &Notice::for_zone(&zone)).await?;
                        let data = json!({ "zone": zone.name.as_str(), "nameservers": hosting.nameservers() });
                        Ok::<_, DnsError>(Outcome::Changed(
                            (),
                            Event::in_org("dns.zone.nameservers", org, zone.id, data),
                        ))
                    })
                    .await?;
            }
            updated += stale.len();
            after = ids.last().copied();
            if !store::is_full_batch(ids.len()) {
                return Ok(updated);
            }
        }
    }

    /// Returns a new zone that is not stored yet. `last` is a serial of an earlier zone with the same name. Nameservers
    /// that still have the earlier zone accept only a newer serial.
    fn new_zone(&self, org: OrgId, name: ZoneName, last: Option<u32>) -> ZoneRecord {
        let now = self.store.clock_rng().now();
        ZoneRecord {
            id: self.store.clock_rng().id(),
            org: Some(org),
            name,
            serial: last.map_or_else(|| serial::at(now), |last| serial::next(now, last, None)),
            rrset_count: 0,
            bytes: 0,
            last_change_number: 0,
            journal_bytes: 0,
            dnssec: DnssecState::Off,
            ds: Vec::new(),
            cds: Vec::new(),
            is_unsigning: false,
            ds_removed_at: None,
            signer: None,
            created_at: now,
        }
    }
}

fn unchecked_zones() -> DnsError {
    DnsError::DelegationUnknown("not all such zones were checked".to_owned())
}

/// Returns the change that sets an NS rrset to the platform's nameservers: that of the apex, or of a zone below.
pub(super) fn nameserver_change(hosting: &Hosting, owner: OwnerName) -> RrsetChange {
    let (ttl, ns) = hosting.ns();
    let set = RecordSet { owner, kind: RecordType::Ns, ttl, records: ns.to_vec() };
    RrsetChange::set(set, Some(ManagedBy::System))
}

/// Returns the catalog group of a zone (contract section 6).
pub(super) fn catalog_group(zone: &ZoneRecord) -> &'static str {
    if zone.dnssec == DnssecState::Off && !zone.is_unsigning { "plain" } else { "signed" }
}

/// Returns the catalog rrsets of a zone (RFC 9432 sections 4.3 and 4.4.2).
pub(super) fn catalog_rrsets(zone: &ZoneRecord, listed: bool) -> Vec<RrsetChange> {
    let label = zone.id.as_uuid().simple();
    let member = OwnerName::new_unchecked(format!("{label}.zones"));
    let property = OwnerName::new_unchecked(format!("group.{label}.zones"));
    if !listed {
        return vec![RrsetChange::delete(member, RecordType::Ptr), RrsetChange::delete(property, RecordType::Txt)];
    }
    let group = catalog_group(zone);
    // One character string (RFC 1035 section 3.3.14), whose length fits in a byte.
    let text: Vec<u8> = std::iter::once(group.len() as u8).chain(group.bytes()).collect();
    let name = Rdata::new_unchecked(zone.name.wire().into_bytes());
    let set = |owner, kind, rdata| {
        RrsetChange::set(RecordSet { owner, kind, ttl: 0, records: vec![rdata] }, Some(ManagedBy::System))
    };
    vec![set(member, RecordType::Ptr, name), set(property, RecordType::Txt, Rdata::new_unchecked(text))]
}
