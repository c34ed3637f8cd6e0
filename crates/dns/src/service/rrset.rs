//! Use cases of rrsets.

use std::collections::HashSet;

use kernel::audit::{Actor, Event};
use kernel::{ApiError as _, Code, InvalidField, InvalidFields, OrgId};
use store::{Connection, Outcome};

use super::edit::{Plan, RrsetChange, audit_data};
use super::{AtSerial, Dns, Precondition, Result};
use crate::error::{DnsError, ItemError};
use crate::model::{ManagedBy, Rrset, RrsetContent, RrsetPatch, RrsetsPatch};
use crate::repository::{Content, Edit, ZoneRecord};
use crate::{InvalidSet, OwnerName, Rdata, RecordSet, RecordType, ZoneName};

impl Dns {
    /// Replaces the content of an rrset. The same content is a no-op and keeps the serial.
    ///
    /// # Errors
    /// Returns [`DnsError::InvalidFields`] for an invalid name, type or record. Also returns [`DnsError::Managed`],
    /// [`DnsError::CnameConflict`], [`DnsError::ZoneBytesLimit`], [`DnsError::ZoneNotFound`] and
    /// [`DnsError::SerialMismatch`].
    pub async fn rrset_put(
        &self,
        actor: &Actor,
        (org, zone): (OrgId, &str),
        (name, kind): (&str, &str),
        content: RrsetContent,
        precondition: &Precondition,
    ) -> Result<AtSerial<Rrset>> {
        self.hosting()?;
        // Validation precedes the precondition (RFC 9110 section 13.2.1).
        let kind: RecordType = kind.parse().map_err(|error| InvalidField::new("type", error))?;
        self.change_zone(actor, (org, zone), async |tx: &mut Connection| {
            let zone = self.lock_zone(tx, org, zone, precondition).await?;
            let owner = parse_owner(name, &zone.name);
            let change = if kind == RecordType::Soa {
                // Users cannot change an SOA: planning any change of it, such as this deletion, fails because the
                // SOA is managed.
                RrsetChange::delete(owner?, kind)
            } else {
                let ttl = content.ttl.map(i64::from);
                RrsetChange::set(parse_set(&zone.name, owner, kind, ttl, &content.records)?, None)
            };
            let (owner, new_content) = (change.owner.clone(), change.content.clone());
            let edits = self.plan_edits(tx, &zone, vec![change], None).await?;
            let (ttl, records, _) = new_content.ok_or(DnsError::RrsetNotFound)?;
            let value = Rrset::new(&zone.name, (&owner, kind), ttl, &records, None);
            if edits.is_empty() {
                return Ok(Outcome::Unchanged(AtSerial { serial: zone.serial, value }));
            }
            let zone = self.apply_edits(tx, zone, &edits).await?;
            let event = Event::in_org("dns.rrset.set", org, zone.id, audit_data(&zone, &edits));
            Ok(Outcome::Changed(AtSerial { serial: zone.serial, value }, event))
        })
        .await
    }

    /// Deletes an rrset.
    ///
    /// # Errors
    /// Returns [`DnsError::RrsetNotFound`], [`DnsError::Managed`], [`DnsError::ZoneNotFound`] or
    /// [`DnsError::SerialMismatch`].
    pub async fn rrset_delete(
        &self,
        actor: &Actor,
        (org, zone): (OrgId, &str),
        (name, kind): (&str, &str),
        precondition: &Precondition,
    ) -> Result<AtSerial<()>> {
        self.hosting()?;
        let kind: RecordType = kind.parse().map_err(|_| DnsError::RrsetNotFound)?;
        self.change_zone(actor, (org, zone), async |tx: &mut Connection| {
            let zone = self.lock_zone(tx, org, zone, precondition).await?;
            let owner = OwnerName::parse(name, &zone.name).map_err(|_| DnsError::RrsetNotFound)?;
            let edits = self.plan_edits(tx, &zone, vec![RrsetChange::delete(owner, kind)], None).await?;
            if edits.is_empty() {
                return Err(DnsError::RrsetNotFound);
            }
            let zone = self.apply_edits(tx, zone, &edits).await?;
            let event = Event::in_org("dns.rrset.delete", org, zone.id, audit_data(&zone, &edits));
            Ok(Outcome::Changed(AtSerial { serial: zone.serial, value: () }, event))
        })
        .await
    }

    /// Changes several rrsets. Applies either all changes or none.
    ///
    /// # Errors
    /// Returns [`DnsError::InvalidItems`], [`DnsError::ZoneBytesLimit`], [`DnsError::ZoneNotFound`] or
    /// [`DnsError::SerialMismatch`].
    pub async fn rrsets_patch(
        &self,
        actor: &Actor,
        (org, zone): (OrgId, &str),
        patch: RrsetsPatch,
        precondition: &Precondition,
    ) -> Result<AtSerial<RrsetChanges>> {
        self.patch_zone(actor, (org, zone), patch, precondition, false).await
    }

