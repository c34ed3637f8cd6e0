//! Changes of rrsets. All writes of rrsets use this module.

use std::collections::{BTreeMap, BTreeSet};

use kernel::OrgId;
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
/// The delay of the signer check after a change, in seconds.
const SIGNER_CHECK_DELAY: i64 = 2;

/// The requested content of an rrset. `None` deletes the rrset.
#[derive(Debug, Clone)]
pub(super) struct RrsetChange {
    pub(super) owner: OwnerName,
    pub(super) kind: RecordType,
    pub(super) content: Option<Content>,
}

/// The edits that result from changes, and the rejected changes.
#[derive(Debug)]
pub(super) struct Plan {
    /// The edits, without no-ops.
    pub(super) edits: Vec<Edit>,
    /// The index and error of each rejected change.
    pub(super) rejected: Vec<(usize, DnsError)>,
}

impl RrsetChange {
    pub(super) fn set(set: RecordSet, managed_by: Option<ManagedBy>) -> Self {
        Self { owner: set.owner, kind: set.kind, content: Some((set.ttl, set.records, managed_by)) }
    }

    pub(super) fn delete(owner: OwnerName, kind: RecordType) -> Self {
        Self { owner, kind, content: None }
    }

    /// Returns the edit in a zone that has no rrsets yet.
    pub(super) fn into_insert(self) -> Edit {
        Edit { owner: self.owner, kind: self.kind, old: None, new: self.content }
    }
}

impl Dns {
    /// Plans changes, each with an index that identifies it, against the stored rrsets at their names. `editor` is the
    /// part of the platform that makes the changes, or `None` for a user. `System` may change the rrsets of all parts.
    /// The plan stays valid while the caller holds the zone's row lock.
    pub(super) async fn plan(
        &self,
        tx: &mut Connection,
        zone: &ZoneRecord,
        changes: Vec<(usize, RrsetChange)>,
        editor: Option<ManagedBy>,
    ) -> Result<Plan> {
        let mut owners: Vec<&OwnerName> = changes.iter().map(|(_, change)| &change.owner).collect();
        owners.sort_unstable();
        owners.dedup();
        let stored = tx.rrset_at(zone.id, &owners).await?;
        Ok(plan_changes(zone, stored.into_iter(), changes.into_iter(), editor))
    }

    /// Plans changes. Fails if one of them is rejected.
    pub(super) async fn plan_edits(
        &self,
        tx: &mut Connection,
        zone: &ZoneRecord,
        changes: Vec<RrsetChange>,
        editor: Option<ManagedBy>,
    ) -> Result<Vec<Edit>> {
        let changes = changes.into_iter().enumerate().collect();
        let Plan { edits, mut rejected } = self.plan(tx, zone, changes, editor).await?;
        if rejected.is_empty() { Ok(edits) } else { Err(rejected.swap_remove(0).1) }
    }

