//! The use cases of hostnames: claimed, proved, and looked after.
//!
//! A claim reserves a name for seven days. Whoever proves that the name is theirs has it served; the proof is looked for
//! again each day, and a name that has had none for a week is a claim once more. `verify` and the pass that runs every
//! minute look in the same way ([`Projects::prove`]).

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use kernel::audit::Actor;
use kernel::{ProjectId, Time};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Org, Projects, Result, event};
use crate::error::ProjectError;
use crate::hostname::{HostName, normalised};
use crate::model::{Check, Hostname, HostnameKind, HostnameState, NewHostname, Proof};
use crate::ports::{Linked, LookupFailure};
use crate::repository::{Claim, HostnameRepository as _, NewClaim, ProjectRepository as _, Unproved};

/// How long an unproved claim holds a name (contract section 5): 7 days.
const CLAIM_SECONDS: i64 = 7 * 24 * 3600;

/// How long an active name is served without a proof: 7 days.
const GRACE_SECONDS: i64 = 7 * 24 * 3600;

/// When a pending name is looked at again (specification, States, "Hostname").
const PENDING_SECONDS: i64 = 60;

/// When an active name is looked at again (security rules, "Names and addresses").
const ACTIVE_SECONDS: i64 = 24 * 3600;

/// How long a name that is being looked at is left alone by others.
const LEASE_SECONDS: i64 = 60;

/// How long somebody who waits for the answer waits for one name server.
const PATIENT: Duration = Duration::from_secs(4);

/// How long the pass does: a cold name answers a minute later.
const HASTY: Duration = Duration::from_millis(1500);

/// Names that the pass looks up at once. Each may hold two sockets.
const AT_ONCE: usize = 384;

/// What was found of a claim.
struct Found {
    proof: Option<Proof>,
    checks: Vec<Check>,
    /// Whether a name server gave no answer, so that nothing follows from a missing proof.
    unsure: bool,
}

impl Projects {
    /// The hostnames of a project, the default one first.
    ///
    /// # Errors
    /// [`ProjectError::Store`].
    pub async fn hostnames(&self, project: ProjectId) -> Result<Vec<Hostname>> {
        let hostnames = self.store.connection().await?.hostname_list(project).await?;
        Ok(hostnames.into_iter().map(|hostname| hostname.guided(&self.site.fallback_origin)).collect())
    }

    /// Claims a name for a project. The same project again gets the claim, or the name, that it has. In a zone that the
    /// organization hosts here it is served at once.
    ///
    /// # Errors
    /// [`ProjectError::Field`] for what is no name that a project may have, [`ProjectError::HostnameTaken`].
    pub async fn hostname_add(
        &self,
        actor: &Actor,
        org: &Org,
        project: ProjectId,
        new: NewHostname,
    ) -> Result<Hostname> {
        let name = HostName::parse(&new.name, &self.site.own_domains)
            .map_err(|error| ProjectError::Field { path: "name", message: error.to_string() })?;
        let (world, now) = (self.store.world(), self.store.world().now());
        let token = kernel::hex(&world.bytes::<20>());
        let claim = NewClaim {
            name: name.as_str(),
            project,
            token: &token,
            at: now,
            lapses_at: now.plus_seconds(CLAIM_SECONDS),
        };
        let added = self
            .store
            .transaction(actor, async |tx: &mut Connection| {
                tx.project_lock(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                if !tx.hostname_claim(&claim).await? {
                    // Another project has it unless this one does.
                    let own = tx.hostname_find(project, name.as_str()).await?;
                    return match own {
                        Some(own) => Ok(Outcome::Unchanged(own)),
                        None => Err(ProjectError::HostnameTaken(name.as_str().to_owned())),
                    };
                }
                let claimed = tx.claim_find(project, name.as_str()).await?.ok_or(ProjectError::HostnameNotFound)?;
                let zone = self.zones.zone_of(tx, org.id, name.as_str()).await?;
                let data = if zone.is_some() && !claimed.was_another_s {
                    self.attach(tx, &claimed, Proof::Zone, now).await?;
                    json!({ "hostname": name.as_str(), "proof": Proof::Zone })
                } else {
                    json!({ "hostname": name.as_str() })
                };
                let added = tx.hostname_find(project, name.as_str()).await?.ok_or(ProjectError::HostnameNotFound)?;
                Ok(Outcome::Changed(added, event("hostname.add", org.id, project, data)))
            })
            .await?;
        Ok(added.guided(&self.site.fallback_origin))
    }

    /// Takes a custom name away from a project; it is free at once.
    ///
    /// # Errors
    /// [`ProjectError::DefaultHostname`], [`ProjectError::HostnameNotFound`].
    pub async fn hostname_delete(&self, actor: &Actor, org: &Org, project: ProjectId, name: &str) -> Result<()> {
        let name = normalised(name).ok_or(ProjectError::HostnameNotFound)?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                tx.project_lock(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                let hostname = tx.hostname_find(project, &name).await?.ok_or(ProjectError::HostnameNotFound)?;
                if hostname.kind == HostnameKind::Default {
                    return Err(ProjectError::DefaultHostname);
                }
                tx.hostname_delete(project, &name).await?;
                if hostname.state == HostnameState::Active {
                    self.serve(tx, project).await?;
                    self.zones.unlink(tx, org.id, &name).await?;
                }
                Ok(Outcome::Changed((), event("hostname.delete", org.id, project, json!({ "hostname": name }))))
            })
            .await
    }

