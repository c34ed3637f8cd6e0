//! DNSSEC. Nameservers sign zones and keep the keys; this module stores the desired and the observed state.

use futures_util::future::join_all;
use kernel::audit::{Actor, Event};
use kernel::{InvalidField, InvalidFields, OrgId, Time, error_chain};
use serde_json::json;
use store::{Connection, Outcome};

use super::edit::MAX_JOURNAL_ENTRIES;
use super::zone::{catalog_group, catalog_rrsets};
use super::{AtSerial, Dns, Precondition, Result, load_zone};
use crate::error::DnsError;
use crate::model::{Dnskey, Dnssec, DnssecState, DnssecSwitch, Ds, DsReport, ManagedBy, SignerView, Zone};
use crate::notify::Notice;
use crate::repository::{SignerCheck, SignerCheckRepository as _, ZoneRecord, ZoneRepository as _};
use crate::serial;
use crate::signer::Signer;

/// The interval of signer checks of a signed zone that has reached its desired state, in seconds.
const IDLE_INTERVAL: i64 = 300;
/// The interval of signer checks until a zone reaches its desired state, in seconds.
pub(super) const ACTIVE_INTERVAL: i64 = 2;
/// The delay of the next check after a failed check or for a stuck zone, in seconds.
const RETRY_DELAY: i64 = 15;
/// The extra increment of the serial when the group of a zone changes. A signer ignores a zone whose serial is not
/// newer than the signer's. The signer raises its serial whenever it signs, so the signer's serial may be higher than
/// at the last check. The increment keeps the new serial of the zone ahead of the signer's.
const GROUP_CHANGE_INCREMENT: u32 = 60;
/// The lease of a signer check, in seconds. If its process dies, another one checks the zone afterwards.
const CHECK_LEASE: i64 = 60;
/// The maximum number of concurrent signer checks.
const MAX_CONCURRENT_CHECKS: i64 = 32;

/// The observed state of a zone at its signer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observation {
    /// The serial at the signer. `None` if the signer does not serve the zone.
    pub serial: Option<u32>,
    pub keys: Vec<Dnskey>,
    pub cds: Vec<Ds>,
}

impl Dns {
    /// Returns the DNSSEC state of a zone, with the last signer check.
    ///
    /// # Errors
    /// Returns [`DnsError::ZoneNotFound`].
    pub async fn dnssec(&self, org: OrgId, name: &str) -> Result<Dnssec> {
        self.hosting()?;
        let zone = load_zone(&mut *self.store.connection().await?, org, name).await?;
        Ok(Dnssec { state: zone.dnssec, ds: zone.ds, signer: zone.signer })
    }

