//! Zones.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{OrgId, Paging, Time, ZoneId};
use store::{Cached, Connection, Error, Result, of};

use super::column::{json, read, serial};
use super::rdata::pack;
use crate::model::{DnssecState, Ds, ManagedBy, SignerView};
use crate::schema::{changes, rrsets, zones};
use crate::{OwnerName, Rdata, RecordType, ZoneName};

/// A zone's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneRecord {
    pub id: ZoneId,
    pub name: ZoneName,
    pub serial: u32,
    /// Of the stored rrsets: the SOA is none of them.
    pub rrset_count: u32,
    /// The number of the journal's last entry.
    pub last_change: i64,
    pub dnssec: DnssecState,
    pub ds: Vec<Ds>,
    pub signer: Option<SignerView>,
    pub created_at: Time,
}

impl ZoneRecord {
    /// The serial of the next change.
    pub(crate) fn next_serial(&self, now: Time) -> u32 {
        crate::serial::next(now, self.serial, self.signer.as_ref().and_then(|view| view.serial))
    }
}

/// Zones on a [`store::Connection`].
pub trait ZoneRepository {
    /// The zones of an organization, by name.
    async fn zone_list(
        &mut self,
        org: OrgId,
        only: Option<&[ZoneId]>,
        paging: &Paging<String>,
    ) -> Result<Vec<ZoneRecord>>;

    /// One zone of an organization.
    async fn zone_find(&mut self, org: OrgId, name: &ZoneName) -> Result<Option<ZoneRecord>>;

    /// One zone of an organization, locked until the transaction ends.
    async fn zone_lock(&mut self, org: OrgId, name: &ZoneName) -> Result<Option<ZoneRecord>>;

    /// A zone, locked until the transaction ends.
    async fn zone_lock_by_id(&mut self, zone: ZoneId) -> Result<Option<ZoneRecord>>;

    /// The catalog, locked until the transaction ends. Who locks it and zones locks it first.
    async fn catalog_lock(&mut self) -> Result<ZoneRecord>;

    /// Whether a zone of another organization is this one, over it or in it; meaningful under the catalog's lock alone.
    async fn zone_overlaps(&mut self, org: OrgId, name: &ZoneName) -> Result<bool>;

    /// The organization's zones that a name lies in, the nearest one first.
    async fn zones_over(&mut self, org: OrgId, name: &str) -> Result<Vec<ZoneName>>;

    /// Writes a new zone, without rrsets.
    async fn zone_insert(&mut self, org: OrgId, zone: &ZoneRecord) -> Result<()>;

    /// Deletes a zone and everything in it.
    async fn zone_delete(&mut self, zone: ZoneId) -> Result<()>;

    /// Raises a zone's serial without changing anything in it; what nameservers transfer next is the whole of it.
    async fn zone_raise(&mut self, zone: ZoneId, serial: u32) -> Result<()>;

    /// Writes how far the signing is, and when to look at the signer next.
    async fn zone_set_dnssec(
        &mut self,
        zone: ZoneId,
        state: DnssecState,
        ds: &[Ds],
        look_at: Option<Time>,
    ) -> Result<()>;

    /// Some zones whose apex NS rrset is not this one, with their organizations; the catalog is none of them.
    async fn zones_apart(&mut self, nameservers: &[Rdata], most: i64) -> Result<Vec<(ZoneId, OrgId)>>;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = zones)]
pub(super) struct ZoneRow {
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

impl ZoneRepository for Connection {
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

    async fn zones_apart(&mut self, nameservers: &[Rdata], most: i64) -> Result<Vec<(ZoneId, OrgId)>> {
        let apex = rrsets::name.eq(OwnerName::apex().as_str().to_owned()).and(rrsets::kind.eq(RecordType::Ns.as_str()));
        let managed = rrsets::managed_by.eq(ManagedBy::System.as_str());
        let other = rrsets::rdata.ne(pack(nameservers));
        let found = zones::table.inner_join(rrsets::table).filter(zones::org_id.is_not_null());
        let found = found.filter(apex.and(managed).and(other)).order(zones::id).limit(most);
        Ok(found.select((zones::id, zones::org_id.assume_not_null())).load(self).await?)
    }
}

/// The organization's zone of this name.
#[diesel::dsl::auto_type(no_type_alias)]
fn of_org<'a>(org: OrgId, name: &'a str) -> _ {
    zones::table.filter(zones::name.eq(name)).filter(zones::org_id.eq(org))
}

pub(super) fn read_row<T: TryFrom<ZoneRow, Error = Error>>(found: QueryResult<ZoneRow>) -> Result<Option<T>> {
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
