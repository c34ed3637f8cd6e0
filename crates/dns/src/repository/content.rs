//! The content of a zone in pages, for zones that are too large for memory.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Text, Uuid};
use diesel_async::RunQueryDsl;
use kernel::ZoneId;
use store::{Connection, Prepared, Result};

use super::rdata::rrset_bytes;
use super::rrset::{Content, RrsetRow, StoredSet};
use super::served;
use crate::model::ManagedBy;
use crate::schema::changes;
use crate::{OwnerName, RecordType};

/// The position of an rrset in its zone, which is sorted by name in canonical order (RFC 4034 section 6.1), then by
/// type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RrsetPosition {
    sort_key: Vec<u8>,
    kind: RecordType,
}

/// The maximum size of a page. A page ends with the rrset that makes it exceed `bytes`.
#[derive(Debug, Clone, Copy)]
pub struct PageLimit {
    pub rrsets: usize,
    /// Bytes of names and data, as in [`super::ZoneSize`].
    pub bytes: u64,
}

/// A page of the content of a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RrsetPage {
    /// The rrsets, in the order of their positions.
    pub sets: Vec<StoredSet>,
    /// The position of the last rrset. `None` on the last page.
    pub next: Option<RrsetPosition>,
}

/// A changed rrset, as it was before the change. `None` means that the rrset did not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerSet {
    pub owner: OwnerName,
    pub kind: RecordType,
    pub content: Option<Content>,
}

/// The content of zones on a [`store::Connection`].
pub trait ContentRepository {
    /// Returns the rrsets of a zone after a position, or the first ones if `after` is `None`. `zone` is the id of the
    /// zone and the number of its rrsets. Requires a transaction.
    async fn rrset_page(
        &mut self,
        zone: (ZoneId, u32),
        after: Option<&RrsetPosition>,
        limit: PageLimit,
    ) -> Result<RrsetPage>;

    /// Returns the rrsets that were changed by the journal entries after this number, oldest change first.
    async fn rrsets_changed_since(&mut self, zone: ZoneId, number: i64) -> Result<Vec<FormerSet>>;
}

/// Ends a page by size. Does not read the data of the rrsets after the page, which Postgres stores separately.
const PAGE: &str = "\
    SELECT name, kind, ttl, rdata, managed_by FROM ( \
        SELECT page.*, sum(octet_length(name) + octet_length(rdata)) \
            OVER (ORDER BY sort_key, kind ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before \
        FROM (SELECT * FROM dns.rrsets WHERE zone_id = $1 AND (sort_key, kind) > ($2, $3) \
            ORDER BY sort_key, kind LIMIT $4) page) sized \
    WHERE coalesce(bytes_before, 0) < $5 ORDER BY sort_key, kind";

/// Disables sorting for the rest of the transaction. Postgres has no statistics of a new zone and assumes few rrsets.
/// For each page, it would then read and sort all rrsets instead of reading a part of the index.
const DISABLE_SORT: &str = "SET LOCAL enable_sort = off";

type FormerRow = (String, RecordType, Option<i32>, Option<Vec<u8>>, Option<ManagedBy>);

impl ContentRepository for Connection {
    async fn rrset_page(
        &mut self,
        (zone, rrset_count): (ZoneId, u32),
        after: Option<&RrsetPosition>,
        limit: PageLimit,
    ) -> Result<RrsetPage> {
        if usize::try_from(rrset_count).is_ok_and(|count| count > limit.rrsets) {
            Prepared(diesel::sql_query(DISABLE_SORT)).execute(self).await?;
        }
        // Every rrset comes after the empty key with the empty type.
        let (sort_key, kind) = after.map_or((&[][..], ""), |after| (&after.sort_key, after.kind.as_str()));
        let page = diesel::sql_query(PAGE)
            .bind::<Uuid, _>(zone)
            .bind::<Binary, _>(sort_key)
            .bind::<Text, _>(kind)
            .bind::<BigInt, _>(i64::try_from(limit.rrsets).unwrap_or(i64::MAX))
            .bind::<BigInt, _>(limit.bytes.cast_signed());
        let rows: Vec<RrsetRow> = Prepared(page).load(self).await?;
        let sets = rows.into_iter().map(StoredSet::try_from).collect::<Result<Vec<_>>>()?;
        let bytes: u64 = sets.iter().map(StoredSet::bytes).sum();
        let is_full = sets.len() >= limit.rrsets || bytes >= limit.bytes;
        let next = sets.last().filter(|_| is_full).map(StoredSet::position);
        Ok(RrsetPage { sets, next })
    }

    async fn rrsets_changed_since(&mut self, zone: ZoneId, number: i64) -> Result<Vec<FormerSet>> {
        let newer = changes::table.filter(changes::zone_id.eq(zone)).filter(changes::number.gt(number));
        let former = (changes::name, changes::kind, changes::old_ttl, changes::old_rdata, changes::old_managed_by);
        let rows: Vec<FormerRow> = newer.order(changes::number).select(former).load(self).await?;
        let former = rows.into_iter().map(|(name, kind, ttl, rdata, managed_by)| {
            let content = served::content(ttl, rdata)?.map(|(ttl, records)| (ttl, records, managed_by));
            Ok(FormerSet { owner: OwnerName::new_unchecked(name), kind, content })
        });
        former.collect()
    }
}

impl RrsetPosition {
    /// Returns the position of the rrset of this name and type.
    #[must_use]
    pub fn of(owner: &OwnerName, kind: RecordType) -> Self {
        Self { sort_key: owner.canonical_key(), kind }
    }
}

impl StoredSet {
    /// Returns the bytes of the rrset, as in [`super::ZoneSize`].
    pub(crate) fn bytes(&self) -> u64 {
        rrset_bytes(&self.set.owner, &self.set.records)
    }

    pub(crate) fn position(&self) -> RrsetPosition {
        RrsetPosition::of(&self.set.owner, self.set.kind)
    }
}
