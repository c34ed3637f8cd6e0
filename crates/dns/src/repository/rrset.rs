//! Rrsets and the journal of their changes.

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Binary, Integer, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{Time, ZoneId};
use store::{Connection, Error, Prepared, Result};

use super::rdata::{pack, unpack};
use super::zone::ZoneRecord;
use crate::model::ManagedBy;
use crate::schema::rrsets;
use crate::{OwnerName, Rdata, RecordSet, RecordType};

/// A stored rrset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSet {
    pub set: RecordSet,
    pub managed_by: Option<ManagedBy>,
}

/// TTL in seconds, records, and the part of the platform that manages them.
pub type Content = (u32, Vec<Rdata>, Option<ManagedBy>);

/// A change of one rrset. None stands for no rrset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    pub owner: OwnerName,
    pub kind: RecordType,
    pub old: Option<Content>,
    pub new: Option<Content>,
}

/// Edits of a zone under one new serial.
#[derive(Debug)]
pub struct ZoneUpdate<'a> {
    /// The zone as read under its row lock.
    pub zone: &'a ZoneRecord,
    pub serial: u32,
    pub edits: &'a [Edit],
    /// The maximum number of journal entries. More edits than that clear the journal.
    pub max_journal_entries: i64,
    /// The time of the next signer check of a signed zone, which looks for the new serial.
    pub signer_check_at: Time,
}

/// Rrsets on a [`store::Connection`].
pub trait RrsetRepository {
    /// All rrsets of a zone.
    async fn rrset_list(&mut self, zone: ZoneId) -> Result<Vec<StoredSet>>;

    /// The rrsets at these names of a zone.
    async fn rrset_at(&mut self, zone: ZoneId, owners: &[&str]) -> Result<Vec<StoredSet>>;

    /// Writes edits, the journal and the serial, in one statement whose cost does not grow with the zone.
    async fn rrset_apply(&mut self, step: ZoneUpdate<'_>) -> Result<()>;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = rrsets)]
pub(super) struct RrsetRow {
    name: String,
    kind: RecordType,
    ttl: i32,
    rdata: Vec<u8>,
    managed_by: Option<ManagedBy>,
}

/// The edits are arrays of the same length. An update with more edits than the journal keeps clears the journal:
/// secondaries with an earlier serial transfer the whole zone.
const APPLY: &str = "\
    WITH edits AS ( \
        SELECT * FROM unnest($4, $5, $6, $7, $8, $9, $10) WITH ORDINALITY \
            AS e (name, kind, old_ttl, old_rdata, new_ttl, new_rdata, managed_by, ordinality)), \
    removed AS ( \
        DELETE FROM dns.rrsets r USING edits e \
        WHERE r.zone_id = $1 AND r.name = e.name AND r.kind = e.kind AND e.new_rdata IS NULL), \
    written AS ( \
        INSERT INTO dns.rrsets (zone_id, name, kind, ttl, rdata, managed_by) \
        SELECT $1, name, kind, new_ttl, new_rdata, managed_by FROM edits WHERE new_rdata IS NOT NULL \
        ON CONFLICT (zone_id, name, kind) DO UPDATE \
        SET ttl = excluded.ttl, rdata = excluded.rdata, managed_by = excluded.managed_by), \
    noted AS ( \
        INSERT INTO dns.changes (zone_id, number, from_serial, to_serial, name, kind, old_ttl, old_rdata, new_ttl, new_rdata) \
        SELECT $1, $11 + ordinality, $2, $3, name, kind, old_ttl, old_rdata, new_ttl, new_rdata FROM edits \
        WHERE cardinality($4) <= $12), \
    forgotten AS (DELETE FROM dns.changes WHERE zone_id = $1 AND number <= $11 + cardinality($4) - $12) \
    UPDATE dns.zones \
    SET serial = $3, last_change_number = $11 + cardinality($4), rrset_count = rrset_count + $13, \
        signer_check_at = CASE WHEN dnssec_state <> 'off' AND signer_check_at IS NOT NULL \
            THEN least(signer_check_at, $14) ELSE signer_check_at END \
    WHERE id = $1";

impl RrsetRepository for Connection {
    async fn rrset_list(&mut self, zone: ZoneId) -> Result<Vec<StoredSet>> {
        let all = rrsets::table.filter(rrsets::zone_id.eq(zone)).order((rrsets::name, rrsets::kind));
        let rows: Vec<RrsetRow> = all.select(RrsetRow::as_select()).load(self).await?;
        rows.into_iter().map(StoredSet::try_from).collect()
    }

    async fn rrset_at(&mut self, zone: ZoneId, owners: &[&str]) -> Result<Vec<StoredSet>> {
        let some = rrsets::table.filter(rrsets::zone_id.eq(zone)).filter(rrsets::name.eq_any(owners));
        let rows: Vec<RrsetRow> = some.select(RrsetRow::as_select()).load(self).await?;
        rows.into_iter().map(StoredSet::try_from).collect()
    }

    async fn rrset_apply(&mut self, update: ZoneUpdate<'_>) -> Result<()> {
        let ZoneUpdate { zone, serial, edits, max_journal_entries: keep, signer_check_at } = update;
        let ttl = |content: &Option<Content>| content.as_ref().map(|(ttl, ..)| ttl.cast_signed());
        let rdata = |content: &Option<Content>| content.as_ref().map(|(_, records, _)| pack(records));
        let column = |of: &dyn Fn(&Edit) -> Option<i32>| edits.iter().map(of).collect::<Vec<_>>();
        let data = |of: &dyn Fn(&Edit) -> Option<Vec<u8>>| edits.iter().map(of).collect::<Vec<_>>();
        let added_rrsets: i32 =
            edits.iter().map(|edit| i32::from(edit.new.is_some()) - i32::from(edit.old.is_some())).sum();
        let apply = diesel::sql_query(APPLY)
            .bind::<Uuid, _>(zone.id)
            .bind::<BigInt, _>(i64::from(zone.serial))
            .bind::<BigInt, _>(i64::from(serial))
            .bind::<Array<Text>, _>(edits.iter().map(|edit| edit.owner.as_str()).collect::<Vec<_>>())
            .bind::<Array<Text>, _>(edits.iter().map(|edit| edit.kind.as_str()).collect::<Vec<_>>())
            .bind::<Array<Nullable<Integer>>, _>(column(&|edit| ttl(&edit.old)))
            .bind::<Array<Nullable<Binary>>, _>(data(&|edit| rdata(&edit.old)))
            .bind::<Array<Nullable<Integer>>, _>(column(&|edit| ttl(&edit.new)))
            .bind::<Array<Nullable<Binary>>, _>(data(&|edit| rdata(&edit.new)))
            .bind::<Array<Nullable<Text>>, _>(
                edits
                    .iter()
                    .map(|edit| edit.new.as_ref().and_then(|(.., by)| by.as_ref()).map(ManagedBy::as_str))
                    .collect::<Vec<_>>(),
            )
            .bind::<BigInt, _>(zone.last_change_number)
            .bind::<BigInt, _>(keep)
            .bind::<Integer, _>(added_rrsets)
            .bind::<Timestamptz, _>(signer_check_at);
        match Prepared(apply).execute(self).await? {
            1 => Ok(()),
            _ => Err(Error::inconsistent("a locked zone does not exist")),
        }
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
