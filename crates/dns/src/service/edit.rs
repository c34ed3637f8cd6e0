//! Changing what is in a zone: the one way in which rrsets are written.

use std::collections::BTreeMap;

use kernel::Malformed;
use serde_json::json;
use store::Connection;

use super::{Dns, Result};
use crate::error::DnsError;
use crate::model::ManagedBy;
use crate::notify::{self, Notice};
use crate::repository::{Content, Edit, RrsetRepository as _, Step, StoredSet, ZoneRecord};
use crate::{OwnerName, RecordSet, RecordType};

/// Entries of the journal that are kept of a zone.
pub(super) const JOURNAL: i64 = 1000;
/// How soon after a change its arrival is looked for at the signer, in seconds.
const ARRIVAL: i64 = 2;
/// The most rrsets of a zone.
pub(super) const MOST: u32 = 100_000;

/// What an rrset is to be: none for not there.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) owner: OwnerName,
    pub(super) kind: RecordType,
    pub(super) content: Option<Content>,
}

/// What wishes come to.
#[derive(Debug)]
pub(super) struct Plan {
    /// Only what differs from what is there.
    pub(super) edits: Vec<Edit>,
    /// What each wish is refused for, by its place.
    pub(super) refused: Vec<(usize, DnsError)>,
}

impl Wish {
    pub(super) fn of(set: RecordSet, managed_by: Option<ManagedBy>) -> Self {
        Self { owner: set.owner, kind: set.kind, content: Some((set.ttl, set.records, managed_by)) }
    }

    pub(super) fn none(owner: OwnerName, kind: RecordType) -> Self {
        Self { owner, kind, content: None }
    }

    /// What it comes to in a zone that has nothing yet.
    pub(super) fn first(self) -> Edit {
        Edit { owner: self.owner, kind: self.kind, old: None, new: self.content }
    }
}

impl Dns {
    /// Holds wishes of `editor` (a user, if nobody) against what is at their names. Under the zone's lock the answer
    /// stays true.
    pub(super) async fn plan(
        &self,
        tx: &mut Connection,
        zone: &ZoneRecord,
        wishes: Vec<Wish>,
        editor: Option<ManagedBy>,
    ) -> Result<Plan> {
        let mut owners: Vec<&str> = wishes.iter().map(|wish| wish.owner.as_str()).collect();
        owners.sort_unstable();
        owners.dedup();
        let stored = tx.rrset_at(zone.id, &owners).await?;
        Ok(settle(zone, stored.into_iter(), wishes, editor))
    }

    /// The edits that wishes come to, when nothing is refused.
    pub(super) async fn edits(
        &self,
        tx: &mut Connection,
        zone: &ZoneRecord,
        wishes: Vec<Wish>,
        editor: Option<ManagedBy>,
    ) -> Result<Vec<Edit>> {
        let Plan { edits, mut refused } = self.plan(tx, zone, wishes, editor).await?;
        if refused.is_empty() { Ok(edits) } else { Err(refused.swap_remove(0).1) }
    }

    /// Writes edits as one step and has the nameservers told. Answers the zone as it is then. Nothing to write leaves
    /// it as it was.
    pub(super) async fn apply(&self, tx: &mut Connection, zone: ZoneRecord, edits: &[Edit]) -> Result<ZoneRecord> {
        if edits.is_empty() {
            return Ok(zone);
        }
        let zone = self.write(tx, zone, edits, JOURNAL).await?;
        self.announce(tx, &Notice::of(&zone)).await?;
        Ok(zone)
    }

    /// Has the nameservers told, where there is a hidden primary that they transfer from.
    pub(super) async fn announce(&self, tx: &mut Connection, notice: &Notice) -> Result<()> {
        if self.hosting()?.notifies {
            notify::enqueue(&self.store, tx, notice).await?;
        }
        Ok(())
    }

