//! Single rrsets, and several at once.

use kernel::audit::{Actor, Event};
use kernel::{Code, Failure as _, Malformed, OrgId};
use store::{Connection, Outcome};

use super::edit::{Wish, told};
use super::zone::shown;
use super::{At, Dns, Expected, Result};
use crate::error::{DnsError, ItemFault};
use crate::model::{Difference, Patched, Rrset, RrsetContent, RrsetPatch, RrsetsPatch};
use crate::repository::{Content, Edit, StoredSet, ZoneRecord};
use crate::{InvalidSet, OwnerName, Rdata, RecordSet, RecordType, ZoneName};

impl Dns {
    /// Makes the content of an rrset this one. The same content again changes nothing, the serial neither.
    ///
    /// # Errors
    /// [`DnsError::Field`] for a name, a type or a record that is none, [`DnsError::Managed`],
    /// [`DnsError::CnameConflict`], [`DnsError::ZoneNotFound`], [`DnsError::Changed`].
    pub async fn rrset_put(
        &self,
        actor: &Actor,
        (org, zone): (OrgId, &str),
        (name, kind): (&str, &str),
        content: RrsetContent,
        expected: &Expected,
    ) -> Result<At<Rrset>> {
        self.hosting()?;
        // Before the state that is expected is looked at: the request is no good whatever that is (RFC 9110 section 13.2.1).
        let kind: RecordType = kind.parse().map_err(|error| Malformed::new("type", error))?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let zone = self.locked(tx, org, zone, expected).await?;
                let owner = OwnerName::parse(name, &zone.name).map_err(|error| Malformed::new("name", error))?;
                let wish = if kind == RecordType::Soa {
                    // Refused as what it is: not for users to edit.
                    Wish::none(owner.clone(), kind)
                } else {
                    Wish::of(set(&zone.name, owner.clone(), kind, content.ttl, &content.records)?, None)
                };
                let wished = wish.content.clone();
                let edits = self.edits(tx, &zone, vec![wish], None).await?;
                let (ttl, records, _) = wished.ok_or(DnsError::RrsetNotFound)?;
                let value = Rrset::new(&zone.name, (&owner, kind), ttl, &records, None);
                if edits.is_empty() {
                    return Ok(Outcome::Unchanged(At { serial: zone.serial, value }));
                }
                let zone = self.apply(tx, zone, &edits).await?;
                let event = Event::in_org("dns.rrset.set", org, zone.id, told(&zone, &edits));
                Ok(Outcome::Changed(At { serial: zone.serial, value }, event))
            })
            .await
    }

    /// Deletes an rrset.
    ///
    /// # Errors
    /// [`DnsError::RrsetNotFound`], [`DnsError::Managed`], [`DnsError::ZoneNotFound`], [`DnsError::Changed`].
    pub async fn rrset_delete(
        &self,
        actor: &Actor,
        (org, zone): (OrgId, &str),
        (name, kind): (&str, &str),
        expected: &Expected,
    ) -> Result<At<()>> {
        self.hosting()?;
        let kind: RecordType = kind.parse().map_err(|_| DnsError::RrsetNotFound)?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let zone = self.locked(tx, org, zone, expected).await?;
                let owner = OwnerName::parse(name, &zone.name).map_err(|_| DnsError::RrsetNotFound)?;
                let edits = self.edits(tx, &zone, vec![Wish::none(owner, kind)], None).await?;
                if edits.is_empty() {
                    return Err(DnsError::RrsetNotFound);
                }
                let zone = self.apply(tx, zone, &edits).await?;
                let event = Event::in_org("dns.rrset.delete", org, zone.id, told(&zone, &edits));
                Ok(Outcome::Changed(At { serial: zone.serial, value: () }, event))
            })
            .await
    }

    /// Changes several rrsets together, or none of them.
    ///
    /// # Errors
    /// [`DnsError::Items`], [`DnsError::ZoneNotFound`], [`DnsError::Changed`].
    pub async fn rrsets_patch(
        &self,
        actor: &Actor,
        (org, zone): (OrgId, &str),
        patch: RrsetsPatch,
        expected: &Expected,
    ) -> Result<At<Patched>> {
        self.hosting()?;
        let RrsetsPatch { rrsets, dry_run } = patch;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let zone = self.locked(tx, org, zone, expected).await?;
                let edits = self.planned(tx, &zone, &rrsets).await?;
                if dry_run || edits.is_empty() {
                    return Ok(Outcome::Unchanged(patched(&zone, &edits)));
                }
                let zone = self.apply(tx, zone, &edits).await?;
                let event = Event::in_org("dns.rrset.patch", org, zone.id, told(&zone, &edits));
                Ok(Outcome::Changed(patched(&zone, &edits), event))
            })
            .await
    }

    /// What rrsets of a user come to in a zone that is locked, or every fault of them.
    pub(super) async fn planned(
        &self,
        tx: &mut Connection,
        zone: &ZoneRecord,
        rrsets: &[RrsetPatch],
    ) -> Result<Vec<Edit>> {
        let plan = self.plan(tx, zone, wishes(&zone.name, rrsets)?, None).await?;
        if plan.refused.is_empty() {
            return Ok(plan.edits);
        }
        let faults = plan.refused.iter().map(|(place, error)| fault(rrsets, *place, error.code(), error.to_string()));
        Err(DnsError::Items(faults.collect()))
    }
}

