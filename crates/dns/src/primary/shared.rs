//! The state that all connections share.

use std::net::IpAddr;

use store::Store;
use tokio::sync::Semaphore;

use super::connections::Connections;
use crate::name::WireName;
use crate::wire::TsigKey;
use crate::{Hosting, ZoneName};

pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) hosting: Hosting,
    pub(super) key: TsigKey,
    /// The addresses whose queries are answered.
    pub(super) secondaries: Vec<IpAddr>,
    pub(super) catalog: ZoneName,
    pub(super) catalog_wire: WireName,
    pub(super) lookups: Semaphore,
    pub(super) large: Semaphore,
    pub(super) connections: Connections,
}

impl Shared {
    /// Seconds since the Unix epoch, as signatures have them.
    pub(super) fn now(&self) -> u64 {
        self.store.world().now().unix_seconds().unsigned_abs()
    }

    pub(super) fn knows(&self, source: IpAddr) -> bool {
        self.secondaries.contains(&source.to_canonical())
    }
}