    /// Looks for the proofs of a name now, in the way of the pass that does so every minute.
    ///
    /// # Errors
    /// [`ProjectError::HostnameNotFound`].
    pub async fn hostname_verify(&self, actor: &Actor, project: ProjectId, name: &str) -> Result<Hostname> {
        let name = normalised(name).ok_or(ProjectError::HostnameNotFound)?;
        let claim = self.store.connection().await?.claim_find(project, &name).await?;
        if let Some(claim) = claim {
            let found = self.prove(&claim, PATIENT).await?;
            if let Some(unproved) = self.conclude(actor, &claim, found).await? {
                self.store.connection().await?.claims_unproved(&[unproved]).await?;
            }
        }
        let hostname = self.store.connection().await?.hostname_find(project, &name).await?;
        Ok(hostname.ok_or(ProjectError::HostnameNotFound)?.guided(&self.site.fallback_origin))
    }

    /// Looks at every name that is due: one round of the pass that runs every minute. Several processes share the work.
    ///
    /// # Errors
    /// [`ProjectError::Store`]; what was concluded until then stays.
    pub async fn hostnames_check(&self) -> Result<usize> {
        let actor = Actor::service("hostnames");
        let mut looked_at = 0;
        loop {
            let now = self.store.world().now();
            let lease = now.plus_seconds(LEASE_SECONDS);
            let due = self.store.connection().await?.claims_due(now, lease, AT_ONCE as i64).await?;
            if due.is_empty() {
                return Ok(looked_at);
            }
            looked_at += due.len();
            let concluded = stream::iter(due).map(async |claim| {
                let found = self.prove(&claim, HASTY).await?;
                self.conclude(&actor, &claim, found).await
            });
            let concluded: Vec<_> = concluded.buffer_unordered(AT_ONCE).collect().await;
            let mut unproved = Vec::with_capacity(concluded.len());
            for outcome in concluded {
                match outcome {
                    Ok(found) => unproved.extend(found),
                    // It is due again when its lease is over; the others are not held up by it.
                    Err(error) => tracing::warn!(%error, "a hostname was not looked after"),
                }
            }
            // In one order, whoever else changes several of them.
            unproved.sort_by(|a: &Unproved, b| a.name.cmp(&b.name));
            self.store.connection().await?.claims_unproved(&unproved).await?;
        }
    }

