//! The delegations of deleted zones. A deleted zone may still be delegated to this platform's nameservers. Any
//! organization that creates a zone with its name, or with a name above or below it, would then answer for the domain.
//! So only the former organization may create such a zone.

use std::sync::Arc;
use std::time::Duration;

use kernel::audit::Actor;
use kernel::ownership::{VerifyRecord, ZoneProof};
use kernel::{KeyedSemaphores, OrgId, Time, ZoneId};
use store::Connection;
use tokio::sync::OwnedSemaphorePermit;

use super::takeover::Authority;
use super::{Dns, Result};
use crate::ZoneName;
use crate::error::DnsError;
use crate::ports::{LookupFailure, NsRecords, Resolver, TxtRecords};
use crate::repository::{
    DeletedZone, DeletedZoneRepository as _, HeldZone, ReservationRepository as _, ZoneRecord, ZoneRepository as _,
};

/// The timeout of a check.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(4);

/// The maximum number of checks before the creation of a zone. Several checks are needed if there are many zones, or if
/// they change concurrently.
const MAX_CHECKS: usize = 4;

/// The number of zones, and of deleted zones, in one check.
const MAX_CHECKED_ZONES: i64 = 50;

/// The number of concurrent checks of an organization, so that one organization cannot exhaust the resolver.
const MAX_CHECKS_PER_ORG: usize = 4;

/// The maximum number of deleted zones that are stored for an organization. The oldest are removed. It is as large as
/// the number of zones in the pro plan.
const MAX_DELETED_ZONES: i64 = 1000;

/// The time after the deletion of a zone at which the background job first checks its delegation: 30 days.
const FIRST_CHECK_SECONDS: i64 = 30 * 24 * 3600;

/// The time after which the background job checks a delegation again.
const CHECK_INTERVAL_SECONDS: i64 = 24 * 3600;

/// Looks up delegations. All organizations share the resolver.
#[derive(Debug)]
pub(super) struct Delegations {
    resolver: Arc<dyn Resolver>,
    /// The permits for checks.
    permits: KeyedSemaphores<OrgId>,
}

/// The public delegation of a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Delegation {
    /// The delegation does not exist, or names only nameservers of others.
    Elsewhere,
    /// The delegation names these nameservers, which belong to this platform.
    Here(Vec<String>),
    /// The nameservers of the delegation do not serve the zone. For a deleted zone, this includes ours.
    Broken,
    /// The lookup failed for this reason.
    Unknown(String),
}

impl Delegations {
    pub(super) fn new(resolver: Arc<dyn Resolver>) -> Self {
        Self { resolver, permits: KeyedSemaphores::new(MAX_CHECKS_PER_ORG) }
    }

    /// Returns a permit for a check.
    pub(super) fn permit(&self, org: OrgId) -> Result<OwnedSemaphorePermit> {
        self.permits
            .of(org)
            .try_acquire_owned()
            .map_err(|_| DnsError::DelegationUnknown("too many concurrent checks for this organization".to_owned()))
    }

    /// Looks up the TXT records at the names of these records, in their order.
    pub(super) async fn txt(&self, records: &[VerifyRecord]) -> Vec<TxtRecords> {
        let names: Vec<String> = records.iter().map(|record| record.name.clone()).collect();
        self.resolver.txt(&names, LOOKUP_TIMEOUT).await
    }

    /// Looks up the delegations of zones, in the order of the zones. Distinguishes [`Delegation::Broken`] from
    /// [`Delegation::Unknown`] only if the zones share a top-level domain.
    pub(super) async fn find(&self, zones: &[&ZoneName], ours: &[String]) -> Vec<Delegation> {
        let mut names: Vec<String> = zones.iter().map(|zone| zone.as_str().to_owned()).collect();
        // Also look up the top-level domain. If the resolver fails for it as well, the resolver itself is broken.
        names.extend(names.first().and_then(|name| name.rsplit('.').next()).map(str::to_owned));
        let mut found = self.resolver.ns(&names, LOOKUP_TIMEOUT).await;
        let control = found.pop().filter(|_| found.len() == zones.len());
        let Some(control) = control else {
            return vec![Delegation::Unknown("the resolver returned too few results".to_owned()); zones.len()];
        };
        let resolver_works = matches!(control, Ok(_) | Err(LookupFailure::NoSuchName));
        found.into_iter().map(|records| classify(records, ours, resolver_works)).collect()
    }
}