    /// Writes edits under one new serial, notifies the nameservers, and returns the changed zone. Without edits, this
    /// is a no-op.
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
        self.enqueue_notice(tx, zone.org, &Notice::for_zone(&zone)).await?;
        Ok(zone)
    }

    /// Writes edits, like [`Self::apply_edits`]. Returns false, and writes nothing, if the zone would exceed a limit.
    pub(super) async fn apply_within_limits(
        &self,
        tx: &mut Connection,
        zone: ZoneRecord,
        edits: &[Edit],
    ) -> Result<bool> {
        match self.apply_edits(tx, zone, edits).await {
            Ok(_) => Ok(true),
            Err(DnsError::ZoneBytesLimit { .. } | DnsError::InvalidFields(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Enqueues a notice for the nameservers, if this installation runs a hidden primary. `org` is the organization of the
    /// zone, or `None` for the catalog.
    pub(super) async fn enqueue_notice(&self, tx: &mut Connection, org: Option<OrgId>, notice: &Notice) -> Result<()> {
        if self.hosting.as_ref().is_some_and(|hosting| hosting.has_primary) {
            notify::enqueue(&self.store, tx, org, notice).await?;
        }
        Ok(())
    }

    /// Writes edits under one new serial without a notice, and keeps at most `max_journal_entries` journal entries.
    /// Fails if the zone would exceed a limit.
    pub(super) async fn write_edits(
        &self,
        tx: &mut Connection,
        zone: ZoneRecord,
        edits: &[Edit],
        max_journal_entries: i64,
    ) -> Result<ZoneRecord> {
        let now = self.store.clock_rng().now();
        let serial = zone.next_serial(now);
        let size = self.check_size(tx, &zone, edits).await?;
        let signer_check_at = now.plus_seconds(SIGNER_CHECK_DELAY);
        let update = ZoneUpdate { zone, serial, edits, size, max_journal_entries, signer_check_at };
        Ok(tx.rrset_apply(update).await?)
    }
}

/// Returns whether a managed rrset and another rrset of the same name exclude each other: they have the same type, one
/// is a CNAME, or both are addresses.
pub(super) fn conflicts(managed: RecordType, other: RecordType) -> bool {
    let is_address = |kind| matches!(kind, RecordType::A | RecordType::Aaaa);
    managed == other || [managed, other].contains(&RecordType::Cname) || (is_address(managed) && is_address(other))
}

/// Applies changes to the stored rrsets at their names and returns the resulting edits.
pub(super) fn plan_changes(
    zone: &ZoneRecord,
    stored: impl Iterator<Item = StoredSet>,
    changes: impl Iterator<Item = (usize, RrsetChange)>,
    editor: Option<ManagedBy>,
) -> Plan {
    // Move the contents instead of cloning them, because a plan may contain a whole zone.
    let mut before: BTreeMap<(OwnerName, RecordType), Content> = BTreeMap::new();
    let mut kinds_after: BTreeMap<OwnerName, BTreeSet<RecordType>> = BTreeMap::new();
    for StoredSet { set: RecordSet { owner, kind, ttl, records }, managed_by } in stored {
        kinds_after.entry(owner.clone()).or_default().insert(kind);
        before.insert((owner, kind), (ttl, records, managed_by));
    }
    let (mut rejected, mut touched) = (Vec::new(), BTreeMap::<_, (usize, Option<Content>)>::new());
    for (index, RrsetChange { owner, kind, content }) in changes {
        let key = (owner, kind);
        let current = touched.get(&key).map_or_else(|| before.get(&key), |(_, content)| content.as_ref());
        let current = current.and_then(|(.., managed_by)| *managed_by);
        let managed = if kind == RecordType::Soa { Some(ManagedBy::System) } else { current };
        let may_edit = |by: &ManagedBy| editor.is_some_and(|editor| editor == *by || editor == ManagedBy::System);
        if let Some(managed_by) = managed.filter(|by| !may_edit(by)) {
            let name = key.0.absolute(&zone.name);
            rejected.push((index, DnsError::Managed { name, kind: kind.as_str(), managed_by }));
            continue;
        }
        let kinds = kinds_after.entry(key.0.clone()).or_default();
        if content.is_some() {
            kinds.insert(kind)
        } else {
            kinds.remove(&kind)
        };
        touched.insert(key, (index, content));
    }
    for ((owner, _), (index, _)) in &touched {
        let kinds = kinds_after.get(owner);
        let is_only_type = kinds.is_none_or(|kinds| kinds.len() < 2) && !owner.is_apex();
        if !is_only_type && kinds.is_some_and(|kinds| kinds.contains(&RecordType::Cname)) {
            rejected.push((*index, DnsError::CnameConflict(owner.absolute(&zone.name))));
        }
    }
    rejected.sort_by_key(|(index, _)| *index);
    let edits = touched.into_iter().filter_map(|(key, (_, new))| {
        let old = before.remove(&key);
        (old != new).then_some(Edit { owner: key.0, kind: key.1, old, new })
    });
    Plan { edits: edits.collect(), rejected }
}

/// Returns the audit data of edits: the names and types of the first 100.
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
