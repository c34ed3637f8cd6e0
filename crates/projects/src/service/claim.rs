//! Claims of hostnames: reservations, limits and takeovers.
//!
//! A claim reserves its name. If another project holds the name, a project can still get it: it publishes its TXT
//! record, which is the strongest proof, and claims the name again. The lookup runs outside any transaction. The
//! transaction that takes the name over then checks that the holder has not changed since the lookup.

use kernel::audit::{Actor, Event};
use kernel::ownership::{TakeoverObstacle, VerifyRecord, verification_token};
use kernel::{InvalidField, NamedProject, Plan, ProjectId, Time, ZoneId};
use serde_json::json;
use store::{Connection, Outcome};

use super::hostname::{CLAIM_SECONDS, INTERACTIVE_TIMEOUT, JOB};
use super::verification::ACTIVE_CHECK_SECONDS;
use super::{Org, Projects, Result};
use crate::error::{HostnameLimit, ProjectError};
use crate::hostname::HostName;
use crate::model::{Hostname, HostnameKind, HostnameState, HostnameTls, NewHostname, Proof};
use crate::ports::{HostedZone, Notice};
use crate::repository::{
    ClaimRepository as _, Holder, HolderRepository as _, HostnameRepository as _, NameStatus, NewClaim, Party,
    ProjectRepository as _, Takeover,
};

/// How often a claim is attempted if its name changes concurrently.
const MAX_ATTEMPTS: usize = 3;

/// The time for which an organization's first claim of a name is stored if the organization does not prove its
/// ownership: 90 days.
const FIRST_CLAIM_SECONDS: i64 = 90 * 24 * 3600;

/// The message of a claim that does not reserve its name.
const UNRESERVED: &str = "Your organization did not verify this hostname within seven days of its first claim. \
    Publish one of the records. Until then, another project can claim the hostname.";

/// A name that a project claims.
struct Candidate<'a> {
    name: &'a str,
    org: &'a Org,
    project: ProjectId,
    /// The zones in which the caller may claim a name; `None` for all of the organization.
    zones: Option<&'a [ZoneId]>,
    token: String,
}

/// The result of an attempt to claim a name.
enum Attempt {
    /// The project has the hostname.
    Claimed(Hostname),
    /// Another project has it.
    Held(Holder),
    /// Another project claimed or released the name concurrently.
    Changed,
}

impl Projects {
    /// Claims a hostname for a project. Returns the existing hostname if the project already has it. A name in a hosted
    /// zone of the organization becomes active immediately. A name that another project has becomes active if the TXT
    /// record of the claiming project is published and the other project does not prove its ownership by TXT. A caller
    /// who is restricted to `zones` cannot claim a name in another zone of the organization, because the claim writes
    /// records there.
    ///
    /// # Errors
    /// Returns [`ProjectError::Field`] for an invalid hostname, [`ProjectError::HostnameHeld`],
    /// [`ProjectError::HostnameLimit`], [`ProjectError::ZoneForbidden`] or [`ProjectError::TooManyChecks`].
    pub async fn hostname_add(
        &self,
        actor: &Actor,
        org: &Org,
        project: ProjectId,
        zones: Option<&[ZoneId]>,
        new: NewHostname,
    ) -> Result<Hostname> {
        let name =
            HostName::parse(&new.name, &self.site.own_domains).map_err(|error| InvalidField::new("name", error))?;
        let name = name.as_str();
        let candidate = Candidate { name, org, project, zones, token: verification_token(project, name) };
        for _ in 0..MAX_ATTEMPTS {
            let holder = match self.claim(actor, &candidate).await? {
                Attempt::Claimed(hostname) => return Ok(hostname.with_verify_records(&self.site.fallback_origin)),
                Attempt::Held(holder) => holder,
                Attempt::Changed => continue,
            };
            self.require_stronger_proof(&candidate, &holder).await?;
            if let Some(hostname) = self.take_over(actor, &candidate, &holder).await? {
                return Ok(hostname);
            }
        }
        Err(candidate.held(TakeoverObstacle::Changed))
    }