    /// Enables or disables DNSSEC for a zone, and clears its recorded DS and CDS records.
    ///
    /// # Errors
    /// Returns [`DnsError::ZoneNotFound`].
    pub async fn dnssec_switch(
        &self,
        actor: &Actor,
        org: OrgId,
        name: &str,
        switch: DnssecSwitch,
    ) -> Result<AtSerial<Zone>> {
        self.hosting()?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let zone = self.lock_zone(tx, org, name, &Precondition::Any).await?;
                if switch.enabled == (zone.dnssec != DnssecState::Off) {
                    return Ok(Outcome::Unchanged(AtSerial { serial: zone.serial, value: self.zone_view(&zone)? }));
                }
                let catalog = tx.catalog_lock().await?;
                let is_registered = self.registrations.is_registered(tx, org, zone.name.as_str()).await?;
                let dnssec = if switch.enabled { DnssecState::Signing } else { DnssecState::Off };
                // Keep the zone signed for now: resolvers reject an unsigned zone as long as the registry has a DS
                // record of it.
                let is_unsigning = !switch.enabled && is_registered;
                // A delivery in progress may still add a DS record.
                let may_have_ds = is_unsigning && zone.dnssec == DnssecState::DsPending;
                let ds_removed_at =
                    if may_have_ds { Some(self.store.corrected_now(tx).await?) } else { zone.ds_removed_at };
                let (ds, cds) = (Vec::new(), Vec::new());
                let after = ZoneRecord { dnssec, ds, cds, is_unsigning, ds_removed_at, ..zone.clone() };
                let zone = self.change_signing(tx, catalog, &zone, after).await?;
                let serial = zone.serial;
                if is_unsigning {
                    self.enqueue_ds(tx, org, zone.id).await?;
                }
                let name = if switch.enabled { "dns.dnssec.on" } else { "dns.dnssec.off" };
                let event = Event::in_org(name, org, zone.id, json!({ "zone": zone.name.as_str() }));
                Ok(Outcome::Changed(AtSerial { serial, value: self.zone_view(&zone)? }, event))
            })
            .await
    }

    /// Stores a changed DNSSEC state of a zone. If the zone's catalog group changes, also raises its serial. The caller
    /// holds the locks of the catalog and the zone.
    pub(super) async fn change_signing(
        &self,
        tx: &mut Connection,
        catalog: ZoneRecord,
        before: &ZoneRecord,
        after: ZoneRecord,
    ) -> Result<ZoneRecord> {
        let now = self.store.clock_rng().now();
        let has_new_group = catalog_group(before) != catalog_group(&after);
        let serial = before.next_serial(now).wrapping_add(GROUP_CHANGE_INCREMENT);
        let zone = if has_new_group { ZoneRecord { serial, ..after } } else { after };
        if has_new_group {
            // A signer applies the new group only at a transfer of the whole zone. This call causes such a transfer.
            tx.zone_raise_serial(zone.id, zone.serial).await?;
        }
        // Also without a signer, which can be configured later.
        tx.zone_set_dnssec(&zone, now.plus_seconds(ACTIVE_INTERVAL)).await?;
        if has_new_group {
            let group = self.plan_edits(tx, &catalog, catalog_rrsets(&zone, true), Some(ManagedBy::System)).await?;
            self.write_edits(tx, catalog, &group, MAX_JOURNAL_ENTRIES).await?;
            self.enqueue_notice(tx, zone.org, &Notice::for_zone_after_catalog(&zone.name)).await?;
        }
        Ok(zone)
    }

    /// Records the DS records that were added to the parent zone. An empty list means "not yet" and is a no-op.
    ///
    /// # Errors
    /// Returns [`DnsError::InvalidFields`] for an invalid DS record, [`DnsError::DnssecOff`],
    /// [`DnsError::ZoneNotFound`].
    pub async fn ds_set(&self, actor: &Actor, org: OrgId, name: &str, report: DsReport) -> Result<AtSerial<Zone>> {
        self.hosting()?;
        let ds = InvalidFields::all(report.ds.into_iter().enumerate().map(check_ds))?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let zone = self.lock_zone(tx, org, name, &Precondition::Any).await?;
                if zone.dnssec == DnssecState::Off {
                    return Err(DnsError::DnssecOff);
                }
                let (signer_check_at, serial) = (self.store.clock_rng().now(), zone.serial);
                let (zone, recorded) = set_ds(tx, zone, ds, signer_check_at).await?;
                let answer = AtSerial { serial, value: self.zone_view(&zone)? };
                let data = json!({ "zone": zone.name.as_str(), "ds": zone.ds });
                let event = Event::in_org("dns.ds.set", org, zone.id, data);
                Ok(if recorded { Outcome::Changed(answer, event) } else { Outcome::Unchanged(answer) })
            })
            .await
    }

    /// Runs all due signer checks and returns their number. Several processes share the work.
    ///
    /// # Errors
    /// Returns [`DnsError::Store`]. If the result of a check cannot be recorded, the results of the concurrent checks
    /// still are.
    pub async fn check_signers(&self, signer: &Signer) -> Result<usize> {
        let mut checked = 0;
        loop {
            let now = self.store.clock_rng().now();
            let leased_until = now.plus_seconds(CHECK_LEASE);
            let mut connection = self.store.connection().await?;
            let due = connection.signer_checks_claim(now, leased_until, MAX_CONCURRENT_CHECKS).await?;
            drop(connection);
            if due.is_empty() {
                return Ok(checked);
            }
            checked += due.len();
            // Run the checks concurrently, so that an unreachable signer costs one timeout instead of one for each
            // zone.
            let results = join_all(due.iter().map(|check| signer.check(&check.name))).await;
            let mut recorded = Ok(());
            for (check, result) in due.iter().zip(results) {
                // A check that is not recorded is repeated when its lease expires.
                if let Err(error) = self.record_check(check, result.map_err(|error| error.to_string())).await {
                    let zone = check.name.as_str();
                    tracing::warn!(zone, error = %error_chain(&error), "failed to record a signer check");
                    recorded = Err(error);
                }
            }
            recorded?;
        }
    }

    /// Records the result of a check, records the DS records that the signer requests, and raises the serial of a stuck
    /// zone.
    async fn record_check(&self, check: &SignerCheck, result: std::result::Result<Observation, String>) -> Result<()> {
        let now = self.store.clock_rng().now();
        let view = match (result, &check.last_view) {
            (Ok(Observation { serial, keys, cds }), _) => {
                SignerView { serial, keys, cds: requested_ds(&cds), error: None, observed_at: now }
            }
            // Keep the last observed state.
            (Err(error), Some(last)) => SignerView { error: Some(error), observed_at: now, ..last.clone() },
            (Err(error), None) => {
                SignerView { serial: None, keys: Vec::new(), cds: Vec::new(), error: Some(error), observed_at: now }
            }
        };
        let is_on = check.dnssec != DnssecState::Off;
        let should_be_signed = is_on || check.is_unsigning;
        let is_signed = !view.keys.is_empty();
        let is_as_desired = view.serial.is_some() && is_signed == should_be_signed;
        // Compare with the CDS records that were recorded, not with those of the last check: the signer may have served
        // none in the meantime.
        let requests_new_ds = !view.cds.is_empty() && view.cds != check.cds;
        if view.error.is_none() && is_on && is_as_desired && requests_new_ds {
            self.record_observed(check, &view).await?;
        }
        let is_stuck = view.error.is_none() && is_stuck(check, &view, is_as_desired);
        let signer_check_at = match &view.error {
            Some(_) => Some(now.plus_seconds(RETRY_DELAY)),
            // A large zone can seem stuck while it is transferred and signed, so wait longer before the next check.
            None if is_stuck => Some(now.plus_seconds(RETRY_DELAY)),
            None if !is_as_desired => Some(now.plus_seconds(ACTIVE_INTERVAL)),
            // An unsigned zone needs no further checks.
            None => should_be_signed.then(|| now.plus_seconds(IDLE_INTERVAL)),
        };
        self.store
            .transaction_unaudited(async |tx: &mut Connection| {
                if is_stuck && let Some(zone) = tx.zone_lock_by_id(check.id).await? {
                    let serial = serial::next(now, zone.serial, view.serial);
                    tx.zone_raise_serial(zone.id, serial).await?;
                    self.enqueue_notice(tx, zone.org, &Notice::for_zone(&zone)).await?;
                }
                tx.signer_check_record(check, &view, signer_check_at).await?;
                Ok(())
            })
            .await
    }

    /// Records the DS records that the signer requests. If the domain is registered here, they also go to its registry.
    async fn record_observed(&self, check: &SignerCheck, view: &SignerView) -> Result<()> {
        let now = self.store.clock_rng().now();
        self.store
            .transaction(&Actor::service("dnssec"), async |tx: &mut Connection| {
                // If a user changed the zone since the check began, the user's change takes precedence.
                let is_unchanged = |zone: &ZoneRecord| zone.dnssec == check.dnssec && zone.ds == check.ds;
                let zone = tx.zone_lock_by_id(check.id).await?.filter(is_unchanged);
                let Some(zone) = zone else { return Ok(Outcome::Unchanged(())) };
                // Record the check in the same transaction, so that readers see the DS records together with their
                // keys.
                tx.signer_check_record(check, view, Some(now)).await?;
                let (ds, cds) = (view.cds.clone(), view.cds.clone());
                let zone = ZoneRecord { dnssec: DnssecState::DsPending, ds, cds, ..zone };
                tx.zone_set_dnssec(&zone, now).await?;
                if self.registrations.is_registered(tx, check.org, zone.name.as_str()).await? {
                    self.enqueue_ds(tx, check.org, zone.id).await?;
                }
                let data = json!({ "zone": zone.name.as_str(), "ds": zone.ds });
                let event = Event::in_org("dns.ds.set", check.org, zone.id, data);
                Ok(Outcome::Changed((), event))
            })
            .await
    }
}

