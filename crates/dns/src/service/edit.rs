//! Changes of rrsets. All writes of rrsets use this module.

use std::collections::BTreeMap;

use kernel::InvalidField;
use serde_json::json;
use store::Connection;

use super::{Dns, Result};
use crate::error::DnsError;
use crate::model::ManagedBy;
use crate::notify::{self, Notice};
use crate::repository::{Content, Edit, RrsetRepository as _, StoredSet, ZoneRecord, ZoneUpdate};
use crate::{OwnerName, RecordSet, RecordType};

/// The maximum number of journal entries of a zone.
pub(super) const MAX_JOURNAL_ENTRIES: i64 = 1000;
/// Delay of the signer check after a change, in seconds.
const SIGNER_CHECK_DELAY: i64 = 2;
/// The maximum number of rrsets of a zone.
pub(super) const MAX_RRSETS: u32 = 100_000;

/// The requested content of an rrset. None deletes it.
#[derive(Debug, Clone)]
pub(super) struct RrsetChange {
    pub(super) owner: OwnerName,
    pub(super) kind: RecordType,
    pub(super) content: Option<Content>,
}

/// The edits that result from changes, and the rejected changes.
#[derive(Debug)]
pub(super) struct Plan {
    /// Without no-ops.
    pub(super) edits: Vec<Edit>,
    /// The position and error of each rejected change.
    pub(super) rejected: Vec<(usize, DnsError)>,
}

impl RrsetChange {
    pub(super) fn set(set: RecordSet, managed_by: Option<ManagedBy>) -> Self {
        Self { owner: set.owner, kind: set.kind, content: Some((set.ttl, set.records, managed_by)) }
    }

    pub(super) fn delete(owner: OwnerName, kind: RecordType) -> Self {
        Self { owner, kind, content: None }
    }

    /// The edit in a zone without rrsets.
    pub(super) fn into_insert(self) -> Edit {
        Edit { owner: self.owner, kind: self.kind, old: None, new: self.content }
    }
}

impl Dns {
    /// Plans changes against the stored rrsets at their names. Users have no `editor`. The plan stays valid while the
    /// caller holds the zone's row lock.
    pub(super) async fn plan(
        &self,
        tx: &mut Connection,
        zone: &ZoneRecord,
        changes: Vec<RrsetChange>,
        editor: Option<ManagedBy>,
    ) -> Result<Plan> {
        let mut owners: Vec<&str> = changes.iter().map(|change| change.owner.as_str()).collect();
        owners.sort_unstable();
        owners.dedup();
        let stored = tx.rrset_at(zone.id, &owners).await?;
        Ok(plan_changes(zone, stored.into_iter(), changes, editor))
    }

    /// Plans changes. Fails if one of them is rejected.
    pub(super) async fn plan_edits(
        &self,
        tx: &mut Connection,
        zone: &ZoneRecord,
        changes: Vec<RrsetChange>,
        editor: Option<ManagedBy>,
    ) -> Result<Vec<Edit>> {
        let Plan { edits, mut rejected } = self.plan(tx, zone, changes, editor).await?;
        if rejected.is_empty() { Ok(edits) } else { Err(rejected.swap_remove(0).1) }
    }

    /// Writes edits under one new serial and notifies the nameservers. Returns the changed zone. No edits are a no-op.
    pub(super) async fn apply_edits(
        &self,
        tx: &mut Connection,
        zone: ZoneRecord,
        edits: &[Edit],
    ) -> Result<ZoneRecord> {
        if edits.is_empty() {
            return Ok(zone);
        }
        let zone = self.write_edits(tx, zone, edits, MAX_JOURNAL_ENTRIES).await?;
        self.enqueue_notice(tx, &Notice::for_zone(&zone)).await?;
        Ok(zone)
    }

    /// Enqueues a notice for the nameservers, if a hidden primary runs.
    pub(super) async fn enqueue_notice(&self, tx: &mut Connection, notice: &Notice) -> Result<()> {
        if self.hosting()?.has_primary {
            notify::enqueue(&self.store, tx, notice).await?;
        }
        Ok(())
    }