    /// Claims a name that no other project reserves.
    async fn claim(&self, actor: &Actor, candidate: &Candidate<'_>) -> Result<Attempt> {
        let Candidate { name, org, project, ref token, .. } = *candidate;
        let now = self.store.clock_rng().now();
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                tx.project_lock(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                let status = tx.name_status(org.id, project, name).await?;
                match &status.holder {
                    Some(holder) if holder.yields_to(project, now) => {
                        let displaced = self.displace(tx, holder, candidate).await?;
                        if !displaced {
                            return Ok(Outcome::Unchanged(Attempt::Changed));
                        }
                    }
                    Some(holder) if holder.project == project => {
                        let own = tx.hostname_find(project, name).await?;
                        return Ok(Outcome::Unchanged(own.map_or(Attempt::Changed, Attempt::Claimed)));
                    }
                    Some(holder) => {
                        self.accessible_zone(tx, candidate).await?;
                        return Ok(Outcome::Unchanged(Attempt::Held(holder.clone())));
                    }
                    None => {}
                }
                let zone = self.accessible_zone(tx, candidate).await?;
                let is_proved = zone.is_some() && !status.held_by_another_org;
                self.require_hostnames_left(org.plan, &status, !is_proved)?;
                let new = new_claim(candidate, &status, now);
                if !tx.claim_insert(&new).await? {
                    return Ok(Outcome::Unchanged(Attempt::Changed));
                }
                let (added, data) = if is_proved {
                    let claim = tx.claim_find(project, name).await?.ok_or(ProjectError::HostnameNotFound)?;
                    self.attach(tx, &claim, Proof::Zone, now).await?;
                    let added = tx.hostname_find(project, name).await?.ok_or(ProjectError::HostnameNotFound)?;
                    (added, json!({ "hostname": name, "proof": Proof::Zone }))
                } else {
                    (pending(name, token, &new, status.held_by_another_org), json!({ "hostname": name }))
                };
                let event = Event::in_org("hostname.add", org.id, project, data);
                Ok(Outcome::Changed(Attempt::Claimed(added), event))
            })
            .await
    }

    /// Returns the organization's zone that contains the name. Rejects a zone to which the caller has no access.
    async fn accessible_zone(&self, tx: &mut Connection, candidate: &Candidate<'_>) -> Result<Option<HostedZone>> {
        let zone = self.zones.zone_of(tx, candidate.org.id, candidate.name).await?;
        let accessible = |zone: &HostedZone| candidate.zones.is_none_or(|zones| zones.contains(&zone.id));
        if zone.as_ref().is_none_or(accessible) { Ok(zone) } else { Err(ProjectError::ZoneForbidden) }
    }

    /// Deletes a claim that no longer reserves the name. Returns false when it changed concurrently.
    async fn displace(&self, tx: &mut Connection, holder: &Holder, candidate: &Candidate<'_>) -> Result<bool> {
        if !tx.claim_displace(holder, candidate.name).await? {
            return Ok(false);
        }
        if holder.project != candidate.project {
            let data = json!({ "hostname": candidate.name });
            let event = Event::in_org("hostname.lapse", holder.org, holder.project, data);
            self.store.append_system_event(tx, JOB, &event).await?;
        }
        Ok(true)
    }

    /// Checks the limits of the project's plan. The caller holds the project's row lock.
    fn require_hostnames_left(&self, plan: Plan, status: &NameStatus, is_pending: bool) -> Result<()> {
        let limits = self.limits.for_plan(plan);
        let custom = (HostnameLimit::Custom, limits.custom_hostnames, status.custom);
        let pending = (HostnameLimit::Pending, limits.pending_hostnames, status.pending);
        for (of, limit, count) in [Some(custom), is_pending.then_some(pending)].into_iter().flatten() {
            if count >= i64::from(limit) {
                return Err(ProjectError::HostnameLimit { of, limit, count, plan });
            }
        }
        Ok(())
    }

    /// Checks that the project's TXT record is published, and that the holder does not prove its ownership by TXT as
    /// well. Both projects publish their records at the same name, so one lookup finds both.
    async fn require_stronger_proof(&self, candidate: &Candidate<'_>, holder: &Holder) -> Result<()> {
        let Some(token) = holder.token.as_ref().filter(|_| holder.kind == HostnameKind::Custom) else {
            // The name is the holder's default hostname, which has no token and cannot be taken over. Users can claim
            // such a name only if the platform's domain has changed since.
            return Err(ProjectError::HostnameTaken(candidate.name.to_owned()));
        };
        let record = candidate.record();
        let permit = self.lookups.acquire(candidate.org.id).await.ok_or(ProjectError::TooManyChecks)?;
        let texts = self.resolver.txt(&record.name, INTERACTIVE_TIMEOUT).await;
        drop(permit);
        let texts = match texts {
            Ok(texts) => texts,
            Err(failure) if failure.transient => {
                return Err(candidate.held(TakeoverObstacle::LookupFailed(failure.message)));
            }
            Err(_) => Vec::new(),
        };
        if !texts.contains(&record.value) {
            return Err(candidate.held(TakeoverObstacle::NotPublished));
        }
        let of_holder = VerifyRecord::txt(candidate.name, token);
        if holder.state == HostnameState::Active && texts.contains(&of_holder.value) {
            return Err(candidate.held(TakeoverObstacle::HolderProves));
        }
        Ok(())
    }

    /// Takes the hostname over from another project, after the claiming project proved its ownership by TXT. Returns
    /// `None` if the holder's claim has changed since `seen` was read, because the proof was checked against that
    /// state.
    async fn take_over(&self, actor: &Actor, candidate: &Candidate<'_>, seen: &Holder) -> Result<Option<Hostname>> {
        let Candidate { name, org, project, ref token, .. } = *candidate;
        let now = self.store.clock_rng().now();
        let next_check_at = now.plus_seconds(ACTIVE_CHECK_SECONDS);
        let takeover = Takeover { name, project, org: org.id, token, at: now, next_check_at };
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let parties = tx.projects_lock([project, seen.project]).await?;
                let party = |id: ProjectId| parties.iter().find(|party| party.project == id);
                let winner = party(project).filter(|it| it.org == org.id).ok_or(ProjectError::NotFound)?;
                let Some(loser) = party(seen.project) else { return Ok(Outcome::Unchanged(None)) };
                self.accessible_zone(tx, candidate).await?;
                let status = tx.name_status(org.id, project, name).await?;
                self.require_hostnames_left(org.plan, &status, false)?;
                if status.holder.as_ref() != Some(seen) || !tx.claim_take_over(&takeover, seen).await? {
                    return Ok(Outcome::Unchanged(None));
                }
                let was_served = seen.state == HostnameState::Active;
                if was_served {
                    self.zones.unlink(tx, loser.org, &[name]).await?;
                }
                self.link(tx, org.id, project, name).await?;
                if was_served {
                    self.placements.lock(tx, name, &[loser.project, project]).await?;
                    self.update_desired(tx, loser.project).await?;
                }
                self.update_desired(tx, project).await?;
                self.announce_takeover(tx, name, winner, loser).await?;
                let hostname = tx.hostname_find(project, name).await?.ok_or(ProjectError::HostnameNotFound)?;
                let data = json!({ "hostname": name, "proof": Proof::Txt, "takenOver": true });
                Ok(Outcome::Changed(Some(hostname), Event::in_org("hostname.add", org.id, project, data)))
            })
            .await
    }

    /// Notifies both organizations of a takeover, and writes the audit event of the organization that lost the
    /// hostname. Neither organization learns the identity of the other.
    async fn announce_takeover(&self, tx: &mut Connection, name: &str, winner: &Party, loser: &Party) -> Result<()> {
        let hostname = || name.to_owned();
        let named = |party: &Party| NamedProject { id: party.project, name: party.name.clone() };
        let notice = Notice::HostnameTakenOver { project: named(loser), hostname: hostname() };
        self.organizations.raise(tx, loser.org, notice).await?;
        let notice = Notice::HostnameAcquired { project: named(winner), hostname: hostname() };
        self.organizations.raise(tx, winner.org, notice).await?;
        let event = Event::in_org("hostname.taken_over", loser.org, loser.project, json!({ "hostname": name }));
        Ok(self.store.append_system_event(tx, JOB, &event).await?)
    }

    /// Deletes the first claims that are older than 90 days.
    ///
    /// # Errors
    /// Returns [`ProjectError::Store`].
    pub async fn first_claims_purge(&self) -> Result<()> {
        let before = self.store.clock_rng().now().plus_seconds(-FIRST_CLAIM_SECONDS);
        while store::is_full_batch(self.store.connection().await?.first_claims_purge(before).await?) {}
        Ok(())
    }
}

