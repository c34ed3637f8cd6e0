//! Reads of zones for answers.

use store::{Connection, Result};

use crate::name::WireName;
use crate::repository::{
    ContentRepository as _, JournalEntry, PageLimit, ServedRepository as _, ServedZone, StoredSet,
};
use crate::{Hosting, ZoneName, serial};

use super::Shared;
use super::request::QueryKind;

/// The size of a page. A zone that fits in one page is buffered, and its transfer holds no Postgres connection.
pub(super) const PAGE: PageLimit = PageLimit { rrsets: 500, bytes: 1 << 20 };
/// The maximum number of journal entries in an answer. If there are more, a transfer of the whole zone is not much
/// longer.
const MAX_JOURNAL_ENTRIES: i64 = 1000;

/// A zone at one serial.
pub(super) struct Zone {
    pub(super) name: ZoneName,
    pub(super) wire: WireName,
    is_catalog: bool,
    pub(super) served: ServedZone,
}

/// The content of an answer.
pub(super) enum AnswerContent {
    /// Only the SOA, because the query asks for it or because nothing has changed.
    Soa(Zone),
    /// The changes since a serial.
    Changes(Zone, Vec<JournalEntry>),
    /// The whole zone.
    Whole(Zone, Vec<StoredSet>),
    /// The whole zone. It is too large for the buffer.
    Large,
}

impl Shared {
    /// Reads the content of an answer. Returns `None` if the zone does not exist.
    pub(super) async fn read_content(&self, name: &WireName, query: QueryKind) -> Result<Option<AnswerContent>> {
        // The semaphore is never closed.
        let _permit = self.lookup_permits.acquire().await.ok();
        if query == QueryKind::Soa {
            let mut connection = self.store.connection().await?;
            return Ok(self.find_zone(&mut connection, name).await?.map(AnswerContent::Soa));
        }
        self.store
            .snapshot(async |tx: &mut Connection| {
                let Some(zone) = self.find_zone(tx, name).await? else { return Ok(None) };
                if let QueryKind::Ixfr(since) = query {
                    if !serial::is_newer(zone.served.serial, since) {
                        return Ok(Some(AnswerContent::Soa(zone)));
                    }
                    // The changes of the whole journal fit in memory, because its size is limited.
                    let changes = tx.served_changes(zone.served.id, since, MAX_JOURNAL_ENTRIES).await?;
                    if let Some(changes) = changes {
                        return Ok(Some(AnswerContent::Changes(zone, changes)));
                    }
                }
                let page = tx.rrset_page((zone.served.id, zone.served.rrset_count), None, PAGE).await?;
                let is_large = page.next.is_some();
                Ok(Some(if is_large { AnswerContent::Large } else { AnswerContent::Whole(zone, page.sets) }))
            })
            .await
    }

    /// Finds a zone or the catalog.
    pub(super) async fn find_zone(&self, connection: &mut Connection, name: &WireName) -> Result<Option<Zone>> {
        let is_catalog = *name == self.catalog_wire;
        let wire = name.clone();
        let (name, served) = if is_catalog {
            (self.catalog.clone(), Some(connection.served_catalog().await?))
        } else {
            let Some(host) = name.to_host() else { return Ok(None) };
            let served = connection.served_find(&host).await?;
            (ZoneName::new_unchecked(host), served)
        };
        Ok(served.map(|served| Zone { name, wire, is_catalog, served }))
    }
}

impl Zone {
    /// Returns the TTL and data of the SOA at a serial.
    pub(super) fn soa(&self, hosting: &Hosting, serial: u32) -> (u32, Vec<u8>) {
        let (ttl, soa) = if self.is_catalog { Hosting::catalog_soa(serial) } else { hosting.soa(&self.name, serial) };
        (ttl, soa.rdata().wire().to_vec())
    }
}