fn classify(records: NsRecords, ours: &[String], resolver_works: bool) -> Delegation {
    match records {
        Ok(targets) => {
            let here: Vec<String> = targets.into_iter().filter(|target| ours.contains(target)).collect();
            if here.is_empty() { Delegation::Elsewhere } else { Delegation::Here(here) }
        }
        Err(LookupFailure::NoSuchName) => Delegation::Elsewhere,
        Err(LookupFailure::ServerFailure) if resolver_works => Delegation::Broken,
        Err(LookupFailure::ServerFailure) => Delegation::Unknown("the resolver fails for all names".to_owned()),
        Err(LookupFailure::Unavailable(reason)) => Delegation::Unknown(reason),
    }
}

impl Dns {
    /// Checks the zones and the deleted zones of other organizations that overlap with the name of a new zone. Returns
    /// the organization's proof that it may create the zone. Removes the deleted zones that are not delegated here.
    ///
    /// `proved` is the result of [`Dns::prove`], with the time before it, if it is already known. Otherwise it is looked
    /// up if zones overlap.
    ///
    /// Call this outside transactions and without a connection, because the lookups take seconds.
    pub(super) async fn resolve_conflicts(
        &self,
        actor: &Actor,
        org: OrgId,
        name: &ZoneName,
        mut proved: Option<(Time, Authority)>,
    ) -> Result<ZoneProof> {
        let mut proof = ZoneProof { at: proved.as_ref().map(|(at, _)| *at), checked: Vec::new() };
        for _ in 0..MAX_CHECKS {
            let conflicts = find_conflicts(&mut *self.store.connection().await?, org, name, &proof).await?;
            if conflicts.is_empty() {
                break;
            }
            // The zones first: without a proof of ownership, the deleted zones do not matter.
            if !conflicts.held.is_empty() {
                let (at, authority) = match proved.take() {
                    Some(proved) => proved,
                    None => {
                        let at = self.store.clock_rng().now();
                        match self.prove(org, name).await {
                            Err(unproved @ DnsError::ZoneTaken { .. }) => {
                                return Err(self.refusal(org, name, &conflicts.held, unproved).await?);
                            }
                            proved => (at, proved?),
                        }
                    }
                };
                self.require_weaker(org, (name, &authority), &conflicts.held).await?;
                proof.at = Some(at);
                proof.checked.extend(conflicts.held.iter().map(|zone| zone.id));
                proved = Some((at, authority));
                if conflicts.is_full() {
                    self.release_held(actor, org, name, &proof).await?;
                }
            }
            if !conflicts.deleted.is_empty() {
                self.check_delegations(org, &conflicts.deleted).await?;
            }
        }
        Ok(proof)
    }

    async fn check_delegations(&self, org: OrgId, zones: &[DeletedZone]) -> Result<()> {
        let _permit = self.delegations.permit(org)?;
        let names: Vec<&ZoneName> = zones.iter().map(|zone| &zone.name).collect();
        let delegations = self.delegations.find(&names, self.hosting()?.nameservers()).await;
        self.purge_undelegated(zones, &delegations).await?;
        let mut unknown = None;
        for (zone, delegation) in zones.iter().zip(delegations) {
            let name = zone.name.as_str();
            let nameservers = match delegation {
                Delegation::Elsewhere => continue,
                Delegation::Unknown(reason) => {
                    unknown.get_or_insert(DnsError::DelegationUnknown(format!("{name}: {reason}")));
                    continue;
                }
                Delegation::Here(nameservers) => nameservers,
                Delegation::Broken => Vec::new(),
            };
            return Err(DnsError::ZoneDelegated { zone: name.to_owned(), nameservers });
        }
        unknown.map_or(Ok(()), Err)
    }