/// Returns whether the signer seems to ignore the zone: the signer's serial has not changed since the last check, and
/// the signer either does not serve the desired state or has a higher serial than the unsigned zone.
fn is_stuck(check: &SignerCheck, view: &SignerView, is_as_desired: bool) -> bool {
    let Some(signer_serial) = view.serial else { return false };
    let last_serial = check.last_view.as_ref().and_then(|view| view.serial);
    let is_unsigned = check.dnssec == DnssecState::Off && !check.is_unsigning;
    let unsigned_ahead = is_unsigned && serial::is_newer(signer_serial, check.serial);
    (!is_as_desired || unsigned_ahead) && last_serial == Some(signer_serial)
}

async fn set_ds(
    tx: &mut Connection,
    zone: ZoneRecord,
    mut ds: Vec<Ds>,
    signer_check_at: Time,
) -> Result<(ZoneRecord, bool)> {
    ds.sort_unstable();
    ds.dedup();
    if ds.is_empty() || (ds == zone.ds && zone.dnssec == DnssecState::DsPending) {
        return Ok((zone, false));
    }
    let zone = ZoneRecord { dnssec: DnssecState::DsPending, ds, ..zone };
    tx.zone_set_dnssec(&zone, signer_check_at).await?;
    Ok((zone, true))
}

