//! Zones.

use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_async::RunQueryDsl;
use kernel::ownership::ZoneProof;
use kernel::{OrgId, Paging, Time, ZoneId};
use store::{Connection, Error, Prepared, Result, any_of};

use super::column::{from_json, serial, to_json};
use super::rdata::pack;
use crate::model::{DnssecState, Ds, ManagedBy, SignerView};
use crate::schema::{changes, purges, rrsets, zone_counts, zones};
use crate::{OwnerName, Rdata, RecordType, ZoneName};

/// A row of `dns.zones`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneRecord {
    pub id: ZoneId,
    /// The organization. `None` only for the catalog.
    pub org: Option<OrgId>,
    pub name: ZoneName,
    pub serial: u32,
    /// The number of stored rrsets. The SOA is not stored.
    pub rrset_count: u32,
    /// The bytes of the stored rrsets: their names, as text relative to the zone, and their data in the column format.
    pub bytes: u64,
    /// The number of the last journal entry.
    pub last_change_number: i64,
    /// The bytes of the data in the journal.
    pub journal_bytes: u64,
    pub dnssec: DnssecState,
    pub ds: Vec<Ds>,
    /// The DS records that the signer requested when the service last recorded them. Empty if it has not recorded any
    /// since DNSSEC was switched.
    pub cds: Vec<Ds>,
    /// Whether the zone stays signed although DNSSEC is off, until no resolver has a DS record of it.
    pub is_unsigning: bool,
    /// The last time at which the service began to remove a DS record from the registry, or stopped adding one.
    /// Resolvers may have such a record for two days afterwards.
    pub ds_removed_at: Option<Time>,
    pub signer: Option<SignerView>,
    pub created_at: Time,
}

impl ZoneRecord {
    /// Returns the serial of the next change.
    pub(crate) fn next_serial(&self, now: Time) -> u32 {
        crate::serial::next(now, self.serial, self.signer.as_ref().and_then(|view| view.serial))
    }
}

/// A zone of another organization that overlaps with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldZone {
    pub id: ZoneId,
    pub org: OrgId,
    pub name: ZoneName,
    pub created_at: Time,
}

/// Zones on a [`store::Connection`].
pub trait ZoneRepository {
    /// Returns the zones of an organization, sorted by name.
    async fn zone_list(
        &mut self,
        org: OrgId,
        zone_ids: Option<&[ZoneId]>,
        paging: &Paging<String>,
    ) -> Result<Vec<ZoneRecord>>;

    /// Returns one zone of an organization.
    async fn zone_find(&mut self, org: OrgId, name: &ZoneName) -> Result<Option<ZoneRecord>>;

    /// Returns the organization of a zone.
    async fn zone_org(&mut self, name: &ZoneName) -> Result<Option<OrgId>>;

    /// Locks one zone of an organization until the transaction ends, and returns it.
    async fn zone_lock(&mut self, org: OrgId, name: &ZoneName) -> Result<Option<ZoneRecord>>;

    /// Returns a zone.
    async fn zone_get(&mut self, zone: ZoneId) -> Result<Option<ZoneRecord>>;

    /// Locks a zone until the transaction ends, and returns it.
    async fn zone_lock_by_id(&mut self, zone: ZoneId) -> Result<Option<ZoneRecord>>;

    /// Locks a zone, like [`Self::zone_lock`], without waiting. Returns `None` if another transaction has locked it.
    async fn zone_try_lock(&mut self, org: OrgId, name: &ZoneName) -> Result<Option<ZoneRecord>>;

    /// Lets the transaction wait for locks until its statement times out, instead of until the lock timeout.
    async fn wait_longer_for_locks(&mut self) -> Result<()>;

    /// Ends the effect of [`Self::wait_longer_for_locks`].
    async fn reset_lock_timeout(&mut self) -> Result<()>;

    /// Locks the catalog until the transaction ends, and returns it. Transactions lock a zone before the zones below
    /// it, and zones before the catalog. With the catalog locked, they lock zones only with [`Self::zone_try_lock`]: a
    /// tenant can hold the lock of its zone, and all other tenants would wait for the catalog.
    async fn catalog_lock(&mut self) -> Result<ZoneRecord>;

    /// Returns the zones of other organizations that have this name, enclose it or are below it, and that the proof does
    /// not cover, sorted by path. If the caller holds the catalog lock, the result is valid until the transaction ends.
    async fn zones_overlapping(
        &mut self,
        org: OrgId,
        name: &ZoneName,
        proof: &ZoneProof,
        limit: i64,
    ) -> Result<Vec<HeldZone>>;

