//! Rows of zones, and the verbs of the repository.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Timestamptz};
use diesel_async::RunQueryDsl;
use kernel::{OrgId, Paging, Time, ZoneId};
use store::{Cached, Connection, Error, Result, of};

use super::{rrset, served};
use crate::model::{DnssecState, Ds, ManagedBy, SignerView};
use crate::repository::{Change, DnsRepository, Looked, ServedZone, Step, StoredSet, ZoneRecord};
use crate::schema::{changes, rrsets, zones};
use crate::{OwnerName, Rdata, RecordSet, RecordType, ZoneName};

#[derive(Queryable, Selectable)]
#[diesel(table_name = zones)]
struct ZoneRow {
    id: ZoneId,
    name: String,
    serial: i64,
    rrset_count: i32,
    last_change: i64,
    dnssec_state: DnssecState,
    ds: serde_json::Value,
    signer: Option<serde_json::Value>,
    created_at: Time,
}

#[derive(QueryableByName)]
#[diesel(table_name = zones)]
struct LookedRow {
    id: ZoneId,
    org_id: Option<OrgId>,
    name: String,
    serial: i64,
    dnssec_state: DnssecState,
    ds: serde_json::Value,
    signer: Option<serde_json::Value>,
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
    last_change: i64,
    dnssec_state: DnssecState,
    ds: serde_json::Value,
    created_at: Time,
}

/// `ARRAY(…)`, so that the limit is taken once.
const LOOKS_DUE: &str = "\
    UPDATE dns.zones SET look_at = $2 WHERE id = ANY (ARRAY( \
        SELECT id FROM dns.zones WHERE look_at <= $1 ORDER BY look_at LIMIT $3 FOR UPDATE SKIP LOCKED)) \
    RETURNING id, org_id, name, serial, dnssec_state, ds, signer";

impl DnsRepository for Connection {
    async fn zone_list(
        &mut self,
        org: OrgId,
        only: Option<&[ZoneId]>,
        paging: &Paging<String>,
    ) -> Result<Vec<ZoneRecord>> {
        let all = zones::table.filter(zones::org_id.eq_any(of(org)));
        let page = all.order((zones::org_id, zones::name)).limit(paging.fetch()).select(ZoneRow::as_select());
        let mut page = page.into_boxed();
        if let Some(only) = only {
            page = page.filter(zones::id.eq_any(only));
        }
        if let Some(after) = &paging.after {
            page = page.filter(zones::name.gt(after));
        }
        let rows: Vec<ZoneRow> = page.load(self).await?;
        rows.into_iter().map(ZoneRecord::try_from).collect()
    }

    async fn zone_find(&mut self, org: OrgId, name: &ZoneName) -> Result<Option<ZoneRecord>> {
        read_row(of_org(org, name.as_str()).select(ZoneRow::as_select()).first(self).await)
    }

    async fn zone_lock(&mut self, org: OrgId, name: &ZoneName) -> Result<Option<ZoneRecord>> {
        read_row(of_org(org, name.as_str()).select(ZoneRow::as_select()).for_update().first(self).await)
    }

    async fn zone_lock_by_id(&mut self, zone: ZoneId) -> Result<Option<ZoneRecord>> {
        read_row(zones::table.find(zone).select(ZoneRow::as_select()).for_update().first(self).await)
    }

    async fn catalog_lock(&mut self) -> Result<ZoneRecord> {
        let one = zones::table.filter(zones::org_id.is_null()).select(ZoneRow::as_select()).for_update();
        one.first::<ZoneRow>(self).await?.try_into()
    }

    async fn zone_overlaps(&mut self, org: OrgId, name: &ZoneName) -> Result<bool> {
        let path = path(name);
        // What begins with the path, and nothing else: the next character after the dot ends the range.
        let below = zones::path.ge(path.clone()).and(zones::path.lt(format!("{}/", path.trim_end_matches('.'))));
        let related = zones::name.eq_any(over(name.as_str())).or(below);
        let foreign = zones::table.filter(zones::org_id.is_not_null()).filter(zones::org_id.ne(org)).filter(related);
        Ok(diesel::select(diesel::dsl::exists(foreign)).get_result(self).await?)
    }

