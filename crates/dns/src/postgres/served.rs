//! What nameservers transfer.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::ZoneId;
use store::{Connection, Error, Result};

use super::rdata::unpack;
use super::rrset::RrsetRow;
use super::zone::serial;
use crate::repository::{Change, StoredSet};
use crate::schema::{changes, rrsets};
use crate::{OwnerName, Rdata, RecordSet, RecordType};

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

pub(super) async fn page(
    connection: &mut Connection,
    zone: ZoneId,
    after: Option<(&str, &str)>,
    most: i64,
) -> Result<Vec<RecordSet>> {
    let all = rrsets::table.filter(rrsets::zone_id.eq(zone)).order((rrsets::name, rrsets::kind));
    let page = all.limit(most).select(RrsetRow::as_select());
    let rows: Vec<RrsetRow> = match after {
        Some((name, kind)) => {
            // The first condition is the one that an index serves.
            let next = rrsets::name.ge(name.to_owned());
            let next = next.and(rrsets::name.gt(name.to_owned()).or(rrsets::kind.gt(kind.to_owned())));
            page.filter(next).load(connection).await?
        }
        None => page.load(connection).await?,
    };
    rows.into_iter().map(|row| StoredSet::try_from(row).map(|stored| stored.set)).collect()
}

pub(super) async fn changes(
    connection: &mut Connection,
    zone: ZoneId,
    from_serial: u32,
    most: i64,
) -> Result<Option<Vec<Change>>> {
    let journal = changes::table.filter(changes::zone_id.eq(zone));
    let first = journal.filter(changes::from_serial.eq(i64::from(from_serial)));
    let first: Option<i64> = first.select(changes::number).order(changes::number).first(connection).await.optional()?;
    let Some(first) = first else { return Ok(None) };
    // An entry that was forgotten may have been of the same step: then the step before it would be the last one.
    let before: Option<i64> =
        journal.filter(changes::number.eq(first - 1)).select(changes::to_serial).first(connection).await.optional()?;
    if first > 1 && before != Some(from_serial.into()) {
        return Ok(None);
    }
    let rows = journal.filter(changes::number.ge(first)).order(changes::number).limit(most + 1);
    let rows: Vec<ChangeRow> = rows.select(ChangeRow::as_select()).load(connection).await?;
    if i64::try_from(rows.len()).is_ok_and(|rows| rows > most) {
        return Ok(None);
    }
    rows.into_iter().map(Change::try_from).collect::<Result<_>>().map(Some)
}

fn content(ttl: Option<i32>, rdata: Option<Vec<u8>>) -> Result<Option<(u32, Vec<Rdata>)>> {
    match (ttl, rdata) {
        (Some(ttl), Some(rdata)) => Ok(Some((ttl.cast_unsigned(), unpack(&rdata)?))),
        (None, None) => Ok(None),
        _ => Err(Error::inconsistent("an entry of the journal has half a content")),
    }
}

impl TryFrom<ChangeRow> for Change {
    type Error = Error;

    fn try_from(row: ChangeRow) -> Result<Self> {
        Ok(Self {
            from_serial: serial(row.from_serial)?,
            to_serial: serial(row.to_serial)?,
            owner: OwnerName::stored(row.name),
            kind: row.kind,
            old: content(row.old_ttl, row.old_rdata)?,
            new: content(row.new_ttl, row.new_rdata)?,
        })
    }
}