    /// Removes the deleted zones that are no longer delegated here, and returns their number. Checks a deleted zone for
    /// the first time 30 days after its deletion. If the lookup fails, the zone is kept. Several processes share the
    /// work.
    ///
    /// # Errors
    /// Returns [`DnsError::Store`]. Zones that were removed before the error stay removed.
    pub async fn purge_deleted_zones(&self) -> Result<usize> {
        let Some(hosting) = self.hosting.as_deref() else { return Ok(0) };
        let mut purged = 0;
        loop {
            let now = self.store.clock_rng().now();
            let leased_until = now.plus_seconds(CHECK_INTERVAL_SECONDS);
            let due = self.store.connection().await?.deleted_zones_lease(now, leased_until, MAX_CHECKED_ZONES).await?;
            if due.is_empty() {
                return Ok(purged);
            }
            let names: Vec<&ZoneName> = due.iter().map(|zone| &zone.name).collect();
            let delegations = self.delegations.find(&names, hosting.nameservers()).await;
            purged += self.purge_undelegated(&due, &delegations).await?;
            // If the resolver is broken, stop: each further batch would take seconds.
            if delegations.iter().all(|it| matches!(it, Delegation::Unknown(_))) {
                return Ok(purged);
            }
        }
    }

    /// Stores a zone as deleted, in the transaction that deletes it.
    pub(super) async fn remember_deleted(&self, tx: &mut Connection, org: OrgId, zone: &ZoneRecord) -> Result<()> {
        let now = self.store.clock_rng().now();
        let (serial, first_check_at) = (zone.next_serial(now), now.plus_seconds(FIRST_CHECK_SECONDS));
        Ok(tx.deleted_zone_insert(org, zone, serial, now, first_check_at, MAX_DELETED_ZONES).await?)
    }

    async fn purge_undelegated(&self, zones: &[DeletedZone], delegations: &[Delegation]) -> Result<usize> {
        let released = zones.iter().zip(delegations).filter(|(_, delegation)| **delegation == Delegation::Elsewhere);
        let released: Vec<ZoneId> = released.map(|(zone, _)| zone.id).collect();
        self.store.connection().await?.deleted_zones_purge(&released).await?;
        Ok(released.len())
    }
}

/// The zones of other organizations that overlap with the name of a new zone.
pub(super) struct Conflicts {
    held: Vec<HeldZone>,
    deleted: Vec<DeletedZone>,
}

impl Conflicts {
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.deleted.is_empty()
    }

    /// Returns whether there may be further zones.
    fn is_full(&self) -> bool {
        self.held.len() as i64 == MAX_CHECKED_ZONES
    }
}

/// Returns the zones and the deleted zones of other organizations that overlap with the name of a new zone, and that the
/// proof does not cover. Fails if the name overlaps with one that another organization is registering. If the caller holds the
/// catalog lock, the result is valid until the transaction ends.
pub(super) async fn find_conflicts(
    tx: &mut Connection,
    org: OrgId,
    name: &ZoneName,
    proof: &ZoneProof,
) -> Result<Conflicts> {
    if tx.reservation_overlaps(org, name).await? {
        return Err(taken(name));
    }
    let held = tx.zones_overlapping(org, name, proof, MAX_CHECKED_ZONES).await?;
    let deleted = tx.deleted_zones_related(org, name, proof.at, MAX_CHECKED_ZONES).await?;
    Ok(Conflicts { held, deleted })
}

/// Checks that the name overlaps with no zone of another organization, and with no name that another organization is
/// registering. Zones do not matter if the organization already has the zone of this name. If the caller holds the
/// catalog lock, the result is valid until the transaction ends.
pub(super) async fn check_overlap(tx: &mut Connection, org: OrgId, name: &ZoneName) -> Result<()> {
    let is_reserved = tx.reservation_overlaps(org, name).await?;
    let overlaps = async |tx: &mut Connection| {
        let others = tx.zones_overlapping(org, name, &ZoneProof::default(), 1).await?;
        Ok::<_, DnsError>(!others.is_empty() && tx.zone_find(org, name).await?.is_none())
    };
    if is_reserved || overlaps(tx).await? { Err(taken(name)) } else { Ok(()) }
}

/// Returns the error for a name that cannot be taken over.
pub(super) fn taken(name: &ZoneName) -> DnsError {
    DnsError::ZoneTaken { name: name.as_str().to_owned(), takeover: None }
}
