//! Signing: the nameserver does it, and keeps the keys. Here stands whether it is to, and what was seen of it.

use futures_util::future::join_all;
use kernel::audit::{Actor, Event};
use kernel::{Malformed, OrgId, Time};
use serde_json::json;
use store::{Connection, Outcome};

use super::edit::JOURNAL;
use super::zone::member;
use super::{At, Dns, Expected, Result, found};
use crate::error::DnsError;
use crate::model::{Dnskey, Dnssec, DnssecState, DnssecSwitch, Ds, DsReport, ManagedBy, SignerView, Zone};
use crate::notify::Notice;
use crate::repository::{LookRepository as _, Looked, ZoneRecord, ZoneRepository as _};
use crate::serial;
use crate::signer::Signer;

/// How often the signer of a signed zone is looked at when nothing happens, in seconds.
const CALM: i64 = 300;
/// How soon again while something is under way, in seconds.
const SOON: i64 = 2;
/// How soon again after a failure, or after a zone that was held on to was raised, in seconds.
const FAILED: i64 = 15;
/// How far a serial goes ahead when the group changes. A signer counts its own signings too, so it may be ahead of what
/// was last seen there; a zone that is no newer to it stays as it is.
const AHEAD: u32 = 60;
/// Zones that are looked at together.
const AT_ONCE: i64 = 32;

/// What was seen of a zone at its signer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observation {
    /// None when it does not serve the zone.
    pub serial: Option<u32>,
    pub keys: Vec<Dnskey>,
    pub cds: Vec<Ds>,
}

impl Dns {
    /// Whether a zone is signed, and what was seen of that.
    ///
    /// # Errors
    /// [`DnsError::ZoneNotFound`].
    pub async fn dnssec(&self, org: OrgId, name: &str) -> Result<Dnssec> {
        self.hosting()?;
        let zone = found(&mut *self.store.connection().await?, org, name).await?;
        Ok(Dnssec { state: zone.dnssec, ds: zone.ds, signer: zone.signer })
    }

