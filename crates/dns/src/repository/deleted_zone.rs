//! Deleted zones, whose delegations may still name the platform's nameservers.

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Timestamptz, Uuid};
use diesel::upsert::excluded;
use diesel_async::RunQueryDsl;
use kernel::{OrgId, Time, ZoneId};
use store::{Connection, Prepared, Result};

use super::column::serial;
use super::zone::{ZoneRecord, path, path_range, with_parents};
use crate::ZoneName;
use crate::schema::deleted_zones;

/// A deleted zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedZone {
    /// The id of the zone. A zone that is created again with the same name has another id.
    pub id: ZoneId,
    pub name: ZoneName,
}

/// Deleted zones on a [`store::Connection`].
pub trait DeletedZoneRepository {
    /// Stores a zone as deleted, in the transaction that deletes it. `serial` is newer than all serials of the zone.
    /// Keeps the newest `limit` deleted zones of the organization.
    async fn deleted_zone_insert(
        &mut self,
        org: OrgId,
        zone: &ZoneRecord,
        serial: u32,
        deleted_at: Time,
        next_check_at: Time,
        limit: i64,
    ) -> Result<()>;

    /// Removes the deleted zone of this name, in the transaction that creates the zone again. Returns the stored serial.
    async fn deleted_zone_purge(&mut self, name: &ZoneName) -> Result<Option<u32>>;

    /// Returns the deleted zones of other organizations that have this name, enclose it or are below it, sorted by
    /// path. Omits those that were deleted after `until`, if given. If the caller holds the catalog lock, the result is
    /// valid until the transaction ends.
    async fn deleted_zones_related(
        &mut self,
        org: OrgId,
        name: &ZoneName,
        until: Option<Time>,
        limit: i64,
    ) -> Result<Vec<DeletedZone>>;

    /// Leases deleted zones whose delegations are due for a check. They are due again at `leased_until`.
    async fn deleted_zones_lease(&mut self, now: Time, leased_until: Time, limit: i64) -> Result<Vec<DeletedZone>>;

    /// Removes these deleted zones. Skips those that other transactions have locked.
    async fn deleted_zones_purge(&mut self, zones: &[ZoneId]) -> Result<()>;
}

#[derive(Queryable, Selectable, QueryableByName)]
#[diesel(table_name = deleted_zones)]
struct DeletedZoneRow {
    id: ZoneId,
    name: String,
}

const DELETE_OLDEST: &str = "\
    DELETE FROM dns.deleted_zones WHERE id = ANY (ARRAY( \
        SELECT id FROM dns.deleted_zones WHERE org_id = $1 ORDER BY deleted_at DESC, id DESC OFFSET $2))";

/// Uses `ARRAY(…)`, so that Postgres evaluates the limit once.
const LEASE_DUE: &str = "\
    UPDATE dns.deleted_zones SET next_check_at = $2 WHERE id = ANY (ARRAY( \
        SELECT id FROM dns.deleted_zones WHERE next_check_at <= $1 \
        ORDER BY next_check_at LIMIT $3 FOR UPDATE SKIP LOCKED)) \
    RETURNING id, name";

/// Skips locked rows, so that it cannot deadlock with `DELETE_OLDEST`.
const PURGE: &str = "\
    DELETE FROM dns.deleted_zones WHERE id = ANY (ARRAY( \
        SELECT id FROM dns.deleted_zones WHERE id = ANY ($1) FOR UPDATE SKIP LOCKED))";

impl DeletedZoneRepository for Connection {
    async fn deleted_zone_insert(
        &mut self,
        org: OrgId,
        zone: &ZoneRecord,
        serial: u32,
        deleted_at: Time,
        next_check_at: Time,
        limit: i64,
    ) -> Result<()> {
        let row = (
            deleted_zones::id.eq(zone.id),
            deleted_zones::name.eq(zone.name.as_str()),
            deleted_zones::path.eq(path(&zone.name)),
            deleted_zones::org_id.eq(org),
            deleted_zones::serial.eq(i64::from(serial)),
            deleted_zones::deleted_at.eq(deleted_at),
            deleted_zones::next_check_at.eq(next_check_at),
        );
        let insert = diesel::insert_into(deleted_zones::table).values(row);
        let insert = insert.on_conflict(deleted_zones::name).do_update().set((
            deleted_zones::id.eq(excluded(deleted_zones::id)),
            deleted_zones::org_id.eq(excluded(deleted_zones::org_id)),
            deleted_zones::serial.eq(excluded(deleted_zones::serial)),
            deleted_zones::deleted_at.eq(excluded(deleted_zones::deleted_at)),
            deleted_zones::next_check_at.eq(excluded(deleted_zones::next_check_at)),
        ));
        Prepared(insert).execute(self).await?;
        let evict = diesel::sql_query(DELETE_OLDEST).bind::<Uuid, _>(org).bind::<BigInt, _>(limit);
        Prepared(evict).execute(self).await?;
        Ok(())
    }

    async fn deleted_zone_purge(&mut self, name: &ZoneName) -> Result<Option<u32>> {
        let same = deleted_zones::table.filter(deleted_zones::name.eq(name.as_str()));
        let deleted: QueryResult<i64> = diesel::delete(same).returning(deleted_zones::serial).get_result(self).await;
        deleted.optional()?.map(serial).transpose()
    }

    async fn deleted_zones_related(
        &mut self,
        org: OrgId,
        name: &ZoneName,
        until: Option<Time>,
        limit: i64,
    ) -> Result<Vec<DeletedZone>> {
        let (first, end) = path_range(name);
        let below = deleted_zones::path.ge(first).and(deleted_zones::path.lt(end));
        let related = deleted_zones::name.eq_any(with_parents(name.as_str())).or(below);
        let found = deleted_zones::table.filter(deleted_zones::org_id.ne(org)).filter(related);
        let found = found.order(deleted_zones::path).limit(limit).select(DeletedZoneRow::as_select());
        let mut found = found.into_boxed();
        if let Some(until) = until {
            found = found.filter(deleted_zones::deleted_at.lt(until));
        }
        let rows: Vec<DeletedZoneRow> = found.load(self).await?;
        Ok(rows.into_iter().map(DeletedZone::from).collect())
    }

    async fn deleted_zones_lease(&mut self, now: Time, leased_until: Time, limit: i64) -> Result<Vec<DeletedZone>> {
        let lease = diesel::sql_query(LEASE_DUE);
        let lease = lease.bind::<Timestamptz, _>(now).bind::<Timestamptz, _>(leased_until).bind::<BigInt, _>(limit);
        let rows: Vec<DeletedZoneRow> = Prepared(lease).load(self).await?;
        Ok(rows.into_iter().map(DeletedZone::from).collect())
    }

    async fn deleted_zones_purge(&mut self, zones: &[ZoneId]) -> Result<()> {
        if !zones.is_empty() {
            let purge = diesel::sql_query(PURGE).bind::<Array<Uuid>, _>(zones);
            Prepared(purge).execute(self).await?;
        }
        Ok(())
    }
}

impl From<DeletedZoneRow> for DeletedZone {
    fn from(row: DeletedZoneRow) -> Self {
        let DeletedZoneRow { id, name } = row;
        Self { id, name: ZoneName::new_unchecked(name) }
    }
}