    /// Returns the number of an organization's zones. If the caller holds the catalog lock, the number is valid until
    /// the transaction ends.
    async fn zone_count(&mut self, org: OrgId) -> Result<i64>;

    /// Returns the number of the last change of a zone. Returns `None` if the zone does not exist.
    async fn zone_last_change(&mut self, zone: ZoneId) -> Result<Option<i64>>;

    /// Returns the most specific zone that contains a name, if it belongs to the organization.
    async fn zone_enclosing(&mut self, org: OrgId, name: &str) -> Result<Option<(ZoneId, ZoneName)>>;

    /// Returns the organization's zones that contain a name, the least specific one first: the order in which transactions
    /// lock zones.
    async fn zones_enclosing(&mut self, org: OrgId, name: &str) -> Result<Vec<ZoneName>>;

    /// Returns the organization's zones below a name, sorted by path. If the caller holds the catalog lock, the result
    /// is valid until the transaction ends.
    async fn zones_below(&mut self, org: OrgId, name: &ZoneName) -> Result<Vec<ZoneName>>;

    /// Writes a new zone, without rrsets.
    async fn zone_insert(&mut self, org: OrgId, zone: &ZoneRecord) -> Result<()>;

    /// Deletes a zone. Its rrsets and its journal stay until [`Self::zone_purge_batch`] deletes them.
    async fn zone_delete(&mut self, zone: ZoneId) -> Result<()>;

    /// Deletes a batch of the rrsets and the journal of a deleted zone. Returns false if no deleted zone has any left,
    /// except those that other transactions purge.
    async fn zone_purge_batch(&mut self) -> Result<bool>;

    /// Raises a zone's serial and clears its journal, so that nameservers transfer the whole zone.
    async fn zone_raise_serial(&mut self, zone: ZoneId, serial: u32) -> Result<()>;

    /// Stores the DNSSEC state of a zone with everything that depends on it, and sets the time of the next signer
    /// check.
    async fn zone_set_dnssec(&mut self, zone: &ZoneRecord, signer_check_at: Time) -> Result<()>;

    /// Stores the time at which the removal of a DS record begins.
    async fn zone_set_ds_removed(&mut self, zone: ZoneId, now: Time) -> Result<()>;

    /// Returns the zones with ids greater than `after`, in ascending order, with their organizations. Excludes the
    /// catalog.
    async fn zones_after(&mut self, after: Option<ZoneId>, limit: i64) -> Result<Vec<(ZoneId, OrgId)>>;

    /// Returns those of the zones whose managed apex NS rrset differs from these records.
    async fn zones_with_stale_nameservers(&mut self, zones: &[ZoneId], nameservers: &[Rdata]) -> Result<Vec<ZoneId>>;
}

/// The maximum number of rrsets, and of journal entries, in one statement of [`ZoneRepository::zone_purge_batch`].
const MAX_PURGED_ROWS: i64 = 10_000;

/// Returns the number of deleted zones to purge: one, or none. Sorts by the keys, so that Postgres reads the rows from
/// their index. A purge is complete when the batch selects fewer rows than the limit. The number of deleted rows does not
/// show this, because another process can delete rows after the snapshot of this statement.
const PURGE_BATCH: &str = "\
    WITH purge AS (SELECT zone_id FROM dns.purges ORDER BY zone_id LIMIT 1 FOR UPDATE SKIP LOCKED), \
    sets AS ( \
        SELECT ctid FROM dns.rrsets WHERE zone_id = (SELECT zone_id FROM purge) \
        ORDER BY zone_id, sort_key, kind LIMIT $1), \
    entries AS ( \
        SELECT ctid FROM dns.changes WHERE zone_id = (SELECT zone_id FROM purge) \
        ORDER BY zone_id, number LIMIT $1), \
    deleted_sets AS (DELETE FROM dns.rrsets WHERE ctid = ANY (ARRAY(SELECT ctid FROM sets))), \
    deleted_entries AS (DELETE FROM dns.changes WHERE ctid = ANY (ARRAY(SELECT ctid FROM entries))), \
    done AS ( \
        DELETE FROM dns.purges WHERE zone_id = (SELECT zone_id FROM purge) \
        AND (SELECT count(*) FROM sets) < $1 AND (SELECT count(*) FROM entries) < $1) \
    SELECT count(*) AS zones FROM purge";

