//! Takeovers of zones. Any organization can create a zone for a domain that is not delegated here yet. So that it cannot
//! keep the owner of the domain from its own zone, the owner takes the zone over with a TXT record (contract section 6).

use std::collections::BTreeMap;

use kernel::OrgId;
use kernel::audit::{Actor, Event};
use kernel::ownership::{TakeoverObstacle, VerifyRecord, ZoneProof, verification_token};
use serde_json::json;
use store::Connection;

use super::delegation::{Delegation, taken};
use super::edit::RrsetChange;
use super::{Dns, Result, relock_zone};
use crate::ZoneName;
use crate::error::DnsError;
use crate::ports::{LookupFailure, Notice, TxtRecords};
use crate::repository::{HeldZone, ZoneRecord, ZoneRepository as _};

/// The service that writes the audit events of the organizations that lose a zone.
const SERVICE: &str = "zones";

/// How an organization proves that it owns a name.
pub(super) enum Authority {
    /// It published its TXT record. These are all texts at the name of the record.
    Texts(Vec<String>),
    /// It has a zone above the name, and that zone is delegated here.
    ZoneAbove,
}

/// The zones that a new zone replaces.
#[derive(Default)]
pub(super) struct Replaced {
    /// The number of zones.
    pub(super) count: usize,
    /// The changes that remove the zones from the catalog.
    pub(super) delisted: Vec<RrsetChange>,
    /// The next serial of the zone with the same name, if there was one. Nameservers that have the old zone accept only
    /// a higher serial.
    pub(super) serial: Option<u32>,
}

impl Dns {
    /// Looks up how the organization proves that it owns the name.
    pub(super) async fn prove(&self, org: OrgId, name: &ZoneName) -> Result<Authority> {
        let _permit = self.delegations.permit(org)?;
        let above = self.store.connection().await?.zones_enclosing(org, name.as_str()).await?;
        let above: Vec<&ZoneName> = above.iter().filter(|zone| *zone != name).collect();
        if !above.is_empty() {
            let delegations = self.delegations.find(&above, self.hosting()?.nameservers()).await;
            if delegations.iter().any(|delegation| matches!(delegation, Delegation::Here(_))) {
                return Ok(Authority::ZoneAbove);
            }
        }
        let record = record_of(org, name);
        let published = self.delegations.txt(std::slice::from_ref(&record)).await.pop().unwrap_or_else(no_record);
        let obstacle = match published {
            Ok(texts) if texts.contains(&record.value) => return Ok(Authority::Texts(texts)),
            Ok(_) | Err(LookupFailure::NoSuchName) => TakeoverObstacle::NotPublished,
            Err(failure) => TakeoverObstacle::LookupFailed(failure.to_string()),
        };
        Err(refused(name, record, obstacle))
    }

    /// Checks that each of these zones, which overlap with the name, may give way to the organization that owns the
    /// name, or may stay above it.
    ///
    /// Call this outside transactions and without a connection, because the lookups take seconds.
    pub(super) async fn require_weaker(
        &self,
        org: OrgId,
        (name, authority): (&ZoneName, &Authority),
        held: &[HeldZone],
    ) -> Result<()> {
        let texts = match authority {
            Authority::Texts(texts) => texts,
            // The zone above decides on all names below it.
            Authority::ZoneAbove => return Ok(()),
        };
        let _permit = self.delegations.permit(org)?;
        if held.iter().any(|zone| zone.name == *name && texts.contains(&record_of(zone.org, name).value)) {
            return Err(refused(name, record_of(org, name), TakeoverObstacle::HolderProves));
        }
        let below: Vec<&HeldZone> = held.iter().filter(|it| it.name != *name && it.name.is_within(name)).collect();
        let proofs: Vec<VerifyRecord> = below.iter().map(|zone| record_of(zone.org, &zone.name)).collect();
        let names: Vec<&ZoneName> = held.iter().map(|zone| &zone.name).collect();
        let (unused, published) = tokio::join!(self.require_unused(name, &names), self.delegations.txt(&proofs));
        unused?;
        for ((zone, record), published) in below.into_iter().zip(proofs).zip(published) {
            if published.is_ok_and(|texts| texts.contains(&record.value)) {
                return Err(DnsError::ZoneProved { zone: zone.name.as_str().to_owned(), record });
            }
        }
        Ok(())
    }