/// Validates a DS record and converts its digest to uppercase.
fn check_ds((index, ds): (usize, Ds)) -> std::result::Result<Ds, InvalidFields> {
    let error = |name: &str, message: &str| InvalidField::new(format!("ds[{index}].{name}"), message);
    let digits = match ds.digest_type {
        1 => Some(40),
        2 | 3 => Some(64),
        4 => Some(96),
        _ => None,
    };
    let length = ds.digest.len();
    let digest = if !ds.digest.bytes().all(|b| b.is_ascii_hexdigit()) || length == 0 || length % 2 == 1 || length > 128
    {
        Err(error("digest", "must be 1 to 64 bytes in hexadecimal"))
    } else if digits.is_some_and(|digits| digits != length) {
        Err(error("digest", "has the wrong length for its digest type"))
    } else {
        Ok(ds.digest.to_ascii_uppercase())
    };
    let algorithm = match ds.algorithm {
        0 => Err(error("algorithm", "must not be 0, which requests deletion of the DS records (RFC 8078 section 4)")),
        algorithm => Ok(algorithm),
    };
    let (algorithm, digest) = InvalidFields::both(algorithm, digest)?;
    Ok(Ds { algorithm, digest, ..ds })
}

/// Returns the DS records that CDS records request, without the delete request (RFC 8078 section 4).
fn requested_ds(cds: &[Ds]) -> Vec<Ds> {
    let upper = |ds: &Ds| Ds { digest: ds.digest.to_ascii_uppercase(), ..ds.clone() };
    let mut ds: Vec<Ds> = cds.iter().filter(|ds| ds.algorithm != 0).map(upper).collect();
    ds.sort_unstable();
    ds.dedup();
    ds
}
