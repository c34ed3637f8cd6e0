//! Reads of zones of any size. A read returns one version of a zone, in pages.
//!
//! Clients may take minutes to receive a large zone, so no connection or transaction is held between two pages. If the
//! zone changes during the read, the journal provides the content that a page had before the changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kernel::{KeyedSemaphores, OrgId};
use store::{Connection, Store};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Dns, Result, load_zone};
use crate::error::DnsError;
use crate::hosting::Hosting;
use crate::model::{ManagedBy, Rrset, Zone, ZoneDetail};
use crate::repository::{
    ContentRepository as _, FormerSet, PageLimit, RrsetPage, RrsetPosition, StoredSet, ZoneRecord, ZoneRepository as _,
};
use crate::zonefile;
use crate::{OwnerName, RecordSet, RecordType};

/// The size of a page. The page's text is up to five times as long.
pub(super) const PAGE: PageLimit = PageLimit { rrsets: 2000, bytes: 128 * 1024 };
/// How often the read of a page is attempted if Postgres is unavailable.
const MAX_ATTEMPTS: usize = 3;
/// The time between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// The maximum number of concurrent reads of zones with more than one page.
const MAX_LARGE_READS: usize = 64;
/// The maximum number of such concurrent reads for the zones of one organization.
const MAX_LARGE_READS_PER_ORG: usize = 16;

/// The content of one version of a zone, in canonical order (RFC 4034 section 6.1), starting with the SOA.
///
/// A reader keeps one page in memory. A zone of one page is complete when it is opened.
#[derive(Debug)]
pub struct ZoneReader {
    store: Store,
    record: ZoneRecord,
    zone: Zone,
    /// The page that was read with the zone.
    first: Option<Vec<StoredSet>>,
    /// The last rrset of the previous page. `None` if no further page follows.
    after: Option<RrsetPosition>,
    _permit: Option<ReadPermit>,
}

/// The permits for reads of zones with more than one page.
#[derive(Debug)]
pub(super) struct ReadPermits {
    all: Arc<Semaphore>,
    per_org: KeyedSemaphores<OrgId>,
}

/// The permits of one read.
#[derive(Debug)]
struct ReadPermit {
    _all: OwnedSemaphorePermit,
    _per_org: OwnedSemaphorePermit,
}

impl Dns {
    /// Reads a zone with all its rrsets.
    ///
    /// # Errors
    /// Returns [`DnsError::ZoneNotFound`] or [`DnsError::TooManyReads`].
    pub async fn zone(&self, org: OrgId, name: &str) -> Result<ZoneReader> {
        self.hosting()?;
        self.store
            .snapshot(async |tx: &mut Connection| {
                let zone = load_zone(tx, org, name).await?;
                self.open_zone(tx, org, zone).await
            })
            .await
    }

    /// Opens a reader for a zone that was read in this transaction.
    pub(super) async fn open_zone(&self, tx: &mut Connection, org: OrgId, record: ZoneRecord) -> Result<ZoneReader> {
        let RrsetPage { mut sets, next } = tx.rrset_page((record.id, record.rrset_count), None, PAGE).await?;
        sets.insert(0, soa(self.hosting()?, &record));
        let permit = next.as_ref().map(|_| self.read_permits.acquire(org)).transpose()?;
        let (store, zone) = (self.store.clone(), self.zone_view(&record)?);
        Ok(ZoneReader { store, record, zone, first: Some(sets), after: next, _permit: permit })
    }
}

impl ZoneReader {
    /// Returns the zone.
    #[must_use]
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Reads the next rrsets. Returns `None` at the end.
    ///
    /// # Errors
    /// Returns [`DnsError::Store`]. This includes the case that the zone was deleted, or has changed so much that its
    /// previous content is no longer known.
    pub async fn next_page(&mut self) -> Result<Option<Vec<StoredSet>>> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let Some(after) = self.after.take() else { return Ok(None) };
        let mut attempts = 1;
        let page = loop {
            let page = self.store.snapshot(async |tx: &mut Connection| read_page(tx, &self.record, &after).await).await;
            match page {
                // Retry, because an error would end a response that the client has already received in part.
                Err(DnsError::Store(store::Error::Unavailable(_))) if attempts < MAX_ATTEMPTS => {
                    attempts += 1;
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                page => break page?,
            }
        };
        self.after = page.next;
        Ok(Some(page.sets))
    }