impl Candidate<'_> {
    /// Returns the record that proves the ownership of the project.
    fn record(&self) -> VerifyRecord {
        VerifyRecord::txt(self.name, &self.token)
    }

    fn held(&self, obstacle: TakeoverObstacle) -> ProjectError {
        ProjectError::HostnameHeld { hostname: self.name.to_owned(), record: self.record(), obstacle }
    }
}

/// Returns the claim to insert. It reserves the name until seven days after the organization's first claim, and then
/// expires. If this time is already over, the claim reserves nothing, and expires seven days from now.
fn new_claim<'a>(candidate: &'a Candidate<'_>, status: &NameStatus, now: Time) -> NewClaim<'a> {
    let Candidate { name, org, project, token, .. } = candidate;
    let reserved_until = status.first_claimed_at.unwrap_or(now).plus_seconds(CLAIM_SECONDS);
    let is_reserved = reserved_until > now;
    let expires_at = if is_reserved { reserved_until } else { now.plus_seconds(CLAIM_SECONDS) };
    let error = (!is_reserved).then_some(UNRESERVED);
    NewClaim { name, project: *project, org: org.id, token, error, at: now, expires_at, reserved_until }
}

/// Returns the hostname of a new claim.
fn pending(name: &str, token: &str, new: &NewClaim<'_>, held_by_another_org: bool) -> Hostname {
    Hostname {
        name: name.to_owned(),
        kind: HostnameKind::Custom,
        state: HostnameState::PendingDns,
        verify: Vec::new(),
        verification_token: Some(token.to_owned()),
        last_error: new.error.map(str::to_owned),
        checks: Vec::new(),
        created_at: new.at,
        verified_at: None,
        tls: HostnameTls::OFF,
        hsts: None,
        held_by_another_org,
    }
}
