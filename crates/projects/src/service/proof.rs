//! What the proofs of a hostname are, and what follows from finding them or not.

use std::time::Duration;

use kernel::Time;
use kernel::audit::{Actor, Event};
use serde_json::json;
use store::{Connection, Outcome};

use super::hostname::CLAIM_SECONDS;
use super::{Projects, Result};
use crate::error::ProjectError;
use crate::model::{Check, HostnameState, Proof};
use crate::ports::{Linked, LookupFailure, Notice};
use crate::repository::{Claim, ClaimRepository as _, HostnameRepository as _, ProjectRepository as _, Unproved};

/// How long an active name is served without a proof: 7 days.
const GRACE_SECONDS: i64 = 7 * 24 * 3600;

/// When a pending name is looked at again (specification, States, "Hostname").
const PENDING_SECONDS: i64 = 60;

/// When an active name is looked at again (security rules, "Names and addresses").
const ACTIVE_SECONDS: i64 = 24 * 3600;

/// What was found of a claim.
pub(super) struct Found {
    proof: Option<Proof>,
    checks: Vec<Check>,
    /// Whether a name server gave no answer, so that nothing follows from a missing proof.
    unsure: bool,
}

impl Projects {
    /// Looks for the proofs of a claim. The strongest that passes is taken: TXT, then CNAME, then a zone hosted here. For a
    /// name that was active for another organization before, nothing but TXT is: its CNAME may just have been forgotten.
    pub(super) async fn prove(&self, claim: &Claim, patience: Duration) -> Result<Found> {
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
    pub(super) async fn conclude(&self, actor: &Actor, claim: &Claim, found: Found) -> Result<Option<Unproved>> {
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
                Ok(Outcome::Changed((), Event::in_org("hostname.verify", claim.org, claim.project, data)))
            })
            .await
    }

    /// Makes a claim a served name, in the caller's transaction; false when it is none any more.
    pub(super) async fn attach(&self, tx: &mut Connection, claim: &Claim, proof: Proof, now: Time) -> Result<bool> {
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
                Ok(Outcome::Changed(problem, Event::in_org("hostname.link", claim.org, claim.project, data)))
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
                Ok(Outcome::Changed((), Event::in_org("hostname.lapse", claim.org, claim.project, data)))
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
                let (project, hostname) = (claim.project_name.clone(), claim.name.clone());
                let notice = Notice::HostnameUnproved { project, hostname, until: now.plus_seconds(GRACE_SECONDS) };
                self.organizations.raise(tx, claim.org, notice).await?;
                let data = json!({ "hostname": claim.name });
                Ok(Outcome::Changed((), Event::in_org("hostname.unproved", claim.org, claim.project, data)))
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
                Ok(Outcome::Changed((), Event::in_org("hostname.detach", claim.org, claim.project, data)))
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
