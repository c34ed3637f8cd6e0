//! Having nameservers told of changes (RFC 1996): messages of the outbox, which the hidden primary delivers.

use serde::{Deserialize, Serialize};
use store::outbox::withdraw;
use store::{Connection, Result, Store};

use crate::ZoneName;
use crate::repository::ZoneRecord;

/// The topic.
pub const TOPIC: &str = "dns.notify";

/// What a nameserver is told has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// None for the catalog.
    pub zone: Option<String>,
    /// Whether the catalog is told of first, and taken in: the zone changes its group with it.
    #[serde(default)]
    pub after_catalog: bool,
}

impl Notice {
    /// Of the catalog.
    #[must_use]
    pub fn catalog() -> Self {
        Self { zone: None, after_catalog: false }
    }

    /// Of a zone, or of the catalog, which has no name.
    #[must_use]
    pub fn of(zone: &ZoneRecord) -> Self {
        let name = Some(zone.name.as_str().to_owned()).filter(|name| !name.is_empty());
        Self { zone: name, after_catalog: false }
    }

    /// Of a zone that changes its group in the catalog.
    #[must_use]
    pub fn of_group(zone: &ZoneName) -> Self {
        Self { zone: Some(zone.as_str().to_owned()), after_catalog: true }
    }
}

/// Has nameservers told, in place of an earlier notice of the same that is still queued.
pub(crate) async fn enqueue(store: &Store, tx: &mut Connection, notice: &Notice) -> Result<()> {
    let key = match notice {
        Notice { zone: None, .. } => "catalog".to_owned(),
        Notice { zone: Some(zone), after_catalog: false } => zone.clone(),
        // Not replaced by a notice of a change: it would come too early.
        Notice { zone: Some(zone), after_catalog: true } => format!("{zone} group"),
    };
    withdraw(tx, TOPIC, &key).await?;
    if let Notice { zone: Some(zone), after_catalog: true } = notice {
        // It would have the zone transferred before its group is known.
        withdraw(tx, TOPIC, zone).await?;
    }
    store.enqueue(tx, TOPIC, &key, notice).await
}