    /// Writes edits as one step that nameservers find out about by themselves, and keeps so many entries of the journal.
    pub(super) async fn write(
        &self,
        tx: &mut Connection,
        zone: ZoneRecord,
        edits: &[Edit],
        keep: i64,
    ) -> Result<ZoneRecord> {
        let now = self.store.world().now();
        let serial = zone.next_serial(now);
        let count = edits.iter().fold(i64::from(zone.rrset_count), |count, edit| {
            count + i64::from(edit.new.is_some()) - i64::from(edit.old.is_some())
        });
        let rrset_count = u32::try_from(count).map_err(store::Error::inconsistent)?;
        // The catalog has two for each zone that there is.
        let is_catalog = zone.name.as_str().is_empty();
        if rrset_count > MOST && rrset_count > zone.rrset_count && !is_catalog {
            return Err(Malformed::new("", format!("a zone has at most {MOST} rrsets")).into());
        }
        let look_at = now.plus_seconds(ARRIVAL);
        tx.rrset_apply(Step { zone: &zone, serial, edits, keep, look_at }).await?;
        let last_change = zone.last_change + i64::try_from(edits.len()).map_err(store::Error::inconsistent)?;
        Ok(ZoneRecord { serial, rrset_count, last_change, ..zone })
    }
}

/// What is at the names of wishes, and what they make of it.
pub(super) fn settle(
    zone: &ZoneRecord,
    stored: impl Iterator<Item = StoredSet>,
    wishes: Vec<Wish>,
    editor: Option<ManagedBy>,
) -> Plan {
    type Names = BTreeMap<OwnerName, BTreeMap<RecordType, Content>>;
    let mut before: Names = BTreeMap::new();
    for stored in stored {
        let RecordSet { owner, kind, ttl, records } = stored.set;
        before.entry(owner).or_default().insert(kind, (ttl, records, stored.managed_by));
    }
    let (mut after, mut refused, mut touched) = (before.clone(), Vec::new(), BTreeMap::new());
    for (place, Wish { owner, kind, content }) in wishes.into_iter().enumerate() {
        let at = after.entry(owner.clone()).or_default();
        let there = at.get(&kind).and_then(|(.., managed_by)| *managed_by);
        let managed = if kind == RecordType::Soa { Some(ManagedBy::System) } else { there };
        if let Some(managed_by) = managed.filter(|by| Some(*by) != editor) {
            let name = owner.absolute(&zone.name);
            refused.push((place, DnsError::Managed { name, kind: kind.as_str(), managed_by }));
            continue;
        }
        match content {
            Some(content) => drop(at.insert(kind, content)),
            None => drop(at.remove(&kind)),
        }
        touched.insert((owner, kind), place);
    }
    for ((owner, _), place) in &touched {
        let kinds = after.get(owner);
        let alone = kinds.is_none_or(|kinds| kinds.len() < 2) && !owner.is_apex();
        if !alone && kinds.is_some_and(|kinds| kinds.contains_key(&RecordType::Cname)) {
            refused.push((*place, DnsError::CnameConflict(owner.absolute(&zone.name))));
        }
    }
    refused.sort_by_key(|(place, _)| *place);
    let edits = touched.into_keys().filter_map(|(owner, kind)| {
        let of = |names: &Names| names.get(&owner).and_then(|kinds| kinds.get(&kind)).cloned();
        let (old, new) = (of(&before), of(&after));
        (old != new).then_some(Edit { owner, kind, old, new })
    });
    Plan { edits: edits.collect(), refused }
}

/// What the audit log tells of edits: the names and types, of many the first ones.
pub(super) fn told(zone: &ZoneRecord, edits: &[Edit]) -> serde_json::Value {
    const MOST: usize = 100;
    let rrsets = edits.iter().take(MOST).map(|edit| {
        let sign = match (&edit.old, &edit.new) {
            (None, _) => '+',
            (_, None) => '-',
            _ => '~',
        };
        format!("{sign} {} {}", edit.owner.absolute(&zone.name), edit.kind)
    });
    let rrsets: Vec<String> = rrsets.collect();
    json!({ "zone": zone.name.as_str(), "serial": zone.serial, "rrsets": rrsets, "count": edits.len() })
}