/// The result of [`PURGE_BATCH`].
#[derive(QueryableByName)]
struct Purged {
    #[diesel(sql_type = BigInt)]
    zones: i64,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = zones)]
pub(super) struct ZoneRow {
    id: ZoneId,
    org_id: Option<OrgId>,
    name: String,
    serial: i64,
    rrset_count: i32,
    bytes: i64,
    last_change_number: i64,
    journal_bytes: i64,
    dnssec_state: DnssecState,
    ds: serde_json::Value,
    cds: serde_json::Value,
    is_unsigning: bool,
    ds_removed_at: Option<Time>,
    signer: Option<serde_json::Value>,
    created_at: Time,
}

#[derive(Insertable)]
#[diesel(table_name = zones)]
struct NewRow<'a> {
    id: ZoneId,
    org_id: OrgId,
    name: &'a str,
    path: String,
    serial: i64,
    rrset_count: i32,
    bytes: i64,
    last_change_number: i64,
    journal_bytes: i64,
    dnssec_state: DnssecState,
    ds: serde_json::Value,
    created_at: Time,
}

impl ZoneRepository for Connection {
    async fn zone_list(
        &mut self,
        org: OrgId,
        zone_ids: Option<&[ZoneId]>,
        paging: &Paging<String>,
    ) -> Result<Vec<ZoneRecord>> {
        let all = zones::table.filter(zones::org_id.eq_any(any_of(org)));
        let page = all.order((zones::org_id, zones::name)).limit(paging.fetch()).select(ZoneRow::as_select());
        let mut page = page.into_boxed();
        if let Some(zone_ids) = zone_ids {
            page = page.filter(zones::id.eq_any(zone_ids));
        }
        if let Some(after) = &paging.after {
            page = page.filter(zones::name.gt(after));
        }
        let rows: Vec<ZoneRow> = page.load(self).await?;
        rows.into_iter().map(ZoneRecord::try_from).collect()
    }

    async fn zone_find(&mut self, org: OrgId, name: &ZoneName) -> Result<Option<ZoneRecord>> {
        read_row(zone_of_org(org, name.as_str()).select(ZoneRow::as_select()).first(self).await)
    }

    async fn zone_org(&mut self, name: &ZoneName) -> Result<Option<OrgId>> {
        let org = zones::table.filter(zones::name.eq(name.as_str())).select(zones::org_id).first(self).await;
        Ok(org.optional()?.flatten())
    }

    async fn zone_lock(&mut self, org: OrgId, name: &ZoneName) -> Result<Option<ZoneRecord>> {
        read_row(zone_of_org(org, name.as_str()).select(ZoneRow::as_select()).for_update().first(self).await)
    }

    async fn zone_get(&mut self, zone: ZoneId) -> Result<Option<ZoneRecord>> {
        read_row(zones::table.find(zone).select(ZoneRow::as_select()).first(self).await)
    }

    async fn zone_lock_by_id(&mut self, zone: ZoneId) -> Result<Option<ZoneRecord>> {
        read_row(zones::table.find(zone).select(ZoneRow::as_select()).for_update().first(self).await)
    }

    async fn zone_try_lock(&mut self, org: OrgId, name: &ZoneName) -> Result<Option<ZoneRecord>> {
        let one = zone_of_org(org, name.as_str()).select(ZoneRow::as_select());
        read_row(one.for_update().skip_locked().first(self).await)
    }

    async fn wait_longer_for_locks(&mut self) -> Result<()> {
        Prepared(diesel::sql_query("SET LOCAL lock_timeout = 0")).execute(self).await?;
        Ok(())
    }

    async fn reset_lock_timeout(&mut self) -> Result<()> {
        Prepared(diesel::sql_query("SET LOCAL lock_timeout TO DEFAULT")).execute(self).await?;
        Ok(())
    }

    async fn catalog_lock(&mut self) -> Result<ZoneRecord> {
        let one = zones::table.filter(zones::org_id.is_null()).select(ZoneRow::as_select()).for_update();
        one.first::<ZoneRow>(self).await?.try_into()
    }