    async fn zones_over(&mut self, org: OrgId, name: &str) -> Result<Vec<ZoneName>> {
        let found = zones::table.filter(zones::org_id.eq(org)).filter(zones::name.eq_any(over(name)));
        let mut names: Vec<String> = found.select(zones::name).load(self).await?;
        names.sort_unstable_by_key(|name| std::cmp::Reverse(name.len()));
        Ok(names.into_iter().map(ZoneName::stored).collect())
    }

    async fn zone_insert(&mut self, org: OrgId, zone: &ZoneRecord) -> Result<()> {
        let row = NewRow {
            id: zone.id,
            org_id: org,
            name: zone.name.as_str(),
            path: path(&zone.name),
            serial: zone.serial.into(),
            rrset_count: zone.rrset_count.cast_signed(),
            last_change: zone.last_change,
            dnssec_state: zone.dnssec,
            ds: json(&zone.ds)?,
            created_at: zone.created_at,
        };
        diesel::insert_into(zones::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn zone_delete(&mut self, zone: ZoneId) -> Result<()> {
        diesel::delete(changes::table.filter(changes::zone_id.eq(zone))).execute(self).await?;
        diesel::delete(rrsets::table.filter(rrsets::zone_id.eq(zone))).execute(self).await?;
        diesel::delete(zones::table.find(zone)).execute(self).await?;
        Ok(())
    }

    async fn zone_raise(&mut self, zone: ZoneId, serial: u32) -> Result<()> {
        diesel::delete(changes::table.filter(changes::zone_id.eq(zone))).execute(self).await?;
        let raise = diesel::update(zones::table.find(zone)).set(zones::serial.eq(i64::from(serial)));
        Cached(raise).execute(self).await?;
        Ok(())
    }

    async fn zone_set_dnssec(
        &mut self,
        zone: ZoneId,
        state: DnssecState,
        ds: &[Ds],
        look_at: Option<Time>,
    ) -> Result<()> {
        let set = (zones::dnssec_state.eq(state), zones::ds.eq(json(ds)?), zones::look_at.eq(look_at));
        Cached(diesel::update(zones::table.find(zone)).set(set)).execute(self).await?;
        Ok(())
    }

    async fn rrset_list(&mut self, zone: ZoneId) -> Result<Vec<StoredSet>> {
        rrset::list(self, zone).await
    }

    async fn rrset_at(&mut self, zone: ZoneId, owners: &[&str]) -> Result<Vec<StoredSet>> {
        rrset::at(self, zone, owners).await
    }

    async fn rrset_apply(&mut self, step: Step<'_>) -> Result<()> {
        rrset::apply(self, step).await
    }

    async fn zones_apart(&mut self, nameservers: &[Rdata], most: i64) -> Result<Vec<(ZoneId, OrgId)>> {
        let apex = rrsets::name.eq(OwnerName::apex().as_str().to_owned()).and(rrsets::kind.eq(RecordType::Ns.as_str()));
        let managed = rrsets::managed_by.eq(ManagedBy::System.as_str());
        let other = rrsets::rdata.ne(super::rdata::pack(nameservers));
        let found = zones::table.inner_join(rrsets::table).filter(zones::org_id.is_not_null());
        let found = found.filter(apex.and(managed).and(other)).order(zones::id).limit(most);
        Ok(found.select((zones::id, zones::org_id.assume_not_null())).load(self).await?)
    }

    async fn looks_due(&mut self, now: Time, lease: Time, most: i64) -> Result<Vec<Looked>> {
        let take = diesel::sql_query(LOOKS_DUE);
        let take = take.bind::<Timestamptz, _>(now).bind::<Timestamptz, _>(lease).bind::<BigInt, _>(most);
        let rows: Vec<LookedRow> = Cached(take).load(self).await?;
        rows.into_iter().map(|row| row.looked(lease)).collect()
    }

    async fn look_note(&mut self, looked: &Looked, view: &SignerView, look_at: Option<Time>) -> Result<()> {
        let zone = zones::table.find(looked.id);
        Cached(diesel::update(zone).set(zones::signer.eq(json(view)?))).execute(self).await?;
        let leased = zone.filter(zones::look_at.eq(looked.lease));
        Cached(diesel::update(leased).set(zones::look_at.eq(look_at))).execute(self).await?;
        Ok(())
    }

    async fn served_find(&mut self, name: &str) -> Result<Option<ServedZone>> {
        let one = zones::table.filter(zones::name.eq(name)).filter(zones::org_id.is_not_null());
        read_row(one.select(ZoneRow::as_select()).first(self).await)
    }

    async fn served_catalog(&mut self) -> Result<ServedZone> {
        let one = zones::table.filter(zones::org_id.is_null()).select(ZoneRow::as_select());
        one.first::<ZoneRow>(self).await?.try_into()
    }

    async fn served_page(&mut self, zone: ZoneId, after: Option<(&str, &str)>, most: i64) -> Result<Vec<RecordSet>> {
        served::page(self, zone, after, most).await
    }

    async fn served_changes(&mut self, zone: ZoneId, from_serial: u32, most: i64) -> Result<Option<Vec<Change>>> {
        served::changes(self, zone, from_serial, most).await
    }
}

/// The organization's zone of this name.
#[diesel::dsl::auto_type(no_type_alias)]
fn of_org<'a>(org: OrgId, name: &'a str) -> _ {
    zones::table.filter(zones::name.eq(name)).filter(zones::org_id.eq(org))
}

fn read_row<T: TryFrom<ZoneRow, Error = Error>>(found: QueryResult<ZoneRow>) -> Result<Option<T>> {
    found.optional()?.map(T::try_from).transpose()
}

/// The name and every name over it.
fn over(name: &str) -> Vec<&str> {
    std::iter::successors(Some(name), |name| name.split_once('.').map(|(_, rest)| rest)).collect()
}

/// The labels from the root down, each followed by a dot.
fn path(name: &ZoneName) -> String {
    name.as_str().rsplit('.').flat_map(|label| [label, "."]).collect()
}

fn json<T: serde::Serialize + ?Sized>(value: &T) -> Result<serde_json::Value> {
    serde_json::to_value(value).map_err(Error::inconsistent)
}

fn read<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> Result<T> {
    serde_json::from_value(value).map_err(Error::inconsistent)
}

pub(super) fn serial(stored: i64) -> Result<u32> {
    stored.try_into().map_err(Error::inconsistent)
}

impl TryFrom<ZoneRow> for ZoneRecord {
    type Error = Error;

    fn try_from(row: ZoneRow) -> Result<Self> {
        Ok(Self {
            id: row.id,
            name: ZoneName::stored(row.name),
            serial: serial(row.serial)?,
            rrset_count: row.rrset_count.cast_unsigned(),
            last_change: row.last_change,
            dnssec: row.dnssec_state,
            ds: read(row.ds)?,
            signer: row.signer.map(read).transpose()?,
            created_at: row.created_at,
        })
    }
}

impl TryFrom<ZoneRow> for ServedZone {
    type Error = Error;

    fn try_from(row: ZoneRow) -> Result<Self> {
        let ZoneRecord { id, name, serial, rrset_count, .. } = row.try_into()?;
        Ok(Self { id, name, serial, rrset_count })
    }
}

impl LookedRow {
    fn looked(self, lease: Time) -> Result<Looked> {
        Ok(Looked {
            id: self.id,
            org: self.org_id.ok_or_else(|| Error::inconsistent("the catalog has no signer"))?,
            name: ZoneName::stored(self.name),
            serial: serial(self.serial)?,
            dnssec: self.dnssec_state,
            ds: read(self.ds)?,
            before: self.signer.map(read).transpose()?,
            lease,
        })
    }
}
