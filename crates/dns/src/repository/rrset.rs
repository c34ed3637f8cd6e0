//! Rrsets and the journal of their changes.

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Binary, Integer, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{Time, ZoneId};
use store::{Connection, Error, Prepared, Result};

use super::rdata::{pack, packed_len, rrset_bytes, unpack};
use super::zone::ZoneRecord;
use crate::model::ManagedBy;
use crate::schema::{rrsets, zones};
use crate::{OwnerName, Rdata, RecordSet, RecordType};

/// The maximum size of the data in a zone's journal, in bytes. This also limits the size of a transfer of the changes.
const MAX_JOURNAL_BYTES: u64 = 1 << 20;

/// A stored rrset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSet {
    pub set: RecordSet,
    pub managed_by: Option<ManagedBy>,
}

/// The content of an rrset: its TTL in seconds, its records, and the part of the platform that manages it.
pub type Content = (u32, Vec<Rdata>, Option<ManagedBy>);

/// A change of one rrset. `None` means that the rrset does not exist before or after the change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    pub owner: OwnerName,
    pub kind: RecordType,
    pub old: Option<Content>,
    pub new: Option<Content>,
}

/// The size of a zone's stored rrsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneSize {
    pub rrset_count: u32,
    /// The bytes of the names, as text relative to the zone, and of the data in the column format.
    pub bytes: u64,
}

/// Edits of a zone that are written together, under one new serial.
#[derive(Debug)]
pub struct ZoneUpdate<'a> {
    /// The zone, as it was read under its row lock.
    pub zone: ZoneRecord,
    pub serial: u32,
    pub edits: &'a [Edit],
    /// The zone's rrset count and bytes after the edits.
    pub size: ZoneSize,
    /// The maximum number of journal entries. An update with more edits clears the journal.
    pub max_journal_entries: i64,
    /// The time of the next signer check of a signed zone. The check finds out whether the signer has the new serial.
    pub signer_check_at: Time,
}

/// Rrsets on a [`store::Connection`].
pub trait RrsetRepository {
    /// Returns the rrsets at these names of a zone.
    async fn rrset_at(&mut self, zone: ZoneId, owners: &[&OwnerName]) -> Result<Vec<StoredSet>>;

    /// Returns the first rrsets at a name of a zone and below it that the platform manages, or that users edit.
    async fn rrsets_within(
        &mut self,
        zone: ZoneId,
        owner: &OwnerName,
        are_managed: bool,
        limit: i64,
    ) -> Result<Vec<StoredSet>>;

