//! Zones as a whole.

use kernel::audit::{Actor, Event};
use kernel::domain::is_within;
use kernel::{Malformed, OrgId, Page, Paging, ZoneId};
use serde_json::json;
use store::{Connection, Outcome};

use super::edit::{JOURNAL, Wish};
use super::{At, Dns, Expected, Result, found};
use crate::error::DnsError;
use crate::hosting::Hosting;
use crate::model::{DnssecState, ManagedBy, NewZone, Rrset, RrsetPatch, Zone, ZoneDetail};
use crate::notify::Notice;
use crate::repository::{RrsetRepository as _, StoredSet, ZoneRecord, ZoneRepository as _};
use crate::{OwnerName, Rdata, RecordSet, RecordType, ZoneName, serial};

impl Dns {
    /// The zones of an organization, by name: all of them, or those in `only`.
    ///
    /// # Errors
    /// [`DnsError::NotConfigured`].
    pub async fn zones(&self, org: OrgId, only: Option<&[ZoneId]>, paging: &Paging<String>) -> Result<Page<Zone>> {
        self.hosting()?;
        let zones = self.store.connection().await?.zone_list(org, only, paging).await?;
        let zones = zones.iter().map(|zone| self.shown(zone)).collect::<Result<_>>()?;
        Ok(Page::cut(zones, paging, |zone: &Zone| zone.name.clone()))
    }

    /// One zone with all its rrsets, the apex first, then in the order of names (RFC 4034 section 6.1).
    ///
    /// # Errors
    /// [`DnsError::ZoneNotFound`].
    pub async fn zone(&self, org: OrgId, name: &str) -> Result<At<ZoneDetail>> {
        let (zone, stored) = self.content(org, name).await?;
        self.detail(&zone, stored)
    }

    /// A zone and its rrsets, all of one moment.
    pub(super) async fn content(&self, org: OrgId, name: &str) -> Result<(ZoneRecord, Vec<StoredSet>)> {
        self.hosting()?;
        self.store
            .snapshot(async |tx: &mut Connection| {
                let zone = found(tx, org, name).await?;
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
        self.shown(&found(&mut *self.store.connection().await?, org, name).await?)
    }

    /// Creates a zone with its SOA and its NS records. The organization's own zone is answered as it is.
    ///
    /// # Errors
    /// [`DnsError::Field`] for what no zone is called, [`DnsError::ZoneTaken`].
    pub async fn zone_create(&self, actor: &Actor, org: OrgId, new: NewZone) -> Result<At<ZoneDetail>> {
        self.zone_create_with(actor, org, new, &[]).await
    }

    /// Creates a zone that holds these rrsets from its first moment. One that is there already does not get them.
    ///
    /// # Errors
    /// Those of [`Dns::zone_create`], [`DnsError::Items`].
    pub async fn zone_create_with(
        &self,
        actor: &Actor,
        org: OrgId,
        new: NewZone,
        rrsets: &[RrsetPatch],
    ) -> Result<At<ZoneDetail>> {
        let hosting = self.hosting()?;
        let name = ZoneName::parse(&new.name).map_err(|error| Malformed::new("name", error))?;
        let related = |own: &&String| is_within(name.as_str(), own) || is_within(own, name.as_str());
        if let Some(own) = hosting.own_domains.iter().find(related) {
            return Err(Malformed::new("name", format!("is a domain of this platform's own: {own}")).into());
        }
        let zone = self.fresh(name);
        let (zone, stored) = self
            .store
            .transaction(actor, async |tx: &mut Connection| {
                // Once without the lock that all zones share, and for good under it.
                let mut there = tx.zone_find(org, &zone.name).await?;
                let mut catalog = None;
                if there.is_none() {
                    catalog = Some(tx.catalog_lock().await?);
                    there = tx.zone_find(org, &zone.name).await?;
                }
                let (None, Some(catalog)) = (&there, catalog) else {
                    let there = there.ok_or(DnsError::ZoneNotFound)?;
                    let stored = tx.rrset_list(there.id).await?;
                    return Ok(Outcome::Unchanged((there, stored)));
                };
                if tx.zone_overlaps(org, &zone.name).await? {
                    return Err(DnsError::ZoneTaken(zone.name.as_str().to_owned()));
                }
                tx.zone_insert(org, &zone).await?;
                let zone = self.write(tx, zone, &[nameservers(hosting).first()], JOURNAL).await?;
                let edits = self.planned(tx, &zone, rrsets).await?;
                let zone = if edits.is_empty() { zone } else { self.write(tx, zone, &edits, JOURNAL).await? };
                let listed = self.edits(tx, &catalog, member(&zone, true), Some(ManagedBy::System)).await?;
                self.apply(tx, catalog, &listed).await?;
                let stored = tx.rrset_list(zone.id).await?;
                let event = Event::in_org("dns.zone.create", org, zone.id, json!({ "zone": zone.name.as_str() }));
                Ok(Outcome::Changed((zone, stored), event))
            })
            .await?;
        self.detail(&zone, stored)
    }

    /// Deletes a zone and everything in it: its nameservers forget it.
    ///
    /// # Errors
    /// [`DnsError::ZoneNotFound`].
    pub async fn zone_delete(&self, actor: &Actor, org: OrgId, name: &str) -> Result<()> {
        self.hosting()?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let catalog = tx.catalog_lock().await?;
                let zone = self.locked(tx, org, name, &Expected::Any).await?;
                tx.zone_delete(zone.id).await?;
                let gone = self.edits(tx, &catalog, member(&zone, false), Some(ManagedBy::System)).await?;
                self.apply(tx, catalog, &gone).await?;
                let data = json!({ "zone": zone.name.as_str(), "rrsets": zone.rrset_count });
                Ok(Outcome::Changed((), Event::in_org("dns.zone.delete", org, zone.id, data)))
            })
            .await
    }