/// What edits come to, for people.
pub(super) fn difference(zone: &ZoneRecord, edits: &[Edit]) -> Difference {
    let view = |edit: &Edit, (ttl, records, managed_by): &Content| {
        let set = RecordSet { owner: edit.owner.clone(), kind: edit.kind, ttl: *ttl, records: records.clone() };
        shown(zone, &StoredSet { set, managed_by: *managed_by })
    };
    let (mut added, mut changed, mut removed) = (Vec::new(), Vec::new(), Vec::new());
    for edit in edits {
        match (&edit.old, &edit.new) {
            (None, Some(new)) => added.push(view(edit, new)),
            (Some(_), Some(new)) => changed.push(view(edit, new)),
            (Some(old), None) => removed.push(view(edit, old)),
            (None, None) => {}
        }
    }
    Difference { added, changed, removed }
}

fn patched(zone: &ZoneRecord, edits: &[Edit]) -> At<Patched> {
    let Difference { added, changed, removed } = difference(zone, edits);
    At { serial: zone.serial, value: Patched { serial: zone.serial, added, changed, removed } }
}

/// The rrset that a request describes.
fn set(zone: &ZoneName, owner: OwnerName, kind: RecordType, ttl: Option<u32>, records: &[String]) -> Result<RecordSet> {
    let ttl = ttl.unwrap_or(RecordSet::DEFAULT_TTL);
    if !RecordSet::TTL.contains(&ttl) {
        let (least, most) = RecordSet::TTL.into_inner();
        return Err(Malformed::new("ttl", format!("must be {least} to {most} seconds")).into());
    }
    let parse = |(place, text): (usize, &String)| {
        Rdata::parse(kind, text, zone)
            .map_err(|error| DnsError::from(Malformed::new(format!("records[{place}]"), error)))
    };
    let set = RecordSet::new(owner, kind, ttl, records.iter().enumerate().map(parse).collect::<Result<_>>()?);
    match set.check() {
        Ok(()) => Ok(set),
        Err(InvalidSet::ApexCname) => Err(DnsError::CnameConflict(set.owner.absolute(zone))),
        Err(fault) => Err(Malformed::new("records", fault).into()),
    }
}

fn wishes(zone: &ZoneName, items: &[RrsetPatch]) -> Result<Vec<Wish>> {
    let (mut wishes, mut faults) = (Vec::<Wish>::with_capacity(items.len()), Vec::new());
    let mut seen = std::collections::HashSet::new();
    for (place, item) in items.iter().enumerate() {
        match wish(zone, item) {
            Ok(wish) if seen.insert((wish.owner.clone(), wish.kind)) => wishes.push(wish),
            Ok(_) => {
                let message = "is there more than once; give each rrset its whole content";
                faults.push(fault(items, place, &Code::BAD_REQUEST, message.to_owned()));
            }
            Err(DnsError::Store(error)) => return Err(error.into()),
            Err(error) => {
                let message = match &error {
                    DnsError::Field(Malformed { path, message }) => format!("{path}: {message}"),
                    error => error.to_string(),
                };
                faults.push(fault(items, place, error.code(), message));
            }
        }
    }
    if faults.is_empty() { Ok(wishes) } else { Err(DnsError::Items(faults)) }
}

fn wish(zone: &ZoneName, item: &RrsetPatch) -> Result<Wish> {
    let owner = OwnerName::parse(&item.name, zone).map_err(|error| Malformed::new("name", error))?;
    let kind: RecordType = item.kind.parse().map_err(|error| Malformed::new("type", error))?;
    // An SOA is refused whatever it says.
    if item.records.is_empty() || kind == RecordType::Soa {
        return Ok(Wish::none(owner, kind));
    }
    Ok(Wish::of(set(zone, owner, kind, item.ttl, &item.records)?, None))
}

fn fault(items: &[RrsetPatch], index: usize, code: &'static Code, message: String) -> ItemFault {
    let (name, kind) = items.get(index).map(|item| (item.name.clone(), item.kind.clone())).unwrap_or_default();
    ItemFault { index, name, kind, code, message }
}