    /// Looks for the proofs of a claim. The strongest that passes is taken: TXT, then CNAME, then a zone hosted here. For a
    /// name that was active for another organization before, nothing but TXT is: its CNAME may just have been forgotten.
    async fn prove(&self, claim: &Claim, patience: Duration) -> Result<Found> {
        let at = self.store.world().now();
        let (txt_name, expected) = (format!("_svc-verify.{}", claim.name), format!("svc-verify={}", claim.token));
        let (txt, cname, zone) =
            tokio::join!(self.resolver.txt(&txt_name, patience), self.resolver.cname(&claim.name, patience), async {
                self.zones.zone_of(&mut *self.store.connection().await?, claim.org, &claim.name).await
            });
        let zone = zone?;
        let unsure = txt.as_ref().is_err_and(|it| it.temporary) || cname.as_ref().is_err_and(|it| it.temporary);
        let has_txt = txt.as_ref().is_ok_and(|texts| texts.contains(&expected));
        let has_cname = cname.as_ref().is_ok_and(|target| target.as_ref() == Some(&self.site.fallback_origin));
        let proof = match () {
            () if has_txt => Some(Proof::Txt),
            () if claim.was_another_s => None,
            () if has_cname => Some(Proof::Cname),
            () if zone.is_some() => Some(Proof::Zone),
            () => None,
        };
        let only_txt = claim.was_another_s.then(|| {
            "another organization had this name before, so a TXT record has to prove whose it is now".to_owned()
        });
        let check = |proof,
                     expected: &str,
                     observed: std::result::Result<Vec<String>, LookupFailure>,
                     error: Option<String>| {
            let (observed, failed) = match observed {
                Ok(observed) => (Some(observed), None),
                Err(failure) => (None, Some(failure.message)),
            };
            Check { proof, expected: expected.to_owned(), observed, error: error.or(failed), at }
        };
        let checks = vec![
            check(Proof::Txt, &expected, txt, None),
            check(
                Proof::Cname,
                &self.site.fallback_origin,
                cname.map(|target| target.into_iter().collect()),
                only_txt.clone(),
            ),
            check(Proof::Zone, "a zone of this organization, hosted here", Ok(zone.into_iter().collect()), only_txt),
        ];
        Ok(Found { proof, checks, unsure })
    }

    /// Writes down what follows from what was found. What changes nothing but the explanation is handed back, for the
    /// caller to write together with others.
    async fn conclude(&self, actor: &Actor, claim: &Claim, found: Found) -> Result<Option<Unproved>> {
        let now = self.store.world().now();
        let Found { proof, checks, unsure } = found;
        let later = |seconds: i64| now.plus_seconds(seconds);
        match (claim.state, proof) {
            (HostnameState::PendingDns, Some(proof)) => self.activate(actor, claim, proof, now).await.map(|()| None),
            (HostnameState::PendingDns, None) if claim.lapses_at.is_some_and(|lapses| lapses <= now) => {
                self.lapse(actor, claim, now).await.map(|()| None)
            }
            (HostnameState::PendingDns, None) => {
                let error = explanation(claim, &checks, &self.site.fallback_origin);
                Ok(Some(Unproved::new(claim, Some(error), checks, later(PENDING_SECONDS))))
            }
            (HostnameState::Active, Some(proof)) => {
                self.store.connection().await?.claim_reproved(claim, proof, later(ACTIVE_SECONDS)).await?;
                self.link_again(actor, claim).await.map(|()| None)
            }
            // Nothing follows from a name server that does not answer.
            (HostnameState::Active, None) if unsure => {
                Ok(Some(Unproved::new(claim, None, checks, later(ACTIVE_SECONDS / 24))))
            }
            (HostnameState::Active, None) => {
                let error = explanation(claim, &checks, &self.site.fallback_origin);
                let unproved = Unproved::new(claim, Some(error), checks, later(ACTIVE_SECONDS));
                match claim.lost_at {
                    Some(lost) if lost.plus_seconds(GRACE_SECONDS) > now => Ok(Some(unproved)),
                    Some(_) => self.detach(actor, claim, &unproved, now).await.map(|()| None),
                    None => self.lose(actor, claim, &unproved, now).await.map(|()| None),
                }
            }
        }
    }

