//! Takeovers of zones. Any organization can create a zone for a domain that is not delegated here yet. So that it cannot
//! keep the owner of the domain from its own zone, the owner takes the zone over with a TXT record (contract section 6).

use std::collections::BTreeMap;

use kernel::audit::Event;
use kernel::ownership::{TakeoverObstacle, VerifyRecord, verification_token};
use kernel::{OrgId, ZoneId};
use serde_json::json;
use store::Connection;

use super::delegation::{Delegation, taken};
use super::edit::RrsetChange;
use super::{Dns, Result};
use crate::ZoneName;
use crate::error::DnsError;
use crate::ports::{LookupFailure, Notice, TxtRecords};
use crate::repository::{HeldZone, ZoneRepository as _};

/// The service that writes the audit events of the organizations that lose a zone.
const SERVICE: &str = "zones";

/// The zones of other organizations that overlap with a name, and that do not prevent an organization from creating its
/// zone: it has proved that it owns the name. The zones at and below the name are taken over. A zone above the name
/// stays, because its domain may have another owner.
#[derive(Debug, Clone, Default)]
pub struct ProvedZones(pub Vec<ZoneId>);

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
    /// Checks that the organization proves its ownership of a name by TXT, and that each of these zones, which overlap
    /// with the name, may give way: it is neither delegated here nor proved by its organization's TXT record.
    ///
    /// Call this outside transactions and without a connection, because the lookups take seconds.
    pub(super) async fn require_stronger_proof(&self, org: OrgId, name: &ZoneName, held: &[HeldZone]) -> Result<()> {
        let _permit = self.delegations.permit(org)?;
        let record = proof(org, name);
        let refused = |obstacle| DnsError::ZoneTaken {
            name: name.as_str().to_owned(),
            takeover: Some((record.clone(), obstacle)),
        };
        let published = self.delegations.txt(std::slice::from_ref(&record)).await.pop().unwrap_or_else(no_record);
        match published {
            Ok(texts) if texts.contains(&record.value) => {}
            Ok(_) | Err(LookupFailure::NoSuchName) => return Err(refused(TakeoverObstacle::NotPublished)),
            Err(failure) => return Err(refused(TakeoverObstacle::LookupFailed(failure.to_string()))),
        }
        let lost: Vec<&HeldZone> = held.iter().filter(|zone| zone.name.is_within(name)).collect();
        if lost.is_empty() {
            return Ok(());
        }
        let names: Vec<&ZoneName> = lost.iter().map(|zone| &zone.name).collect();
        let delegations = self.delegations.find(&names, self.hosting()?.nameservers()).await;
        let proofs: Vec<VerifyRecord> = lost.iter().map(|zone| proof(zone.org, &zone.name)).collect();
        let published = self.delegations.txt(&proofs).await;
        for ((zone, delegation), (of_holder, published)) in
            lost.iter().zip(delegations).zip(proofs.iter().zip(published))
        {
            let zone = zone.name.as_str().to_owned();
            match delegation {
                Delegation::Elsewhere => {}
                Delegation::Here(nameservers) => return Err(DnsError::ZoneInUse { zone, nameservers }),
                Delegation::Broken => return Err(DnsError::ZoneInUse { zone, nameservers: Vec::new() }),
                Delegation::Unknown(reason) => return Err(DnsError::DelegationUnknown(format!("{zone}: {reason}"))),
            }
            match published {
                Ok(texts) if texts.contains(&of_holder.value) => return Err(refused(TakeoverObstacle::HolderProves)),
                Ok(_) | Err(LookupFailure::NoSuchName) => {}
                Err(failure) => return Err(DnsError::DelegationUnknown(format!("{}: {failure}", of_holder.name))),
            }
        }
        Ok(())
    }

    /// Deletes the proved zones at and below the name, in the transaction that creates the zone of this name and has
    /// locked the catalog. Their organizations get a notification and audit events, which do not name the other
    /// organization.
    pub(super) async fn take_over(
        &self,
        tx: &mut Connection,
        name: &ZoneName,
        proved: &ProvedZones,
    ) -> Result<Replaced> {
        let mut replaced = Replaced::default();
        let mut lost: BTreeMap<OrgId, Vec<String>> = BTreeMap::new();
        for &id in &proved.0 {
            let Some(zone) = tx.zone_lock_by_id(id).await?.filter(|zone| zone.name.is_within(name)) else { continue };
            let Some(holder) = zone.org else { continue };
            let zone_name = zone.name.as_str().to_owned();
            if self.registrations.is_registered(tx, holder, &zone_name).await? {
                return Err(taken(name));
            }
            replaced.delisted.extend(self.remove_zone(tx, holder, &zone).await?);
            replaced.count += 1;
            if zone.name == *name {
                replaced.serial = Some(zone.next_serial(self.store.clock_rng().now()));
            }
            let event = Event::in_org("dns.zone.taken_over", holder, zone.id, json!({ "zone": zone_name }));
            self.store.append_system_event(tx, SERVICE, &event).await?;
            lost.entry(holder).or_default().push(zone_name);
        }
        for (holder, zones) in lost {
            self.organizations.raise(tx, holder, Notice::ZonesTakenOver { zones }).await?;
        }
        Ok(replaced)
    }
}

/// Returns the record with which an organization proves that it owns a name.
fn proof(org: OrgId, name: &ZoneName) -> VerifyRecord {
    VerifyRecord::txt(name.as_str(), &verification_token(org, name.as_str()))
}

fn no_record() -> TxtRecords {
    Err(LookupFailure::Unavailable("the resolver returned no result".to_owned()))
}