    async fn zones_overlapping(
        &mut self,
        org: OrgId,
        name: &ZoneName,
        proof: &ZoneProof,
        limit: i64,
    ) -> Result<Vec<HeldZone>> {
        let (first, end) = path_range(name);
        let below = zones::path.ge(first).and(zones::path.lt(end));
        let related = zones::name.eq_any(with_parents(name.as_str())).or(below);
        let other_orgs = zones::table.filter(zones::org_id.is_not_null()).filter(zones::org_id.ne(org)).filter(related);
        let rest = other_orgs.filter(zones::id.ne_all(&proof.checked)).order(zones::path).limit(limit);
        let columns = (zones::id, zones::org_id.assume_not_null(), zones::name, zones::created_at);
        let mut rest = rest.select(columns).into_boxed();
        if let Some(at) = proof.at {
            rest = rest.filter(zones::created_at.lt(at));
        }
        let rows: Vec<(ZoneId, OrgId, String, Time)> = rest.load(self).await?;
        let held = |(id, org, name, created_at)| HeldZone { id, org, name: ZoneName::new_unchecked(name), created_at };
        Ok(rows.into_iter().map(held).collect())
    }

    async fn zone_count(&mut self, org: OrgId) -> Result<i64> {
        let count = zone_counts::table.find(org).select(zone_counts::zones).first(self).await.optional()?;
        Ok(count.unwrap_or(0))
    }

    async fn zone_last_change(&mut self, zone: ZoneId) -> Result<Option<i64>> {
        Ok(zones::table.find(zone).select(zones::last_change_number).first(self).await.optional()?)
    }

    async fn zone_enclosing(&mut self, org: OrgId, name: &str) -> Result<Option<(ZoneId, ZoneName)>> {
        let found = zones::table.filter(zones::org_id.is_not_null()).filter(zones::name.eq_any(with_parents(name)));
        let found = found.select((zones::id, zones::name, zones::org_id.assume_not_null()));
        let zones: Vec<(ZoneId, String, OrgId)> = found.load(self).await?;
        let nearest = zones.into_iter().max_by_key(|(_, name, _)| name.len()).filter(|(.., owner)| *owner == org);
        Ok(nearest.map(|(id, name, _)| (id, ZoneName::new_unchecked(name))))
    }

    async fn zones_enclosing(&mut self, org: OrgId, name: &str) -> Result<Vec<ZoneName>> {
        let found = zones::table.filter(zones::org_id.eq(org)).filter(zones::name.eq_any(with_parents(name)));
        let mut names: Vec<String> = found.select(zones::name).load(self).await?;
        names.sort_unstable_by_key(String::len);
        Ok(names.into_iter().map(ZoneName::new_unchecked).collect())
    }

    async fn zones_below(&mut self, org: OrgId, name: &ZoneName) -> Result<Vec<ZoneName>> {
        let (first, end) = path_range(name);
        let below = zones::table.filter(zones::org_id.eq(org)).filter(zones::path.gt(first).and(zones::path.lt(end)));
        let names: Vec<String> = below.order(zones::path).select(zones::name).load(self).await?;
        Ok(names.into_iter().map(ZoneName::new_unchecked).collect())
    }