    /// Serves a name whose proof was found.
    async fn activate(&self, actor: &Actor, claim: &Claim, proof: Proof, now: Time) -> Result<()> {
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                // Deleted meanwhile, and its names with it.
                if tx.project_lock(claim.org, claim.project).await?.is_none() {
                    return Ok(Outcome::Unchanged(()));
                }
                if !self.attach(tx, claim, proof, now).await? {
                    return Ok(Outcome::Unchanged(()));
                }
                let data = json!({ "hostname": claim.name, "proof": proof });
                Ok(Outcome::Changed((), event("hostname.verify", claim.org, claim.project, data)))
            })
            .await
    }

    /// Makes a claim a served name, in the caller's transaction; false when it is none any more.
    async fn attach(&self, tx: &mut Connection, claim: &Claim, proof: Proof, now: Time) -> Result<bool> {
        if !tx.claim_activate(claim, proof, now, now.plus_seconds(ACTIVE_SECONDS)).await? {
            return Ok(false);
        }
        self.serve(tx, claim.project).await?;
        let Linked { problem, .. } = self.zones.link(tx, claim.org, &claim.name).await?;
        if problem.is_some() {
            tx.hostname_note(claim.project, &claim.name, problem.as_deref()).await?;
        }
        Ok(true)
    }

    /// Publishes the records of a served name whose zone came later, or had other records there.
    async fn link_again(&self, actor: &Actor, claim: &Claim) -> Result<()> {
        let problem = self
            .store
            .transaction(actor, async |tx: &mut Connection| {
                if tx.project_lock(claim.org, claim.project).await?.is_none() {
                    return Ok(Outcome::Unchanged(None));
                }
                let own = tx.hostname_find(claim.project, &claim.name).await?;
                if own.is_none_or(|own| own.state != HostnameState::Active) {
                    return Ok(Outcome::Unchanged(None));
                }
                let Linked { changed, problem } = self.zones.link(tx, claim.org, &claim.name).await?;
                if !changed {
                    return Ok::<_, ProjectError>(Outcome::Unchanged(problem));
                }
                let data = json!({ "hostname": claim.name });
                Ok(Outcome::Changed(problem, event("hostname.link", claim.org, claim.project, data)))
            })
            .await?;
        if problem.is_some() {
            let mut connection = self.store.connection().await?;
            connection.hostname_note(claim.project, &claim.name, problem.as_deref()).await?;
        }
        Ok(())
    }

    /// Ends a claim that nobody proved in time.
    async fn lapse(&self, actor: &Actor, claim: &Claim, now: Time) -> Result<()> {
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                if !tx.claim_lapse(claim, now).await? {
                    return Ok(Outcome::Unchanged(()));
                }
                let data = json!({ "hostname": claim.name });
                Ok(Outcome::Changed((), event("hostname.lapse", claim.org, claim.project, data)))
            })
            .await
    }

    /// An active name has no proof any more: the organization is told, long before anything happens.
    async fn lose(&self, actor: &Actor, claim: &Claim, unproved: &Unproved, now: Time) -> Result<()> {
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                if !tx.claim_lost(unproved, now).await? {
                    return Ok(Outcome::Unchanged(()));
                }
                let (until, project) = (now.plus_seconds(GRACE_SECONDS), &claim.project_name);
                self.organizations.hostname_unproved(tx, claim.org, project, &claim.name, until).await?;
                let data = json!({ "hostname": claim.name });
                Ok(Outcome::Changed((), event("hostname.unproved", claim.org, claim.project, data)))
            })
            .await
    }

    /// An active name has had no proof for too long: it is a claim again.
    async fn detach(&self, actor: &Actor, claim: &Claim, unproved: &Unproved, now: Time) -> Result<()> {
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                if tx.project_lock(claim.org, claim.project).await?.is_none() {
                    return Ok(Outcome::Unchanged(()));
                }
                let (lapses_at, check_at) = (now.plus_seconds(CLAIM_SECONDS), now.plus_seconds(PENDING_SECONDS));
                if !tx.claim_detach(unproved, lapses_at, check_at).await? {
                    return Ok(Outcome::Unchanged(()));
                }
                self.serve(tx, claim.project).await?;
                self.zones.unlink(tx, claim.org, &claim.name).await?;
                let data = json!({ "hostname": claim.name });
                Ok(Outcome::Changed((), event("hostname.detach", claim.org, claim.project, data)))
            })
            .await
    }
}

/// What a person needs to know who waits for a name: what was looked for, what was seen, what to do.
fn explanation(claim: &Claim, checks: &[Check], fallback_origin: &str) -> String {
    let seen = |proof: Proof| {
        let check = checks.iter().find(|check| check.proof == proof);
        match check {
            Some(Check { error: Some(error), observed: None, .. }) => error.clone(),
            Some(Check { observed: Some(observed), .. }) if !observed.is_empty() => {
                format!("found {}", observed.join(", "))
            }
            _ => "found none".to_owned(),
        }
    };
    let name = &claim.name;
    let mut text =
        format!("No proof yet. TXT record _svc-verify.{name} with svc-verify={}: {}.", claim.token, seen(Proof::Txt));
    if claim.was_another_s {
        text.push_str(" Another organization had this name before, so only that record counts.");
    } else {
        text.push_str(&format!(" CNAME record {name} to {fallback_origin}: {}.", seen(Proof::Cname)));
    }
    text.push_str(" Publish the record where the domain's DNS is managed; it is looked for every minute.");
    text
}