    /// Changes several rrsets, like [`Dns::rrsets_patch`], for a client that keeps the records of a whole zone. The
    /// client may list the delegations of the zones below: the same nameservers are a no-op, with any TTL.
    ///
    /// # Errors
    /// Returns the errors of [`Dns::rrsets_patch`].
    pub async fn rrsets_patch_with_delegations(
        &self,
        actor: &Actor,
        (org, zone): (OrgId, &str),
        patch: RrsetsPatch,
        precondition: &Precondition,
    ) -> Result<AtSerial<RrsetChanges>> {
        self.patch_zone(actor, (org, zone), patch, precondition, true).await
    }

    async fn patch_zone(
        &self,
        actor: &Actor,
        (org, zone): (OrgId, &str),
        patch: RrsetsPatch,
        precondition: &Precondition,
        may_repeat_delegations: bool,
    ) -> Result<AtSerial<RrsetChanges>> {
        self.hosting()?;
        let RrsetsPatch { rrsets, dry_run } = patch;
        self.change_zone(actor, (org, zone), async |tx: &mut Connection| {
            let zone = self.lock_zone(tx, org, zone, precondition).await?;
            let edits = self.plan_patch(tx, &zone, &rrsets, may_repeat_delegations).await?;
            if dry_run || edits.is_empty() {
                // Check the size here, because a dry run does not call `apply_edits`, which checks it otherwise.
                self.check_size(tx, &zone, &edits).await?;
                return Ok(Outcome::Unchanged(RrsetChanges::at(&zone, edits)));
            }
            let zone = self.apply_edits(tx, zone, &edits).await?;
            let event = Event::in_org("dns.rrset.patch", org, zone.id, audit_data(&zone, &edits));
            Ok(Outcome::Changed(RrsetChanges::at(&zone, edits), event))
        })
        .await
    }

    /// Plans a user's changes in a locked zone. Returns all errors, not only the first. `may_repeat_delegations` states
    /// whether a delegation that the platform manages may be among the changes, if its records stay the same.
    pub(super) async fn plan_patch(
        &self,
        tx: &mut Connection,
        zone: &ZoneRecord,
        rrsets: &[RrsetPatch],
        may_repeat_delegations: bool,
    ) -> Result<Vec<Edit>> {
        let ParsedChanges { changes, mut errors } = parse_changes(&zone.name, rrsets)?;
        let (_, ns) = self.hosting()?.ns();
        let has_nameservers = |change: &RrsetChange| {
            change.kind == RecordType::Ns && change.content.as_ref().is_some_and(|(_, records, _)| records == ns)
        };
        let repeated = changes.iter().filter(|(_, change)| may_repeat_delegations && has_nameservers(change));
        let repeated: HashSet<usize> = repeated.map(|(index, _)| *index).collect();
        let Plan { edits, mut rejected } = self.plan(tx, zone, changes, None).await?;
        // An invalid item may be the one that resolves the conflict. `None` stands for any name.
        let absolute = |name: &str| OwnerName::parse(name, &zone.name).ok().map(|owner| owner.absolute(&zone.name));
        let invalid: HashSet<Option<String>> = errors.iter().map(|error| absolute(&error.name)).collect();
        rejected.retain(|(index, error)| match error {
            DnsError::Managed { managed_by: ManagedBy::System, .. } => !repeated.contains(index),
            DnsError::CnameConflict(name) => !invalid.contains(&None) && !invalid.contains(&Some(name.clone())),
            _ => true,
        });
        let rejected = rejected.iter();
        errors.extend(rejected.map(|(index, error)| item_error(rrsets, *index, error.code(), error.to_string())));
        if errors.is_empty() {
            return Ok(edits);
        }
        errors.sort_by_key(|error| error.index);
        Err(DnsError::InvalidItems(errors))
    }
}

/// The rrsets that a change adds, changes and removes. The text of an rrset is created only when it is read, because a
/// change can remove a whole zone.
#[derive(Debug)]
pub struct RrsetChanges {
    zone: ZoneName,
    edits: Vec<Edit>,
}

impl RrsetChanges {
    pub(super) fn at(zone: &ZoneRecord, edits: Vec<Edit>) -> AtSerial<Self> {
        AtSerial { serial: zone.serial, value: Self { zone: zone.name.clone(), edits } }
    }

    /// Returns the new rrsets.
    pub fn added(&self) -> impl Iterator<Item = Rrset> {
        self.views(|edit| edit.new.as_ref().filter(|_| edit.old.is_none()))
    }