    /// Writes edits under one new serial without a notice, and keeps at most `max_journal_entries` journal entries.
    pub(super) async fn write_edits(
        &self,
        tx: &mut Connection,
        zone: ZoneRecord,
        edits: &[Edit],
        max_journal_entries: i64,
    ) -> Result<ZoneRecord> {
        let now = self.store.clock_rng().now();
        let serial = zone.next_serial(now);
        let count = edits.iter().fold(i64::from(zone.rrset_count), |count, edit| {
            count + i64::from(edit.new.is_some()) - i64::from(edit.old.is_some())
        });
        let rrset_count = u32::try_from(count).map_err(store::Error::inconsistent)?;
        // The limit does not apply to the catalog, which has two rrsets per zone.
        let is_catalog = zone.name.as_str().is_empty();
        if rrset_count > MAX_RRSETS && rrset_count > zone.rrset_count && !is_catalog {
            return Err(InvalidField::new("", format!("a zone can have at most {MAX_RRSETS} rrsets")).into());
        }
        let signer_check_at = now.plus_seconds(SIGNER_CHECK_DELAY);
        tx.rrset_apply(ZoneUpdate { zone: &zone, serial, edits, max_journal_entries, signer_check_at }).await?;
        let last_change_number =
            zone.last_change_number + i64::try_from(edits.len()).map_err(store::Error::inconsistent)?;
        Ok(ZoneRecord { serial, rrset_count, last_change_number, ..zone })
    }
}

/// Applies changes to the stored rrsets at their names and returns the resulting edits.
pub(super) fn plan_changes(
    zone: &ZoneRecord,
    stored: impl Iterator<Item = StoredSet>,
    changes: Vec<RrsetChange>,
    editor: Option<ManagedBy>,
) -> Plan {
    type Names = BTreeMap<OwnerName, BTreeMap<RecordType, Content>>;
    let mut before: Names = BTreeMap::new();
    for stored in stored {
        let RecordSet { owner, kind, ttl, records } = stored.set;
        before.entry(owner).or_default().insert(kind, (ttl, records, stored.managed_by));
    }
    let (mut after, mut rejected, mut touched) = (before.clone(), Vec::new(), BTreeMap::new());
    for (index, RrsetChange { owner, kind, content }) in changes.into_iter().enumerate() {
        let kinds = after.entry(owner.clone()).or_default();
        let current = kinds.get(&kind).and_then(|(.., managed_by)| *managed_by);
        let managed = if kind == RecordType::Soa { Some(ManagedBy::System) } else { current };
        if let Some(managed_by) = managed.filter(|by| Some(*by) != editor) {
            let name = owner.absolute(&zone.name);
            rejected.push((index, DnsError::Managed { name, kind: kind.as_str(), managed_by }));
            continue;
        }
        match content {
            Some(content) => drop(kinds.insert(kind, content)),
            None => drop(kinds.remove(&kind)),
        }
        touched.insert((owner, kind), index);
    }
    for ((owner, _), index) in &touched {
        let kinds = after.get(owner);
        let is_only_type = kinds.is_none_or(|kinds| kinds.len() < 2) && !owner.is_apex();
        if !is_only_type && kinds.is_some_and(|kinds| kinds.contains_key(&RecordType::Cname)) {
            rejected.push((*index, DnsError::CnameConflict(owner.absolute(&zone.name))));
        }
    }
    rejected.sort_by_key(|(index, _)| *index);
    let edits = touched.into_keys().filter_map(|(owner, kind)| {
        let content = |names: &Names| names.get(&owner).and_then(|kinds| kinds.get(&kind)).cloned();
        let (old, new) = (content(&before), content(&after));
        (old != new).then_some(Edit { owner, kind, old, new })
    });
    Plan { edits: edits.collect(), rejected }
}

/// Audit data of edits: the names and types of the first 100.
pub(super) fn audit_data(zone: &ZoneRecord, edits: &[Edit]) -> serde_json::Value {
    const MAX_AUDITED: usize = 100;
    let rrsets = edits.iter().take(MAX_AUDITED).map(|edit| {
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