    /// Reads the next lines of the zone file. Returns `None` at the end. At each name, the NS records come first.
    ///
    /// # Errors
    /// Returns the errors of [`ZoneReader::next_page`].
    pub async fn next_lines(&mut self) -> Result<Option<String>> {
        let is_first = self.first.is_some();
        let Some(page) = self.next_page().await? else { return Ok(None) };
        let mut text = if is_first { zonefile::directives(&self.record.name) } else { String::new() };
        zonefile::write_sets(&mut text, page.iter().map(|stored| &stored.set));
        Ok(Some(text))
    }

    /// Returns the API representation of an rrset of the zone.
    #[must_use]
    pub fn rrset(&self, stored: &StoredSet) -> Rrset {
        let RecordSet { owner, kind, ttl, records } = &stored.set;
        Rrset::new(&self.record.name, (owner, *kind), *ttl, records, stored.managed_by)
    }

    /// Reads the whole zone into memory. Call this only for a zone whose size is known to be small.
    ///
    /// # Errors
    /// Returns the errors of [`ZoneReader::next_page`].
    pub async fn collect(mut self) -> Result<ZoneDetail> {
        let mut rrsets = Vec::new();
        while let Some(page) = self.next_page().await? {
            rrsets.extend(page.iter().map(|stored| self.rrset(stored)));
        }
        Ok(ZoneDetail { zone: self.zone, rrsets })
    }
}

/// Returns the SOA, which is not stored.
fn soa(hosting: &Hosting, zone: &ZoneRecord) -> StoredSet {
    let (ttl, soa) = hosting.soa(&zone.name, zone.serial);
    let set = RecordSet { owner: OwnerName::apex(), kind: RecordType::Soa, ttl, records: vec![soa.rdata()] };
    StoredSet { set, managed_by: Some(ManagedBy::System) }
}

/// Reads the page after a position, with the content that it had in this version of the zone.
async fn read_page(tx: &mut Connection, zone: &ZoneRecord, after: &RrsetPosition) -> Result<RrsetPage> {
    let unavailable = |reason: &str| DnsError::Store(store::Error::Unavailable(reason.into()));
    let last_change =
        tx.zone_last_change(zone.id).await?.ok_or_else(|| unavailable("the zone was deleted while it was read"))?;
    let mut page = tx.rrset_page((zone.id, zone.rrset_count), Some(after), PAGE).await?;
    if last_change == zone.last_change_number {
        return Ok(page);
    }
    let former = tx.rrsets_changed_since(zone.id, zone.last_change_number).await?;
    if i64::try_from(former.len()) != Ok(last_change - zone.last_change_number) {
        return Err(unavailable("the zone changed too much while it was read"));
    }
    page.sets =
        undo(page.sets, former, |position| position > after && page.next.as_ref().is_none_or(|last| position <= last));
    Ok(page)
}

/// Undoes the journaled changes of the rrsets in a range of positions.
fn undo(sets: Vec<StoredSet>, former: Vec<FormerSet>, is_in_range: impl Fn(&RrsetPosition) -> bool) -> Vec<StoredSet> {
    let mut sets: BTreeMap<RrsetPosition, StoredSet> =
        sets.into_iter().map(|stored| (stored.position(), stored)).collect();
    for FormerSet { owner, kind, content } in former.into_iter().rev() {
        let position = RrsetPosition::of(&owner, kind);
        if !is_in_range(&position) {
            continue;
        }
        match content {
            Some((ttl, records, managed_by)) => {
                let set = RecordSet { owner, kind, ttl, records };
                sets.insert(position, StoredSet { set, managed_by });
            }
            None => drop(sets.remove(&position)),
        }
    }
    sets.into_values().collect()
}

impl Default for ReadPermits {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(MAX_LARGE_READS)), per_org: KeyedSemaphores::new(MAX_LARGE_READS_PER_ORG) }
    }
}

impl ReadPermits {
    /// Acquires the permits of a read, without waiting.
    fn acquire(&self, org: OrgId) -> Result<ReadPermit> {
        let per_org = self.per_org.of(org).try_acquire_owned().map_err(|_| DnsError::TooManyReads)?;
        let all = self.all.clone().try_acquire_owned().map_err(|_| DnsError::TooManyReads)?;
        Ok(ReadPermit { _all: all, _per_org: per_org })
    }
}