    async fn zone_insert(&mut self, org: OrgId, zone: &ZoneRecord) -> Result<()> {
        let row = NewRow {
            id: zone.id,
            org_id: org,
            name: zone.name.as_str(),
            path: path(&zone.name),
            serial: zone.serial.into(),
            rrset_count: zone.rrset_count.cast_signed(),
            bytes: zone.bytes.cast_signed(),
            last_change_number: zone.last_change_number,
            journal_bytes: zone.journal_bytes.cast_signed(),
            dnssec_state: zone.dnssec,
            ds: to_json(&zone.ds)?,
            created_at: zone.created_at,
        };
        diesel::insert_into(zones::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn zone_delete(&mut self, zone: ZoneId) -> Result<()> {
        diesel::delete(zones::table.find(zone)).execute(self).await?;
        diesel::insert_into(purges::table).values(purges::zone_id.eq(zone)).execute(self).await?;
        Ok(())
    }

    async fn zone_purge_batch(&mut self) -> Result<bool> {
        let purge = diesel::sql_query(PURGE_BATCH).bind::<BigInt, _>(MAX_PURGED_ROWS);
        let Purged { zones } = Prepared(purge).get_result(self).await?;
        Ok(zones > 0)
    }

    async fn zone_raise_serial(&mut self, zone: ZoneId, serial: u32) -> Result<()> {
        diesel::delete(changes::table.filter(changes::zone_id.eq(zone))).execute(self).await?;
        let cleared = (zones::serial.eq(i64::from(serial)), zones::journal_bytes.eq(0));
        let raise = diesel::update(zones::table.find(zone)).set(cleared);
        Prepared(raise).execute(self).await?;
        Ok(())
    }

    async fn zone_set_dnssec(&mut self, zone: &ZoneRecord, signer_check_at: Time) -> Result<()> {
        let set = (
            zones::dnssec_state.eq(zone.dnssec),
            zones::ds.eq(to_json(&zone.ds)?),
            zones::cds.eq(to_json(&zone.cds)?),
            zones::is_unsigning.eq(zone.is_unsigning),
            zones::ds_removed_at.eq(zone.ds_removed_at),
            zones::signer_check_at.eq(signer_check_at),
        );
        Prepared(diesel::update(zones::table.find(zone.id)).set(set)).execute(self).await?;
        Ok(())
    }

    async fn zone_set_ds_removed(&mut self, zone: ZoneId, now: Time) -> Result<()> {
        let set = zones::ds_removed_at.eq(now);
        Prepared(diesel::update(zones::table.find(zone)).set(set)).execute(self).await?;
        Ok(())
    }

    async fn zones_after(&mut self, after: Option<ZoneId>, limit: i64) -> Result<Vec<(ZoneId, OrgId)>> {
        let after = after.unwrap_or(ZoneId::earliest_at(Time::UNIX_EPOCH));
        let query = zones::table.filter(zones::id.gt(after).and(zones::org_id.is_not_null())).order(zones::id);
        Ok(query.limit(limit).select((zones::id, zones::org_id.assume_not_null())).load(self).await?)
    }

    async fn zones_with_stale_nameservers(&mut self, zones: &[ZoneId], nameservers: &[Rdata]) -> Result<Vec<ZoneId>> {
        let apex = rrsets::sort_key.eq(OwnerName::apex().canonical_key()).and(rrsets::kind.eq(RecordType::Ns.as_str()));
        let managed = rrsets::managed_by.eq(ManagedBy::System.as_str());
        let other = rrsets::rdata.ne(pack(nameservers));
        let stale = rrsets::table.filter(rrsets::zone_id.eq_any(zones)).filter(apex.and(managed).and(other));
        Ok(stale.select(rrsets::zone_id).load(self).await?)
    }
}

/// Returns the organization's zone of this name.
#[diesel::dsl::auto_type(no_type_alias)]
fn zone_of_org<'a>(org: OrgId, name: &'a str) -> _ {
    zones::table.filter(zones::name.eq(name)).filter(zones::org_id.eq(org))
}

pub(super) fn read_row<T: TryFrom<ZoneRow, Error = Error>>(found: QueryResult<ZoneRow>) -> Result<Option<T>> {
    found.optional()?.map(T::try_from).transpose()
}

/// Returns the name and all its parent names.
pub(super) fn with_parents(name: &str) -> Vec<&str> {
    std::iter::successors(Some(name), |name| name.split_once('.').map(|(_, rest)| rest)).collect()
}

/// Returns the labels from the root down, each followed by a dot.
pub(super) fn path(name: &ZoneName) -> String {
    name.as_str().rsplit('.').flat_map(|label| [label, "."]).collect()
}

/// Returns the range of the paths of a name and of the names below it. The end is exclusive: it ends in `/`, the
/// character after the dot.
pub(super) fn path_range(name: &ZoneName) -> (String, String) {
    let first = path(name);
    let end = format!("{}/", first.trim_end_matches('.'));
    (first, end)
}

impl TryFrom<ZoneRow> for ZoneRecord {
    type Error = Error;

    fn try_from(row: ZoneRow) -> Result<Self> {
        Ok(Self {
            id: row.id,
            org: row.org_id,
            name: ZoneName::new_unchecked(row.name),
            serial: serial(row.serial)?,
            rrset_count: row.rrset_count.cast_unsigned(),
            bytes: row.bytes.cast_unsigned(),
            last_change_number: row.last_change_number,
            journal_bytes: row.journal_bytes.cast_unsigned(),
            dnssec: row.dnssec_state,
            ds: from_json(row.ds)?,
            cds: from_json(row.cds)?,
            is_unsigning: row.is_unsigning,
            ds_removed_at: row.ds_removed_at,
            signer: row.signer.map(from_json).transpose()?,
            created_at: row.created_at,
        })
    }
}
