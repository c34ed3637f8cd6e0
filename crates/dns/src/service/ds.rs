//! DS records at the registry, for zones of domains that are registered through this installation.
//!
//! The outbox message of a zone contains no DS records: its handler reads those that the zone needs at that moment
//! ([`Dns::ds_wanted`]). A DS record is added only for keys that already sign the zone. When DNSSEC is turned off, the
//! zone stays signed until the registry has had no DS record for two days, so that no resolver has one either. The time
//! is stored before a removal begins, because the response to the removal may be lost.

use kernel::{OrgId, Time, ZoneId};
use serde::{Deserialize, Serialize};
use store::Connection;
use store::outbox::{LEASE, withdraw, withdraw_dead_letters};

use super::{Dns, Result};
use crate::error::DnsError;
use crate::model::Ds;
use crate::repository::{ZoneRecord, ZoneRepository as _};

/// The outbox topic of zones whose DS records at the registry may have to change. Its messages are [`DsMessage`]s.
pub const DS_TOPIC: &str = "dns.ds";

/// The longest time for which resolvers may keep a removed DS record, in seconds: registries use a TTL of at most a
/// day, and take a while to publish a removal.
const HOLD_SECONDS: i64 = 48 * 3600;

/// The time after which a zone whose message became a dead letter is tried again, in seconds.
const DEAD_LETTER_RETRY_SECONDS: i64 = 24 * 3600;

/// A zone whose DS records at the registry may have to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DsMessage {
    pub zone: ZoneId,
}

/// The DS records that a zone needs at its registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedDs {
    pub org: OrgId,
    /// The zone's name.
    pub name: String,
    /// The recorded DS records that the signer requests; empty if signing ends, or has not begun.
    pub ds: Vec<Ds>,
    /// Whether signing ends as soon as no resolver has a DS record of the zone.
    pub is_ending: bool,
}

impl Dns {
    /// Enqueues two messages about a zone in the caller's transaction, which replace the queued ones. The second is due
    /// after a lease. By then, each delivery that read an earlier state has ended, so the second one applies the current
    /// state after all calls of the others. However often a zone changes, it has only these two messages.
    pub(super) async fn enqueue_ds(&self, tx: &mut Connection, org: OrgId, zone: ZoneId) -> Result<()> {
        let now = self.store.corrected_now(tx).await?;
        self.replace_message(tx, org, zone, &zone.to_string(), now).await?;
        let lease_end = now.plus_seconds(LEASE.as_secs().cast_signed());
        self.replace_message(tx, org, zone, &format!("{zone} recheck"), lease_end).await
    }

    async fn replace_message(&self, tx: &mut Connection, org: OrgId, zone: ZoneId, key: &str, due: Time) -> Result<()> {
        withdraw(tx, DS_TOPIC, key).await?;
        Ok(self.store.enqueue_for_at(tx, DS_TOPIC, org, key, &DsMessage { zone }, due).await?)
    }

    /// Enqueues another message with this key for the next day, in the transaction that makes a message a dead letter.
    /// Otherwise the DS records would never change, and a zone whose signing ends could never be deleted. Replaces
    /// earlier dead letters with the key. Does nothing for a deleted zone.
    ///
    /// # Errors
    /// [`DnsError::Store`].
    pub async fn ds_retry_next_day(&self, tx: &mut Connection, zone: ZoneId, key: &str) -> Result<()> {
        let found = tx.zone_lock_by_id(zone).await?;
        let Some(org) = found.and_then(|zone| zone.org) else { return Ok(()) };
        withdraw_dead_letters(tx, DS_TOPIC, key).await?;
        let due = self.store.corrected_now(tx).await?.plus_seconds(DEAD_LETTER_RETRY_SECONDS);
        Ok(self.store.enqueue_for_at(tx, DS_TOPIC, org, key, &DsMessage { zone }, due).await?)
    }

    /// Returns the DS records that a zone needs at its registry; `None` for a deleted zone.
    ///
    /// # Errors
    /// [`DnsError::Store`].
    pub async fn ds_wanted(&self, zone: ZoneId) -> Result<Option<WantedDs>> {
        let found = self.store.connection().await?.zone_get(zone).await?;
        let Some((zone, org)) = found.and_then(|zone| zone.org.map(|org| (zone, org))) else { return Ok(None) };
        let (name, is_ending) = (zone.name.as_str().to_owned(), zone.is_unsigning);
        // Use the records that the signer requested. Records that a user reported need not belong to the signer's keys.
        Ok(Some(WantedDs { org, name, ds: zone.cds, is_ending }))
    }

    /// Records that the caller begins to remove DS records of a zone from the registry. Resolvers may have them for two
    /// more days, even if the response to the removal is lost.
    ///
    /// # Errors
    /// [`DnsError::Store`].
    pub async fn ds_removal_begin(&self, zone: ZoneId) -> Result<()> {
        let mut connection = self.store.connection().await?;
        let now = self.store.corrected_now(&mut connection).await?;
        Ok(connection.zone_set_ds_removed(zone, now).await?)
    }

    /// Records that the registry has no DS record of a zone whose signing ends. Unsigns the zone if no cache can
    /// contain a DS record any more. Otherwise enqueues a message for the time when the last cached DS record expires.
    ///
    /// # Errors
    /// [`DnsError::Store`].
    pub async fn ds_absent(&self, zone: ZoneId) -> Result<()> {
        self.store
            .transaction_unaudited(async |tx: &mut Connection| {
                let now = self.store.corrected_now(tx).await?;
                let found = tx.zone_lock_by_id(zone).await?.filter(|zone| zone.is_unsigning);
                let Some((zone, org)) = found.and_then(|zone| zone.org.map(|org| (zone, org))) else { return Ok(()) };
                let unsign_at = zone.ds_removed_at.map(|at| at.plus_seconds(HOLD_SECONDS)).filter(|at| *at > now);
                if let Some(unsign_at) = unsign_at {
                    // Use a separate key, so that this message does not replace one about a later change.
                    return self.replace_message(tx, org, zone.id, &format!("{} unsign", zone.id), unsign_at).await;
                }
                let after = ZoneRecord { is_unsigning: false, ds_removed_at: None, ..zone.clone() };
                let catalog = tx.catalog_lock().await?;
                self.change_signing(tx, catalog, &zone, after).await?;
                Ok::<_, DnsError>(())
            })
            .await
    }
}