    /// Returns the error for an organization that does not prove that it owns the name: `unproved`, which names its
    /// record, or the error that it would receive with the record published. `held` are the zones that overlap with the
    /// name. Zones below the name do not count: their names may not be public, and the owner can publish the record.
    ///
    /// Call this outside transactions and without a connection, because the lookups take seconds.
    pub(super) async fn refusal(
        &self,
        org: OrgId,
        name: &ZoneName,
        held: &[HeldZone],
        unproved: DnsError,
    ) -> Result<DnsError> {
        if name.as_str().len() > VerifyRecord::MAX_OWNED_NAME {
            return Ok(taken(name));
        }
        let _permit = self.delegations.permit(org)?;
        let enclosing: Vec<&ZoneName> = held.iter().map(|it| &it.name).filter(|zone| name.is_within(zone)).collect();
        match self.require_unused(name, &enclosing).await {
            Err(in_use @ DnsError::ZoneInUse { .. }) => return Ok(in_use),
            // Without a result of the lookups, the record may help.
            Ok(()) | Err(DnsError::DelegationUnknown(_)) => {}
            Err(error) => return Err(error),
        }
        let Some(holder) = held.iter().find(|zone| zone.name == *name) else { return Ok(unproved) };
        let mut connection = self.store.connection().await?;
        let is_registered = self.registrations.is_registered(&mut connection, holder.org, name.as_str()).await?;
        Ok(if is_registered { taken(name) } else { unproved })
    }

    /// Checks that none of these zones, which overlap with the name, is in use.
    async fn require_unused(&self, name: &ZoneName, zones: &[&ZoneName]) -> Result<()> {
        let delegations = self.delegations.find(zones, self.hosting()?.nameservers()).await;
        for (held, delegation) in zones.iter().copied().zip(delegations) {
            let is_below = held != name && held.is_within(name);
            let zone = held.as_str().to_owned();
            match delegation {
                Delegation::Here(nameservers) => return Err(DnsError::ZoneInUse { zone, nameservers }),
                Delegation::Broken if held == name => {
                    return Err(DnsError::ZoneInUse { zone, nameservers: Vec::new() });
                }
                Delegation::Unknown(reason) if !is_below => {
                    return Err(DnsError::DelegationUnknown(format!("{zone}: {reason}")));
                }
                // The owner of the name may have delegated a name below it to nameservers that are not public.
                Delegation::Elsewhere | Delegation::Broken | Delegation::Unknown(_) => {}
            }
        }
        Ok(())
    }

    /// Deletes the zones below the name that give way, in a separate transaction. This bounds the transaction that
    /// creates the zone. That transaction takes over the zone of the same name, whose serial the new zone continues.
    pub(super) async fn release_held(
        &self,
        actor: &Actor,
        org: OrgId,
        name: &ZoneName,
        proof: &ZoneProof,
    ) -> Result<()> {
        self.store
            .transaction_unaudited_as(actor, async |tx: &mut Connection| {
                let catalog = self.lock_zones_and_catalog(tx, org, name, proof).await?;
                let mut held = held_within(tx, org, name, proof).await?;
                // If the zone of the same name stays, so do the zones below it.
                for zone in held.iter().filter(|it| it.name == *name) {
                    if self.registrations.is_registered(tx, zone.org, name.as_str()).await? {
                        return Err(taken(name));
                    }
                }
                held.retain(|zone| zone.name != *name);
                let replaced = self.take_over(tx, org, name, held).await?;
                self.edit_catalog(tx, catalog, replaced.delisted).await
            })
            .await
    }

