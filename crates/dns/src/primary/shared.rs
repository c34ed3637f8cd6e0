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
    /// The addresses that may query the primary.
    pub(super) secondaries: Vec<IpAddr>,
    pub(super) catalog: ZoneName,
    pub(super) catalog_wire: WireName,
    pub(super) lookup_permits: Semaphore,
    pub(super) large_transfer_permits: Semaphore,
    pub(super) connections: Connections,
}

impl Shared {
    /// Seconds since the Unix epoch, as in TSIG signatures.
    pub(super) fn now(&self) -> u64 {
        self.store.clock_rng().now().unix_seconds().unsigned_abs()
    }

    pub(super) fn is_secondary(&self, source: IpAddr) -> bool {
        self.secondaries.contains(&source.to_canonical())
    }
}