    /// Writes edits, the journal and the serial, in one statement whose cost does not grow with the zone. Returns the
    /// changed zone.
    async fn rrset_apply(&mut self, update: ZoneUpdate<'_>) -> Result<ZoneRecord>;
}

#[derive(Queryable, Selectable, QueryableByName)]
#[diesel(table_name = rrsets)]
pub(super) struct RrsetRow {
    name: String,
    kind: RecordType,
    ttl: i32,
    rdata: Vec<u8>,
    managed_by: Option<ManagedBy>,
}

/// The edits are arrays of the same length. An update with more edits than the journal may have entries clears the
/// journal. Secondaries with an earlier serial then transfer the whole zone.
const APPLY: &str = "\
    WITH edits AS ( \
        SELECT * FROM unnest($4, $5, $6, $7, $8, $9, $10, $11, $12) WITH ORDINALITY \
            AS e (name, sort_key, kind, old_ttl, old_rdata, old_managed_by, new_ttl, new_rdata, managed_by, ordinality)), \
    removed AS ( \
        DELETE FROM dns.rrsets r USING edits e \
        WHERE r.zone_id = $1 AND r.sort_key = e.sort_key AND r.kind = e.kind AND e.new_rdata IS NULL), \
    written AS ( \
        INSERT INTO dns.rrsets (zone_id, name, sort_key, kind, ttl, rdata, managed_by) \
        SELECT $1, name, sort_key, kind, new_ttl, new_rdata, managed_by FROM edits WHERE new_rdata IS NOT NULL \
        ON CONFLICT (zone_id, sort_key, kind) DO UPDATE \
        SET ttl = excluded.ttl, rdata = excluded.rdata, managed_by = excluded.managed_by), \
    noted AS ( \
        INSERT INTO dns.changes (zone_id, number, from_serial, to_serial, name, kind, old_ttl, old_rdata, old_managed_by, \
            new_ttl, new_rdata) \
        SELECT $1, $13 + ordinality, $2, $3, name, kind, old_ttl, old_rdata, old_managed_by, new_ttl, new_rdata FROM edits \
        WHERE cardinality($4) <= $14), \
    forgotten AS ( \
        DELETE FROM dns.changes WHERE zone_id = $1 AND number <= $13 + cardinality($4) - $14 \
        RETURNING coalesce(octet_length(old_rdata), 0) + coalesce(octet_length(new_rdata), 0) AS bytes) \
    UPDATE dns.zones \
    SET serial = $3, last_change_number = $13 + cardinality($4), rrset_count = rrset_count + $15, bytes = bytes + $16, \
        journal_bytes = journal_bytes + $17 - (SELECT coalesce(sum(bytes), 0) FROM forgotten), \
        signer_check_at = CASE WHEN dnssec_state <> 'off' THEN least(signer_check_at, $18) ELSE signer_check_at END \
    WHERE id = $1 RETURNING journal_bytes";

#[derive(QueryableByName)]
#[diesel(table_name = zones)]
struct JournalRow {
    journal_bytes: i64,
}

impl RrsetRepository for Connection {
    async fn rrset_at(&mut self, zone: ZoneId, owners: &[&OwnerName]) -> Result<Vec<StoredSet>> {
        let keys: Vec<Vec<u8>> = owners.iter().map(|owner| owner.canonical_key()).collect();
        let some = rrsets::table.filter(rrsets::zone_id.eq(zone)).filter(rrsets::sort_key.eq_any(keys));
        let rows: Vec<RrsetRow> = some.select(RrsetRow::as_select()).load(self).await?;
        rows.into_iter().map(StoredSet::try_from).collect()
    }

    async fn rrsets_within(
        &mut self,
        zone: ZoneId,
        owner: &OwnerName,
        are_managed: bool,
        limit: i64,
    ) -> Result<Vec<StoredSet>> {
        let first = owner.canonical_key();
        // The keys of the names below start with the key of the name, which ends in a zero byte.
        let mut end = first.clone();
        if let Some(last) = end.last_mut() {
            *last = 1;
        }
        let within = rrsets::table.filter(rrsets::zone_id.eq(zone)).filter(rrsets::sort_key.ge(first));
        let sorted = within.order((rrsets::sort_key, rrsets::kind)).limit(limit);
        let mut sorted = sorted.select(RrsetRow::as_select()).into_boxed();
        sorted = if are_managed {
            sorted.filter(rrsets::managed_by.is_not_null())
        } else {
            sorted.filter(rrsets::managed_by.is_null())
        };
        // All names are within the apex, whose key is empty.
        if !owner.is_apex() {
            sorted = sorted.filter(rrsets::sort_key.lt(end));
        }
        let rows: Vec<RrsetRow> = sorted.load(self).await?;
        rows.into_iter().map(StoredSet::try_from).collect()
    }