    /// Has the nameserver sign a zone, or no longer. The recorded DS records go with the signing.
    ///
    /// # Errors
    /// [`DnsError::ZoneNotFound`].
    pub async fn dnssec_switch(&self, actor: &Actor, org: OrgId, name: &str, switch: DnssecSwitch) -> Result<At<Zone>> {
        let hosting = self.hosting()?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let catalog = tx.catalog_lock().await?;
                let zone = self.locked(tx, org, name, &Expected::Any).await?;
                if switch.enabled == (zone.dnssec != DnssecState::Off) {
                    return Ok(Outcome::Unchanged(At { serial: zone.serial, value: self.shown(&zone)? }));
                }
                let now = self.store.world().now();
                let dnssec = if switch.enabled { DnssecState::Signing } else { DnssecState::Off };
                let serial = zone.next_serial(now).wrapping_add(AHEAD);
                let zone = ZoneRecord { dnssec, ds: Vec::new(), serial, ..zone };
                // A signer takes the new group with the zone's next transfer, and needs the whole zone for it.
                tx.zone_raise(zone.id, serial).await?;
                let look_at = hosting.observes.then(|| now.plus_seconds(SOON));
                tx.zone_set_dnssec(zone.id, dnssec, &zone.ds, look_at).await?;
                let group = self.edits(tx, &catalog, member(&zone, true), Some(ManagedBy::System)).await?;
                self.write(tx, catalog, &group, JOURNAL).await?;
                self.announce(tx, &Notice::of_group(&zone.name)).await?;
                let name = if switch.enabled { "dns.dnssec.on" } else { "dns.dnssec.off" };
                let event = Event::in_org(name, org, zone.id, json!({ "zone": zone.name.as_str() }));
                Ok(Outcome::Changed(At { serial, value: self.shown(&zone)? }, event))
            })
            .await
    }

    /// Records which DS records the parent is given. None at all means "not yet", and changes nothing.
    ///
    /// # Errors
    /// [`DnsError::Field`] for what is no DS record, [`DnsError::DnssecOff`], [`DnsError::ZoneNotFound`].
    pub async fn ds_set(&self, actor: &Actor, org: OrgId, name: &str, report: DsReport) -> Result<At<Zone>> {
        self.hosting()?;
        let ds = report.ds.into_iter().enumerate().map(checked).collect::<Result<Vec<Ds>>>()?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let zone = self.locked(tx, org, name, &Expected::Any).await?;
                if zone.dnssec == DnssecState::Off {
                    return Err(DnsError::DnssecOff);
                }
                let (look_at, serial) = (self.hosting()?.observes.then(|| self.store.world().now()), zone.serial);
                let (zone, recorded) = record(tx, zone, ds, look_at).await?;
                let answer = At { serial, value: self.shown(&zone)? };
                let data = json!({ "zone": zone.name.as_str(), "ds": zone.ds });
                let event = Event::in_org("dns.ds.set", org, zone.id, data);
                Ok(if recorded { Outcome::Changed(answer, event) } else { Outcome::Unchanged(answer) })
            })
            .await
    }

    /// Looks at the signer of every zone that is due: one round of a pass. Several processes share the work.
    ///
    /// # Errors
    /// [`DnsError::Store`]; what was noted until then stays.
    pub async fn signers_look(&self, signer: &Signer) -> Result<usize> {
        let mut looked_at = 0;
        loop {
            let now = self.store.world().now();
            let due = self.store.connection().await?.looks_due(now, now.plus_seconds(60), AT_ONCE).await?;
            if due.is_empty() {
                return Ok(looked_at);
            }
            looked_at += due.len();
            // Together, so that a signer that is away costs one patience and not one for each zone.
            let seen = join_all(due.iter().map(|looked| signer.look(&looked.name))).await;
            for (looked, seen) in due.iter().zip(seen) {
                self.conclude(looked, seen.map_err(|unseen| unseen.to_string())).await?;
            }
        }
    }

    /// Notes what was seen, records the DS records that the signer asks for, and raises the serial where the signer
    /// would not take the zone otherwise.
    async fn conclude(&self, looked: &Looked, seen: std::result::Result<Observation, String>) -> Result<()> {
        let now = self.store.world().now();
        let view = match (seen, &looked.before) {
            (Ok(Observation { serial, keys, cds }), _) => {
                SignerView { serial, keys, cds: present(&cds), error: None, observed_at: now }
            }
            // What was seen last is known still.
            (Err(error), Some(before)) => SignerView { error: Some(error), observed_at: now, ..before.clone() },
            (Err(error), None) => {
                SignerView { serial: None, keys: Vec::new(), cds: Vec::new(), error: Some(error), observed_at: now }
            }
        };
        let wanted = looked.dnssec != DnssecState::Off;
        let signed = !view.keys.is_empty();
        let settled = view.serial.is_some() && signed == wanted;
        if view.error.is_none() && wanted && settled && asks_anew(looked, &view) {
            self.record_observed(looked, &view.cds).await?;
        }
        let stuck = view.error.is_none() && is_stuck(looked, &view, settled);
        let look_at = match &view.error {
            Some(_) => Some(now.plus_seconds(FAILED)),
            // A large zone takes a while to be transferred and signed anew.
            None if stuck => Some(now.plus_seconds(FAILED)),
            None if !settled => Some(now.plus_seconds(SOON)),
            // Nothing more to see where nothing is signed.
            None => wanted.then(|| now.plus_seconds(CALM)),
        };
        self.store
            .observe(async |tx: &mut Connection| {
                if stuck && let Some(zone) = tx.zone_lock_by_id(looked.id).await? {
                    let serial = serial::next(now, zone.serial, view.serial);
                    tx.zone_raise(zone.id, serial).await?;
                    self.announce(tx, &Notice::of(&zone)).await?;
                }
                tx.look_note(looked, &view, look_at).await?;
                Ok(())
            })
            .await
    }

    async fn record_observed(&self, looked: &Looked, cds: &[Ds]) -> Result<()> {
        self.store
            .transaction(&Actor::service("dnssec"), async |tx: &mut Connection| {
                // What somebody reported, or switched, since the look began is not undone.
                let same = |zone: &ZoneRecord| zone.dnssec == looked.dnssec && zone.ds == looked.ds;
                let zone = tx.zone_lock_by_id(looked.id).await?.filter(same);
                let Some(zone) = zone else { return Ok(Outcome::Unchanged(())) };
                let (zone, recorded) = record(tx, zone, cds.to_vec(), Some(self.store.world().now())).await?;
                let data = json!({ "zone": zone.name.as_str(), "ds": zone.ds });
                let event = Event::in_org("dns.ds.set", looked.org, zone.id, data);
                Ok(if recorded { Outcome::Changed((), event) } else { Outcome::Unchanged(()) })
            })
            .await
    }
}

