//! Reads for zone transfers.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::ZoneId;
use store::{Connection, Error, Result};

use super::column::serial;
use super::rdata::unpack;
use super::zone::{ZoneRecord, ZoneRow, read_row};
use crate::schema::{changes, zones};
use crate::{OwnerName, Rdata, RecordType, ZoneName};

/// A zone, reduced to what a transfer needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedZone {
    pub id: ZoneId,
    pub name: ZoneName,
    pub serial: u32,
    pub rrset_count: u32,
}

/// A journal entry. All entries of one update have the same serials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    pub from_serial: u32,
    pub to_serial: u32,
    pub owner: OwnerName,
    pub kind: RecordType,
    pub old: Option<(u32, Vec<Rdata>)>,
    pub new: Option<(u32, Vec<Rdata>)>,
}

/// Reads for zone transfers on a [`store::Connection`].
pub trait ServedRepository {
    /// Finds a zone by name.
    async fn served_find(&mut self, name: &str) -> Result<Option<ServedZone>>;

    /// Returns the catalog. Its name is a setting and is not stored.
    async fn served_catalog(&mut self) -> Result<ServedZone>;

    /// Returns the journal entries since a serial. Returns `None` if the journal does not reach back that far or has
    /// too many entries.
    async fn served_changes(&mut self, zone: ZoneId, from_serial: u32, limit: i64)
    -> Result<Option<Vec<JournalEntry>>>;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = changes)]
struct ChangeRow {
    from_serial: i64,
    to_serial: i64,
    name: String,
    kind: RecordType,
    old_ttl: Option<i32>,
    old_rdata: Option<Vec<u8>>,
    new_ttl: Option<i32>,
    new_rdata: Option<Vec<u8>>,
}

impl ServedRepository for Connection {
    async fn served_find(&mut self, name: &str) -> Result<Option<ServedZone>> {
        let one = zones::table.filter(zones::name.eq(name)).filter(zones::org_id.is_not_null());
        read_row(one.select(ZoneRow::as_select()).first(self).await)
    }

    async fn served_catalog(&mut self) -> Result<ServedZone> {
        let one = zones::table.filter(zones::org_id.is_null()).select(ZoneRow::as_select());
        one.first::<ZoneRow>(self).await?.try_into()
    }

    async fn served_changes(
        &mut self,
        zone: ZoneId,
        from_serial: u32,
        limit: i64,
    ) -> Result<Option<Vec<JournalEntry>>> {
        let journal = changes::table.filter(changes::zone_id.eq(zone));
        let first = journal.filter(changes::from_serial.eq(i64::from(from_serial)));
        let first: Option<i64> = first.select(changes::number).order(changes::number).first(self).await.optional()?;
        let Some(first) = first else { return Ok(None) };
        // The previous entry must belong to an earlier update. If it was purged, it may have belonged to the same
        // update, whose changes would then be incomplete.
        let before: Option<i64> =
            journal.filter(changes::number.eq(first - 1)).select(changes::to_serial).first(self).await.optional()?;
        if first > 1 && before != Some(from_serial.into()) {
            return Ok(None);
        }
        let rows = journal.filter(changes::number.ge(first)).order(changes::number).limit(limit + 1);
        let rows: Vec<ChangeRow> = rows.select(ChangeRow::as_select()).load(self).await?;
        if i64::try_from(rows.len()).is_ok_and(|rows| rows > limit) {
            return Ok(None);
        }
        rows.into_iter().map(JournalEntry::try_from).collect::<Result<_>>().map(Some)
    }
}

pub(super) fn content(ttl: Option<i32>, rdata: Option<Vec<u8>>) -> Result<Option<(u32, Vec<Rdata>)>> {
    match (ttl, rdata) {
        (Some(ttl), Some(rdata)) => Ok(Some((ttl.cast_unsigned(), unpack(&rdata)?))),
        (None, None) => Ok(None),
        _ => Err(Error::inconsistent("a journal entry has only one of TTL and data")),
    }
}

impl TryFrom<ChangeRow> for JournalEntry {
    type Error = Error;

    fn try_from(row: ChangeRow) -> Result<Self> {
        Ok(Self {
            from_serial: serial(row.from_serial)?,
            to_serial: serial(row.to_serial)?,
            owner: OwnerName::new_unchecked(row.name),
            kind: row.kind,
            old: content(row.old_ttl, row.old_rdata)?,
            new: content(row.new_ttl, row.new_rdata)?,
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