    /// Locks the zones that a new zone changes: those of its organization above the name, and those that give way, with
    /// the zones above them. Then locks the catalog, and returns it.
    pub(super) async fn lock_zones_and_catalog(
        &self,
        tx: &mut Connection,
        org: OrgId,
        name: &ZoneName,
        proof: &ZoneProof,
    ) -> Result<ZoneRecord> {
        let held = held_within(tx, org, name, proof).await?;
        let is_takeover = !held.is_empty();
        if is_takeover {
            // The holder can change its zone all the time. Its changes wait for a lock for about a second. With the same
            // timeout, few of them would prevent the takeover.
            tx.wait_longer_for_locks().await?;
        }
        let mut names: Vec<(OrgId, String)> =
            held.into_iter().map(|it| (it.org, it.name.as_str().to_owned())).collect();
        names.push((org, name.as_str().to_owned()));
        self.lock_all_enclosing_zones(tx, &names).await?;
        if is_takeover {
            // The transaction waits for other rows while it holds the catalog.
            tx.reset_lock_timeout().await?;
        }
        Ok(tx.catalog_lock().await?)
    }

    /// Deletes the zones of other organizations that give way to the organization that owns the name, in a transaction
    /// that has locked the catalog. `held` is the result of [`held_within`]. The organizations that lose zones get a
    /// notification and audit events, which do not name the other organization.
    pub(super) async fn take_over(
        &self,
        tx: &mut Connection,
        org: OrgId,
        name: &ZoneName,
        held: Vec<HeldZone>,
    ) -> Result<Replaced> {
        let mut replaced = Replaced::default();
        let mut lost: BTreeMap<OrgId, Vec<String>> = BTreeMap::new();
        for held in held {
            let above = self.lock_zone_above(tx, held.org, &held.name).await?;
            let zone = relock_zone(tx, held.org, &held.name).await?;
            let zone_name = zone.name.as_str().to_owned();
            if self.registrations.is_registered(tx, held.org, &zone_name).await? {
                return Err(taken(name));
            }
            replaced.delisted.extend(self.remove_zone(tx, held.org, above, &zone).await?);
            replaced.count += 1;
            if zone.name == *name {
                replaced.serial = Some(zone.next_serial(self.store.clock_rng().now()));
            }
            let event = Event::in_org("dns.zone.taken_over", held.org, zone.id, json!({ "zone": zone_name }));
            self.store.append_system_event(tx, SERVICE, &event).await?;
            lost.entry(held.org).or_default().push(zone_name);
        }
        for (holder, zones) in lost {
            let notice = Notice::ZonesTakenOver { zones, record: record_of(org, name).name };
            self.organizations.raise(tx, holder, notice).await?;
        }
        Ok(replaced)
    }
}

/// Returns the zones of other organizations at and below the name that give way. If the caller holds the catalog lock,
/// the result is valid until the transaction ends.
pub(super) async fn held_within(
    tx: &mut Connection,
    org: OrgId,
    name: &ZoneName,
    proof: &ZoneProof,
) -> Result<Vec<HeldZone>> {
    let Some(at) = proof.at else { return Ok(Vec::new()) };
    let mut held = tx.zones_overlapping(org, name, &ZoneProof::default(), i64::MAX).await?;
    held.retain(|it| it.name.is_within(name) && (proof.checked.contains(&it.id) || it.created_at >= at));
    Ok(held)
}

/// Returns the record with which an organization proves that it owns a name.
fn record_of(org: OrgId, name: &ZoneName) -> VerifyRecord {
    VerifyRecord::txt(name.as_str(), &verification_token(org, name.as_str()))
}

fn refused(name: &ZoneName, record: VerifyRecord, obstacle: TakeoverObstacle) -> DnsError {
    DnsError::ZoneTaken { name: name.as_str().to_owned(), takeover: Some((record, obstacle)) }
}

fn no_record() -> TxtRecords {
    Err(LookupFailure::Unavailable("the resolver returned no result".to_owned()))
}