/// Whether the signer asks for other DS records than it did: what somebody reported since is not undone.
fn asks_anew(looked: &Looked, view: &SignerView) -> bool {
    let before = looked.before.as_ref().map(|before| &before.cds);
    !view.cds.is_empty()
        && (looked.ds.is_empty() || before.is_some_and(|before| !before.is_empty() && *before != view.cds))
}

/// Whether the signer holds on to what it has: its serial is ahead of the zone's, it was at the last look already, and
/// what it serves is not what it is to serve.
fn is_stuck(looked: &Looked, view: &SignerView, settled: bool) -> bool {
    let Some(there) = view.serial else { return false };
    let before = looked.before.as_ref().and_then(|before| before.serial);
    let unsigned_ahead = looked.dnssec == DnssecState::Off && serial::is_newer(there, looked.serial);
    (!settled || unsigned_ahead) && before == Some(there)
}

async fn record(
    tx: &mut Connection,
    zone: ZoneRecord,
    mut ds: Vec<Ds>,
    look_at: Option<Time>,
) -> Result<(ZoneRecord, bool)> {
    ds.sort_unstable();
    ds.dedup();
    if ds.is_empty() || (ds == zone.ds && zone.dnssec == DnssecState::DsPending) {
        return Ok((zone, false));
    }
    tx.zone_set_dnssec(zone.id, DnssecState::DsPending, &ds, look_at).await?;
    Ok((ZoneRecord { dnssec: DnssecState::DsPending, ds, ..zone }, true))
}

/// A DS record as it is kept: its digest in capitals, and as long as its type has it.
fn checked((place, ds): (usize, Ds)) -> Result<Ds> {
    let field = |name: &str, message: &str| Err(Malformed::new(format!("ds[{place}].{name}"), message).into());
    let digits = match ds.digest_type {
        1 => Some(40),
        2 | 3 => Some(64),
        4 => Some(96),
        _ => None,
    };
    let length = ds.digest.len();
    if !ds.digest.bytes().all(|b| b.is_ascii_hexdigit()) || length == 0 || length % 2 == 1 || length > 128 {
        return field("digest", "must be bytes in hexadecimal");
    }
    if digits.is_some_and(|digits| digits != length) {
        return field("digest", "has not the length that its type has");
    }
    if ds.algorithm == 0 {
        return field("algorithm", "0 is none (RFC 8078 section 4: it asks for the DS records to go)");
    }
    Ok(Ds { digest: ds.digest.to_ascii_uppercase(), ..ds })
}

/// What CDS records ask for; the one that asks for none (RFC 8078 section 4) is no DS record.
fn present(cds: &[Ds]) -> Vec<Ds> {
    let upper = |ds: &Ds| Ds { digest: ds.digest.to_ascii_uppercase(), ..ds.clone() };
    let mut ds: Vec<Ds> = cds.iter().filter(|ds| ds.algorithm != 0).map(upper).collect();
    ds.sort_unstable();
    ds.dedup();
    ds
}