    /// Returns the rrsets that get other content, as they are after the change.
    pub fn changed(&self) -> impl Iterator<Item = Rrset> {
        self.views(|edit| edit.new.as_ref().filter(|_| edit.old.is_some()))
    }

    /// Returns the deleted rrsets, as they were before the change.
    pub fn removed(&self) -> impl Iterator<Item = Rrset> {
        self.views(|edit| edit.old.as_ref().filter(|_| edit.new.is_none()))
    }

    fn views(&self, select: fn(&Edit) -> Option<&Content>) -> impl Iterator<Item = Rrset> {
        let selected = self.edits.iter().filter_map(move |edit| Some((edit, select(edit)?)));
        selected.map(|(edit, (ttl, records, managed_by))| {
            Rrset::new(&self.zone, (&edit.owner, edit.kind), *ttl, records, *managed_by)
        })
    }
}

/// The value of a field of a request, or its error.
type Field<T> = std::result::Result<T, InvalidField>;

fn parse_owner(name: &str, zone: &ZoneName) -> Field<OwnerName> {
    OwnerName::parse(name, zone).map_err(|error| InvalidField::new("name", error))
}

fn parse_ttl(ttl: Option<i64>) -> Field<u32> {
    let ttl = ttl.map_or(Ok(RecordSet::DEFAULT_TTL), u32::try_from).ok();
    let (min, max) = RecordSet::TTL.into_inner();
    ttl.filter(|ttl| RecordSet::TTL.contains(ttl))
        .ok_or_else(|| InvalidField::new("ttl", format!("must be from {min} to {max} seconds")))
}

/// Validates the rrset of a request.
fn parse_set(
    zone: &ZoneName,
    owner: Field<OwnerName>,
    kind: RecordType,
    ttl: Option<i64>,
    records: &[String],
) -> Result<RecordSet> {
    // Count before parsing, because parsing thousands of records takes long.
    let records = if records.len() > RecordSet::MAX_RECORDS {
        Err(InvalidField::new("records", InvalidSet::TooManyRecords(records.len())).into())
    } else {
        InvalidFields::all(records.iter().enumerate().map(|(index, text)| {
            Rdata::parse(kind, text, zone).map_err(|error| InvalidField::new(format!("records[{index}]"), error))
        }))
    };
    let ((owner, ttl), records) = InvalidFields::both(InvalidFields::both(owner, parse_ttl(ttl)), records)?;
    let set = RecordSet::new(owner, kind, ttl, records);
    match set.check() {
        Ok(()) => Ok(set),
        Err(InvalidSet::ApexCname) => Err(DnsError::CnameConflict(set.owner.absolute(zone))),
        Err(error) => Err(InvalidField::new("records", error).into()),
    }
}

/// The items of a PATCH.
#[derive(Default)]
struct ParsedChanges {
    /// The changes, each with the index of its item.
    changes: Vec<(usize, RrsetChange)>,
    errors: Vec<ItemError>,
}

fn parse_changes(zone: &ZoneName, items: &[RrsetPatch]) -> Result<ParsedChanges> {
    let mut parsed = ParsedChanges::default();
    let mut keys = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        match parse_change(zone, item) {
            Ok(change) if keys.insert((change.owner.clone(), change.kind)) => parsed.changes.push((index, change)),
            Ok(_) => {
                let message = "appears more than once; send the complete content of each rrset once";
                parsed.errors.push(item_error(items, index, &Code::BAD_REQUEST, message.to_owned()));
            }
            Err(DnsError::Store(error)) => return Err(error.into()),
            Err(error) => {
                let message = match &error {
                    DnsError::InvalidFields(fields) => fields.summary(),
                    error => error.to_string(),
                };
                parsed.errors.push(item_error(items, index, error.code(), message));
            }
        }
    }
    Ok(parsed)
}

fn parse_change(zone: &ZoneName, item: &RrsetPatch) -> Result<RrsetChange> {
    let owner = parse_owner(&item.name, zone);
    let kind: Field<RecordType> = item.kind.parse().map_err(|error| InvalidField::new("type", error));
    match kind {
        // Planning the change rejects every SOA as managed, so its content does not matter.
        Ok(kind) if !item.records.is_empty() && kind != RecordType::Soa => {
            Ok(RrsetChange::set(parse_set(zone, owner, kind, item.ttl, &item.records)?, None))
        }
        kind => {
            let (owner, kind) = InvalidFields::both(owner, kind)?;
            Ok(RrsetChange::delete(owner, kind))
        }
    }
}

fn item_error(items: &[RrsetPatch], index: usize, code: &'static Code, message: String) -> ItemError {
    let (name, kind) = items.get(index).map(|item| (item.name.clone(), item.kind.clone())).unwrap_or_default();
    ItemError { index, name, kind, code, message }
}
