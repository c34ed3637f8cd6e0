//! What Postgres holds of a zone, as transfers want it.

use store::{Connection, Result};

use crate::name::WireName;
use crate::repository::{Change, ServedRepository as _, ServedZone};
use crate::wire::kind;
use crate::{Hosting, Rdata, RecordSet, ZoneName, serial};

use super::Shared;
use super::gate::Wanted;

/// Rrsets that are read at once.
pub(super) const PAGE: i64 = 500;
/// The most bytes of records that are kept while an answer is written without a connection to Postgres.
const KEPT: usize = 1 << 20;
/// Entries of the journal that an answer may hold: with more, the whole zone is not much longer.
const ENTRIES: i64 = 1000;

/// A zone that is there, at one of its serials.
pub(super) struct Zone {
    pub(super) name: ZoneName,
    pub(super) wire: WireName,
    is_catalog: bool,
    pub(super) served: ServedZone,
}

/// What is to be told of a zone.
pub(super) enum Content {
    /// That it is at its serial: nothing else is wanted, or nothing has changed.
    Soa(Zone),
    /// What changed.
    Changes(Zone, Vec<Change>),
    /// All of it.
    Whole(Zone, Vec<RecordSet>),
    /// All of it, which takes several pages or is heavy.
    Large,
}

impl Shared {
    /// What is wanted of a zone; none when there is no such zone here.
    pub(super) async fn read(&self, name: &WireName, wanted: Wanted) -> Result<Option<Content>> {
        if wanted == Wanted::Soa {
            let mut connection = self.store.connection().await?;
            return Ok(self.zone(&mut connection, name).await?.map(Content::Soa));
        }
        self.store
            .snapshot(async |tx: &mut Connection| {
                let Some(zone) = self.zone(tx, name).await? else { return Ok(None) };
                if let Wanted::Since(since) = wanted {
                    if !serial::is_newer(zone.served.serial, since) {
                        return Ok(Some(Content::Soa(zone)));
                    }
                    let changes = tx.served_changes(zone.served.id, since, ENTRIES).await?;
                    if let Some(changes) = changes.filter(|changes| weight(changes.iter().flat_map(sides)) <= KEPT) {
                        return Ok(Some(Content::Changes(zone, changes)));
                    }
                }
                let sets = tx.served_page(zone.served.id, None, PAGE).await?;
                let is_large = is_full(&sets) || weight(sets.iter().map(|set| &set.records)) > KEPT;
                Ok(Some(if is_large { Content::Large } else { Content::Whole(zone, sets) }))
            })
            .await
    }

    /// The zone of this name.
    pub(super) async fn zone(&self, connection: &mut Connection, name: &WireName) -> Result<Option<Zone>> {
        let is_catalog = *name == self.catalog_wire;
        let wire = name.clone();
        let (name, served) = if is_catalog {
            (self.catalog.clone(), Some(connection.served_catalog().await?))
        } else {
            let Some(host) = name.host() else { return Ok(None) };
            let served = connection.served_find(&host).await?;
            (ZoneName::stored(host), served)
        };
        Ok(served.map(|served| Zone { name, wire, is_catalog, served }))
    }
}

fn sides(change: &Change) -> impl Iterator<Item = &Vec<Rdata>> {
    [&change.old, &change.new].into_iter().flatten().map(|(_, records)| records)
}

fn weight<'a>(sets: impl Iterator<Item = &'a Vec<Rdata>>) -> usize {
    sets.flatten().map(|record| record.wire().len()).sum()
}

/// Whether there may be more after this page.
pub(super) fn is_full(page: &[RecordSet]) -> bool {
    i64::try_from(page.len()).is_ok_and(|length| length >= PAGE)
}

impl Zone {
    /// Its SOA at a serial: time to live and data.
    pub(super) fn soa(&self, hosting: &Hosting, serial: u32) -> (u32, Vec<u8>) {
        let (ttl, soa) = if self.is_catalog { Hosting::catalog_soa(serial) } else { hosting.soa(&self.name, serial) };
        (ttl, soa.rdata().wire().to_vec())
    }

    /// The type of the record that a transfer begins and ends with.
    pub(super) const SOA: u16 = kind::SOA;
}
