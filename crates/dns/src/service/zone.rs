//! Use cases of zones.

use kernel::audit::{Actor, Event};
use kernel::domain::is_within;
use kernel::{InvalidField, OrgId, Page, Paging, ZoneId};
use serde_json::json;
use store::{Connection, Outcome};

use super::edit::{MAX_JOURNAL_ENTRIES, RrsetChange};
use super::{AtSerial, Dns, Precondition, Result, load_zone};
use crate::error::DnsError;
use crate::hosting::Hosting;
use crate::model::{DnssecState, ManagedBy, NewZone, Rrset, RrsetPatch, Zone, ZoneDetail};
use crate::notify::Notice;
use crate::repository::{RrsetRepository as _, StoredSet, ZoneRecord, ZoneRepository as _};
use crate::{OwnerName, Rdata, RecordSet, RecordType, ZoneName, serial};

impl Dns {
    /// Lists the zones of an organization by name: all zones, or those in `only`.
    ///
    /// # Errors
    /// [`DnsError::NotConfigured`].
    pub async fn zones(&self, org: OrgId, only: Option<&[ZoneId]>, paging: &Paging<String>) -> Result<Page<Zone>> {
        self.hosting()?;
        let zones = self.store.connection().await?.zone_list(org, only, paging).await?;
        let zones = zones.iter().map(|zone| self.zone_view(zone)).collect::<Result<_>>()?;
        Ok(Page::cut(zones, paging, |zone: &Zone| zone.name.clone()))
    }

    /// One zone with all its rrsets in canonical order (RFC 4034 section 6.1), starting with the apex.
    ///
    /// # Errors
    /// [`DnsError::ZoneNotFound`].
    pub async fn zone(&self, org: OrgId, name: &str) -> Result<AtSerial<ZoneDetail>> {
        let (zone, stored) = self.load_content(org, name).await?;
        self.zone_detail(&zone, stored)
    }

    /// A zone and its rrsets from one snapshot.
    pub(super) async fn load_content(&self, org: OrgId, name: &str) -> Result<(ZoneRecord, Vec<StoredSet>)> {
        self.hosting()?;
        self.store
            .snapshot(async |tx: &mut Connection| {
                let zone = load_zone(tx, org, name).await?;
                let stored = tx.rrset_list(zone.id).await?;
                Ok((zone, stored))
            })
            .await
    }

    /// One zone without its rrsets.
    ///
    /// # Errors
    /// [`DnsError::ZoneNotFound`].
    pub async fn zone_entry(&self, org: OrgId, name: &str) -> Result<Zone> {
        self.hosting()?;
        self.zone_view(&load_zone(&mut *self.store.connection().await?, org, name).await?)
    }

    /// Creates a zone with SOA and NS records. If the organization already has the zone, returns it unchanged.
    ///
    /// # Errors
    /// [`DnsError::InvalidField`] for an invalid name, [`DnsError::ZoneTaken`].
    pub async fn zone_create(&self, actor: &Actor, org: OrgId, new: NewZone) -> Result<AtSerial<ZoneDetail>> {
        self.zone_create_with(actor, org, new, &[]).await
    }

    /// Creates a zone with initial rrsets, which an existing zone does not receive.
    ///
    /// # Errors
    /// The errors of [`Dns::zone_create`], and [`DnsError::InvalidItems`].
    pub async fn zone_create_with(
        &self,
        actor: &Actor,
        org: OrgId,
        new: NewZone,
        rrsets: &[RrsetPatch],
    ) -> Result<AtSerial<ZoneDetail>> {
        let hosting = self.hosting()?;
        let name = ZoneName::parse(&new.name).map_err(|error| InvalidField::new("name", error))?;
        let related = |own: &&String| is_within(name.as_str(), own) || is_within(own, name.as_str());
        if let Some(own) = hosting.platform_domains.iter().find(related) {
            return Err(InvalidField::new("name", format!("overlaps with a domain of this platform: {own}")).into());
        }
        let zone = self.new_zone(name);
        let (zone, stored) = self
            .store
            .transaction(actor, async |tx: &mut Connection| {
                // The first lookup avoids the catalog lock. The second one, under the lock, decides.
                let mut existing = tx.zone_find(org, &zone.name).await?;
                let mut catalog = None;
                if existing.is_none() {
                    catalog = Some(tx.catalog_lock().await?);
                    existing = tx.zone_find(org, &zone.name).await?;
                }
                let (None, Some(catalog)) = (&existing, catalog) else {
                    let there = existing.ok_or(DnsError::ZoneNotFound)?;
                    let stored = tx.rrset_list(there.id).await?;
                    return Ok(Outcome::Unchanged((there, stored)));
                };
                if tx.zone_overlaps(org, &zone.name).await? {
                    return Err(DnsError::ZoneTaken(zone.name.as_str().to_owned()));
                }
                tx.zone_insert(org, &zone).await?;
                let zone = self
                    .write_edits(tx, zone, &[nameserver_change(hosting).into_insert()], MAX_JOURNAL_ENTRIES)
                    .await?;
                let edits = self.plan_patch(tx, &zone, rrsets).await?;
                let zone = if edits.is_empty() {
                    zone
                } else {
                    self.write_edits(tx, zone, &edits, MAX_JOURNAL_ENTRIES).await?
                };
                let listed =
                    self.plan_edits(tx, &catalog, catalog_rrsets(&zone, true), Some(ManagedBy::System)).await?;
                self.apply_edits(tx, catalog, &listed).await?;
                let stored = tx.rrset_list(zone.id).await?;
                let event = Event::in_org("dns.zone.create", org, zone.id, json!({ "zone": zone.name.as_str() }));
                Ok(Outcome::Changed((zone, stored), event))
            })
            .await?;
        self.zone_detail(&zone, stored)
    }

