//! NOTIFY messages to nameservers (RFC 1996), queued in the outbox and delivered by the hidden primary.

use kernel::OrgId;
use serde::{Deserialize, Serialize};
use store::outbox::withdraw;
use store::{Connection, Result, Store};

use crate::ZoneName;
use crate::repository::ZoneRecord;

/// The outbox topic.
pub const TOPIC: &str = "dns.notify";

/// The payload of the outbox message: the zone that has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The name of the zone. `None` for the catalog.
    pub zone: Option<String>,
    /// Whether secondaries must load the catalog first, because it changes the zone's group, or lists a new zone that
    /// this zone delegates.
    #[serde(default)]
    pub after_catalog: bool,
}

impl Notice {
    /// Creates a notice for a zone, or for the catalog, which is the zone with the empty name.
    #[must_use]
    pub fn for_zone(zone: &ZoneRecord) -> Self {
        let name = Some(zone.name.as_str().to_owned()).filter(|name| !name.is_empty());
        Self { zone: name, after_catalog: false }
    }

    /// Returns a notice for a zone that secondaries must transfer after the catalog.
    #[must_use]
    pub fn for_zone_after_catalog(zone: &ZoneName) -> Self {
        Self { zone: Some(zone.as_str().to_owned()), after_catalog: true }
    }
}

/// Enqueues a notice for a zone of an organization, or for the catalog. It replaces a queued notice with the same key.
pub(crate) async fn enqueue(store: &Store, tx: &mut Connection, org: Option<OrgId>, notice: &Notice) -> Result<()> {
    let key = match notice {
        Notice { zone: None, .. } => "catalog".to_owned(),
        Notice { zone: Some(zone), after_catalog: false } => zone.clone(),
        // This notice has a separate key. Otherwise a later notice of the zone could replace it and arrive before the
        // catalog.
        Notice { zone: Some(zone), after_catalog: true } => format!("{zone} after catalog"),
    };
    withdraw(tx, TOPIC, &key).await?;
    if let Notice { zone: Some(zone), after_catalog: true } = notice {
        // Withdraw a queued notice of the zone, which would cause a transfer before the secondary has the catalog.
        withdraw(tx, TOPIC, zone).await?;
    }
    match org {
        Some(org) => store.enqueue_for(tx, TOPIC, org, &key, notice).await,
        None => store.enqueue(tx, TOPIC, &key, notice).await,
    }
}