    /// Gives every zone the nameservers that the settings name now; tells how many had others.
    ///
    /// # Errors
    /// [`DnsError::Store`]; what was changed until then stays.
    pub async fn nameservers_follow(&self) -> Result<usize> {
        let Some(hosting) = self.hosting.as_deref() else { return Ok(0) };
        let (_, ns) = hosting.ns();
        let mut followed = 0;
        loop {
            let apart = self.store.connection().await?.zones_apart(ns, store::BATCH).await?;
            for &(zone, org) in &apart {
                self.store
                    .transaction(&Actor::service("nameservers"), async |tx: &mut Connection| {
                        let Some(zone) = tx.zone_lock_by_id(zone).await? else { return Ok(Outcome::Unchanged(())) };
                        let wishes = vec![nameservers(hosting)];
                        let edits = self.edits(tx, &zone, wishes, Some(ManagedBy::System)).await?;
                        if edits.is_empty() {
                            return Ok(Outcome::Unchanged(()));
                        }
                        // The SOA names other nameservers as well, which the journal does not know.
                        let zone = self.write(tx, zone, &edits, 0).await?;
                        self.announce(tx, &Notice::of(&zone)).await?;
                        let data = json!({ "zone": zone.name.as_str(), "nameservers": hosting.nameservers() });
                        Ok::<_, DnsError>(Outcome::Changed(
                            (),
                            Event::in_org("dns.zone.nameservers", org, zone.id, data),
                        ))
                    })
                    .await?;
            }
            followed += apart.len();
            if !store::is_full(apart.len()) {
                return Ok(followed);
            }
        }
    }

    /// A zone of this name that is not there yet.
    fn fresh(&self, name: ZoneName) -> ZoneRecord {
        let now = self.store.world().now();
        ZoneRecord {
            id: self.store.world().id(),
            name,
            serial: serial::at(now),
            rrset_count: 0,
            last_change: 0,
            dnssec: DnssecState::Off,
            ds: Vec::new(),
            signer: None,
            created_at: now,
        }
    }

    fn detail(&self, zone: &ZoneRecord, mut stored: Vec<StoredSet>) -> Result<At<ZoneDetail>> {
        stored.sort_by_cached_key(|stored| (stored.set.owner.canonical_key(), stored.set.kind));
        let mut rrsets = vec![self.soa(zone)?];
        rrsets.extend(stored.iter().map(|stored| shown(zone, stored)));
        Ok(At { serial: zone.serial, value: ZoneDetail { zone: self.shown(zone)?, rrsets } })
    }
}

pub(super) fn shown(zone: &ZoneRecord, stored: &StoredSet) -> Rrset {
    let RecordSet { owner, kind, ttl, records } = &stored.set;
    Rrset::new(&zone.name, (owner, *kind), *ttl, records, stored.managed_by)
}

/// The NS rrset that every zone has.
fn nameservers(hosting: &Hosting) -> Wish {
    let (ttl, ns) = hosting.ns();
    let set = RecordSet { owner: OwnerName::apex(), kind: RecordType::Ns, ttl, records: ns.to_vec() };
    Wish::of(set, Some(ManagedBy::System))
}

/// The group of a zone in the catalog (contract section 6).
pub(super) fn group(zone: &ZoneRecord) -> &'static str {
    if zone.dnssec == DnssecState::Off { "plain" } else { "signed" }
}

/// What the catalog says of a zone (RFC 9432 sections 4.3 and 4.4.2).
pub(super) fn member(zone: &ZoneRecord, listed: bool) -> Vec<Wish> {
    let label = zone.id.as_uuid().simple();
    let member = OwnerName::stored(format!("{label}.zones"));
    let property = OwnerName::stored(format!("group.{label}.zones"));
    if !listed {
        return vec![Wish::none(member, RecordType::Ptr), Wish::none(property, RecordType::Txt)];
    }
    let group = group(zone);
    // One character string (RFC 1035 section 3.3.14), whose length fits in a byte.
    let text: Vec<u8> = std::iter::once(group.len() as u8).chain(group.bytes()).collect();
    let name = Rdata::stored(zone.name.wire().into_bytes());
    let set =
        |owner, kind, rdata| Wish::of(RecordSet { owner, kind, ttl: 0, records: vec![rdata] }, Some(ManagedBy::System));
    vec![set(member, RecordType::Ptr, name), set(property, RecordType::Txt, Rdata::stored(text))]
}