    /// Deletes a zone with all its rrsets and removes it from the catalog.
    ///
    /// # Errors
    /// [`DnsError::ZoneNotFound`].
    pub async fn zone_delete(&self, actor: &Actor, org: OrgId, name: &str) -> Result<()> {
        self.hosting()?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let catalog = tx.catalog_lock().await?;
                let zone = self.lock_zone(tx, org, name, &Precondition::Any).await?;
                tx.zone_delete(zone.id).await?;
                let gone = self.plan_edits(tx, &catalog, catalog_rrsets(&zone, false), Some(ManagedBy::System)).await?;
                self.apply_edits(tx, catalog, &gone).await?;
                let data = json!({ "zone": zone.name.as_str(), "rrsets": zone.rrset_count });
                Ok(Outcome::Changed((), Event::in_org("dns.zone.delete", org, zone.id, data)))
            })
            .await
    }

    /// Updates the NS rrset of all zones to the configured nameservers. Returns the number of stale zones.
    ///
    /// # Errors
    /// [`DnsError::Store`]. Zones that were changed before the error stay changed.
    pub async fn reconcile_nameservers(&self) -> Result<usize> {
        let Some(hosting) = self.hosting.as_deref() else { return Ok(0) };
        let (_, ns) = hosting.ns();
        let mut updated = 0;
        loop {
            let stale = self.store.connection().await?.zones_with_stale_nameservers(ns, store::BATCH_SIZE).await?;
            for &(zone, org) in &stale {
                self.store
                    .transaction(&Actor::service("nameservers"), async |tx: &mut Connection| {
                        let Some(zone) = tx.zone_lock_by_id(zone).await? else { return Ok(Outcome::Unchanged(())) };
                        let changes = vec![nameserver_change(hosting)];
                        let edits = self.plan_edits(tx, &zone, changes, Some(ManagedBy::System)).await?;
                        if edits.is_empty() {
                            return Ok(Outcome::Unchanged(()));
                        }
                        // The journal does not record the new primary in the SOA: clear it.
                        let zone = self.write_edits(tx, zone, &edits, 0).await?;
                        self.enqueue_notice(tx, &Notice::for_zone(&zone)).await?;
                        let data = json!({ "zone": zone.name.as_str(), "nameservers": hosting.nameservers() });
                        Ok::<_, DnsError>(Outcome::Changed(
                            (),
                            Event::in_org("dns.zone.nameservers", org, zone.id, data),
                        ))
                    })
                    .await?;
            }
            updated += stale.len();
            if !store::is_full_batch(stale.len()) {
                return Ok(updated);
            }
        }
    }

    /// A new zone, not yet stored.
    fn new_zone(&self, name: ZoneName) -> ZoneRecord {
        let now = self.store.clock_rng().now();
        ZoneRecord {
            id: self.store.clock_rng().id(),
            name,
            serial: serial::at(now),
            rrset_count: 0,
            last_change_number: 0,
            dnssec: DnssecState::Off,
            ds: Vec::new(),
            signer: None,
            created_at: now,
        }
    }

    fn zone_detail(&self, zone: &ZoneRecord, mut stored: Vec<StoredSet>) -> Result<AtSerial<ZoneDetail>> {
        stored.sort_by_cached_key(|stored| (stored.set.owner.canonical_key(), stored.set.kind));
        let mut rrsets = vec![self.soa(zone)?];
        rrsets.extend(stored.iter().map(|stored| rrset_view(zone, stored)));
        Ok(AtSerial { serial: zone.serial, value: ZoneDetail { zone: self.zone_view(zone)?, rrsets } })
    }
}

pub(super) fn rrset_view(zone: &ZoneRecord, stored: &StoredSet) -> Rrset {
    let RecordSet { owner, kind, ttl, records } = &stored.set;
    Rrset::new(&zone.name, (owner, *kind), *ttl, records, stored.managed_by)
}

/// The change that sets the apex NS rrset.
fn nameserver_change(hosting: &Hosting) -> RrsetChange {
    let (ttl, ns) = hosting.ns();
    let set = RecordSet { owner: OwnerName::apex(), kind: RecordType::Ns, ttl, records: ns.to_vec() };
    RrsetChange::set(set, Some(ManagedBy::System))
}

/// The catalog group of a zone (contract section 6).
pub(super) fn catalog_group(zone: &ZoneRecord) -> &'static str {
    if zone.dnssec == DnssecState::Off { "plain" } else { "signed" }
}

/// The catalog rrsets of a zone (RFC 9432 sections 4.3 and 4.4.2).
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