    async fn rrset_apply(&mut self, update: ZoneUpdate<'_>) -> Result<ZoneRecord> {
        let ZoneUpdate { zone, serial, edits, size, max_journal_entries, signer_check_at } = update;
        let journal_bytes: u64 = edits.iter().map(Edit::journal_bytes).sum();
        let max_journal_entries = kept_entries(&zone, edits, journal_bytes, max_journal_entries);
        let is_recorded = i64::try_from(edits.len()).is_ok_and(|edits| edits <= max_journal_entries);
        // Send the old content only if the journal records the update. The journal does not store large updates.
        let old: fn(&Edit) -> Option<&Content> = if is_recorded { |edit| edit.old.as_ref() } else { |_| None };
        let new: fn(&Edit) -> Option<&Content> = |edit| edit.new.as_ref();
        let apply = diesel::sql_query(APPLY)
            .bind::<Uuid, _>(zone.id)
            .bind::<BigInt, _>(i64::from(zone.serial))
            .bind::<BigInt, _>(i64::from(serial))
            .bind::<Array<Text>, _>(column(edits, |edit| edit.owner.as_str()))
            .bind::<Array<Binary>, _>(column(edits, |edit| edit.owner.canonical_key()))
            .bind::<Array<Text>, _>(column(edits, |edit| edit.kind.as_str()))
            .bind::<Array<Nullable<Integer>>, _>(column(edits, |edit| old(edit).map(ttl)))
            .bind::<Array<Nullable<Binary>>, _>(column(edits, |edit| old(edit).map(packed)))
            .bind::<Array<Nullable<Text>>, _>(column(edits, |edit| old(edit).and_then(managed_by)))
            .bind::<Array<Nullable<Integer>>, _>(column(edits, |edit| new(edit).map(ttl)))
            .bind::<Array<Nullable<Binary>>, _>(column(edits, |edit| new(edit).map(packed)))
            .bind::<Array<Nullable<Text>>, _>(column(edits, |edit| new(edit).and_then(managed_by)))
            .bind::<BigInt, _>(zone.last_change_number)
            .bind::<BigInt, _>(max_journal_entries)
            .bind::<Integer, _>(size.rrset_count.cast_signed() - zone.rrset_count.cast_signed())
            .bind::<BigInt, _>(size.bytes.cast_signed() - zone.bytes.cast_signed())
            .bind::<BigInt, _>(if is_recorded { journal_bytes.cast_signed() } else { 0 })
            .bind::<Timestamptz, _>(signer_check_at);
        let updated = Prepared(apply).get_result(self).await.optional()?;
        let JournalRow { journal_bytes } =
            updated.ok_or_else(|| Error::inconsistent("a locked zone does not exist"))?;
        let ZoneSize { rrset_count, bytes } = size;
        let last_change_number = zone.last_change_number + i64::try_from(edits.len()).map_err(Error::inconsistent)?;
        let journal_bytes = journal_bytes.cast_unsigned();
        Ok(ZoneRecord { serial, rrset_count, bytes, last_change_number, journal_bytes, ..zone })
    }
}

/// Returns the maximum number of entries that the journal keeps after an update, so that its data stay within their
/// maximum size: the usual number, only the entries of the update, or none.
fn kept_entries(zone: &ZoneRecord, edits: &[Edit], added_bytes: u64, max_entries: i64) -> i64 {
    if added_bytes > MAX_JOURNAL_BYTES {
        0
    } else if zone.journal_bytes + added_bytes > MAX_JOURNAL_BYTES {
        max_entries.min(i64::try_from(edits.len()).unwrap_or(i64::MAX))
    } else {
        max_entries
    }
}

fn column<'e, T>(edits: &'e [Edit], value: impl Fn(&'e Edit) -> T) -> Vec<T> {
    edits.iter().map(value).collect()
}

fn ttl((ttl, ..): &Content) -> i32 {
    ttl.cast_signed()
}

fn packed((_, records, _): &Content) -> Vec<u8> {
    pack(records)
}

fn managed_by((.., managed_by): &Content) -> Option<&'static str> {
    managed_by.as_ref().map(ManagedBy::as_str)
}

impl Edit {
    /// Returns the number of bytes of the content before and after the edit, which the journal stores.
    fn journal_bytes(&self) -> u64 {
        let contents = self.old.iter().chain(&self.new);
        contents.map(|(_, records, _)| packed_len(records)).sum()
    }
}

impl ZoneSize {
    /// Returns the size of a zone after these edits.
    pub fn after(zone: &ZoneRecord, edits: &[Edit]) -> Result<Self> {
        let (mut rrset_count, mut bytes) = (i64::from(zone.rrset_count), zone.bytes.cast_signed());
        for Edit { owner, old, new, .. } in edits {
            for (content, sign) in [(old, -1), (new, 1)] {
                let Some((_, records, _)) = content else { continue };
                rrset_count += sign;
                bytes += sign * rrset_bytes(owner, records).cast_signed();
            }
        }
        Ok(Self {
            rrset_count: rrset_count.try_into().map_err(Error::inconsistent)?,
            bytes: bytes.try_into().map_err(Error::inconsistent)?,
        })
    }
}

impl TryFrom<RrsetRow> for StoredSet {
    type Error = Error;

    fn try_from(row: RrsetRow) -> Result<Self> {
        let set = RecordSet {
            owner: OwnerName::new_unchecked(row.name),
            kind: row.kind,
            ttl: row.ttl.cast_unsigned(),
            records: unpack(&row.rdata)?,
        };
        Ok(Self { set, managed_by: row.managed_by })
    }
}
