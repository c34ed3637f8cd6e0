//! Verifies the ownership of hostnames and applies the result.

use std::time::Duration;

use kernel::audit::{Actor, Event};
use kernel::ownership::VerifyRecord;
use kernel::{NamedProject, OrgId, ProjectId, Time};
use serde_json::json;
use store::{Connection, Outcome};

use super::hostname::CLAIM_SECONDS;
use super::{Projects, Result};
use crate::error::ProjectError;
use crate::model::{Check, HostnameState, Proof};
use crate::ports::{LookupFailure, Notice, PublishedRecords};
use crate::repository::{
    Claim, ClaimRepository as _, FailedVerification, HostnameRepository as _, ProjectRepository as _,
};

/// The time for which an active hostname is served without a proof: 7 days.
const GRACE_SECONDS: i64 = 7 * 24 * 3600;

/// The check interval of a pending hostname (specification, States, "Hostname").
const PENDING_CHECK_SECONDS: i64 = 60;

/// The check interval of an active hostname (security rules, "Names and addresses").
pub(super) const ACTIVE_CHECK_SECONDS: i64 = 24 * 3600;

/// The records of a hostname in the public DNS.
pub(super) struct Records {
    txt: std::result::Result<Vec<String>, LookupFailure>,
    cname: std::result::Result<Option<String>, LookupFailure>,
}

/// The result of checking the proofs of a claim.
pub(super) struct Verification {
    proof: Option<Proof>,
    checks: Vec<Check>,
    /// Whether a lookup failed transiently, so that a missing proof is inconclusive.
    inconclusive: bool,
}

impl Projects {
    /// Looks up the records that can prove a claim.
    pub(super) async fn look_up_records(&self, claim: &Claim, timeout: Duration) -> Records {
        let name = VerifyRecord::txt(&claim.name, &claim.token).name;
        let (txt, cname) = tokio::join!(self.resolver.txt(&name, timeout), self.resolver.cname(&claim.name, timeout));
        Records { txt, cname }
    }

    /// Checks the proofs of a claim and selects the strongest: TXT, then CNAME, then a hosted zone. For a hostname that
    /// was last active for another organization, only TXT counts, because its CNAME may be stale.
    pub(super) async fn verify_ownership(&self, claim: &Claim, records: Records) -> Result<Verification> {
        let at = self.store.clock_rng().now();
        let Records { txt, cname } = records;
        let expected = VerifyRecord::txt(&claim.name, &claim.token).value;
        let zone = self.zones.zone_of(&mut *self.store.connection().await?, claim.org, &claim.name).await?;
        let inconclusive = txt.as_ref().is_err_and(|it| it.transient) || cname.as_ref().is_err_and(|it| it.transient);
        let has_txt = txt.as_ref().is_ok_and(|texts| texts.contains(&expected));
        let has_cname = cname.as_ref().is_ok_and(|target| target.as_ref() == Some(&self.site.fallback_origin));
        let proof = match () {
            () if has_txt => Some(Proof::Txt),
            () if claim.held_by_another_org => None,
            () if has_cname => Some(Proof::Cname),
            () if zone.is_some() => Some(Proof::Zone),
            () => None,
        };
        let only_txt = claim.held_by_another_org.then(|| {
            "another organization used this hostname before, so only a TXT record proves ownership".to_owned()
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
            check(
                Proof::Zone,
                "a hosted zone of this organization",
                Ok(zone.into_iter().map(|zone| zone.name).collect()),
                only_txt,
            ),
        ];
        Ok(Verification { proof, checks, inconclusive })
    }

    /// Applies the result of a verification. A failure that leaves the state of the hostname unchanged is returned
    /// instead of written, so that the caller can record several failures in one statement.
    pub(super) async fn apply_verification(
        &self,
        actor: &Actor,
        claim: &Claim,
        verification: Verification,
    ) -> Result<Option<FailedVerification>> {
        let now = self.store.clock_rng().now();
        let Verification { proof, checks, inconclusive } = verification;
        let later = |seconds: i64| now.plus_seconds(seconds);
        match (claim.state, proof) {
            (HostnameState::PendingDns, Some(proof)) => self.activate(actor, claim, proof, now).await.map(|()| None),
            (HostnameState::PendingDns, None) if claim.expires_at.is_some_and(|expires_at| expires_at <= now) => {
                self.expire(actor, claim, now).await.map(|()| None)
            }
            (HostnameState::PendingDns, None) => {
                let error = explanation(claim, &checks, &self.site.fallback_origin, now);
                Ok(Some(FailedVerification::new(claim, Some(error), checks, later(PENDING_CHECK_SECONDS))))
            }
            (HostnameState::Active, Some(proof)) => {
                let next_check_at = later(ACTIVE_CHECK_SECONDS);
                self.record(actor, async |tx| tx.claim_record_proof(claim, proof, next_check_at).await).await?;
                self.publish_records(actor, claim).await.map(|()| None)
            }
            // An inconclusive check, such as one without a response from the name servers, does not change the state.
            (HostnameState::Active, None) if inconclusive => {
                Ok(Some(FailedVerification::new(claim, None, checks, later(ACTIVE_CHECK_SECONDS / 24))))
            }
            (HostnameState::Active, None) => {
                let error = explanation(claim, &checks, &self.site.fallback_origin, now);
                let failure = FailedVerification::new(claim, Some(error), checks, later(ACTIVE_CHECK_SECONDS));
                match claim.unverified_since {
                    Some(since) if since.plus_seconds(GRACE_SECONDS) > now => Ok(Some(failure)),
                    Some(_) => {
                        let failure = FailedVerification { next_check_at: later(PENDING_CHECK_SECONDS), ..failure };
                        self.detach(actor, claim, &failure, now).await.map(|()| None)
                    }
                    None => self.mark_unverified(actor, claim, &failure, now).await.map(|()| None),
                }
            }
        }
    }

    /// Writes a result that is not an audited change, if the actor is still authorized.
    pub(super) async fn record(
        &self,
        actor: &Actor,
        write: impl AsyncFnOnce(&mut Connection) -> store::Result<()>,
    ) -> Result<()> {
        Ok(self.store.transaction_unaudited_as(actor, write).await?)
    }

    /// Activates a verified hostname.
    async fn activate(&self, actor: &Actor, claim: &Claim, proof: Proof, now: Time) -> Result<()> {
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                // The project and its hostnames were deleted concurrently.
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

    /// Activates a claim in the caller's transaction. Returns false if the claim is no longer pending.
    pub(super) async fn attach(&self, tx: &mut Connection, claim: &Claim, proof: Proof, now: Time) -> Result<bool> {
        if !tx.claim_activate(claim, proof, now, now.plus_seconds(ACTIVE_CHECK_SECONDS)).await? {
            return Ok(false);
        }
        self.start_serving(tx, claim.org, claim.project, &claim.name).await?;
        Ok(true)
    }

    /// Publishes the records of an active hostname if it is in a hosted zone, and serves it. The caller holds the
    /// project's row lock.
    async fn start_serving(&self, tx: &mut Connection, org: OrgId, project: ProjectId, name: &str) -> Result<()> {
        // The tenant can hold the lock of the zone, and all projects of the node share the lock of the node.
        self.link(tx, org, project, name).await?;
        self.update_desired(tx, project).await
    }

    /// Publishes the records of an active hostname if it is in a hosted zone. Stores the reason if it cannot. The
    /// caller holds the project's row lock, and has not written the desired state of any project.
    pub(super) async fn link(&self, tx: &mut Connection, org: OrgId, project: ProjectId, name: &str) -> Result<()> {
        let PublishedRecords { problem, .. } = self.zones.link(tx, org, name).await?;
        if problem.is_some() {
            tx.hostname_set_error(project, name, problem.as_deref()).await?;
        }
        Ok(())
    }

    /// Removes the records of a hostname and stops serving it. The caller holds the project's row lock, and has already
    /// deleted or deactivated the hostname.
    pub(super) async fn stop_serving(
        &self,
        tx: &mut Connection,
        org: OrgId,
        project: ProjectId,
        name: &str,
    ) -> Result<()> {
        self.zones.unlink(tx, org, &[name]).await?;
        self.update_desired(tx, project).await
    }

    /// Publishes the DNS records of an active hostname, if its zone does not have them yet.
    async fn publish_records(&self, actor: &Actor, claim: &Claim) -> Result<()> {
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
                let PublishedRecords { changed, problem } = self.zones.link(tx, claim.org, &claim.name).await?;
                if !changed {
                    return Ok::<_, ProjectError>(Outcome::Unchanged(problem));
                }
                let data = json!({ "hostname": claim.name });
                Ok(Outcome::Changed(problem, Event::in_org("hostname.link", claim.org, claim.project, data)))
            })
            .await?;
        if problem.is_some() {
            let (project, name) = (claim.project, claim.name.as_str());
            self.record(actor, async |tx| tx.hostname_set_error(project, name, problem.as_deref()).await).await?;
        }
        Ok(())
    }

    /// Deletes an expired claim.
    async fn expire(&self, actor: &Actor, claim: &Claim, now: Time) -> Result<()> {
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                if !tx.claim_delete_expired(claim, now).await? {
                    return Ok(Outcome::Unchanged(()));
                }
                let data = json!({ "hostname": claim.name });
                Ok(Outcome::Changed((), Event::in_org("hostname.lapse", claim.org, claim.project, data)))
            })
            .await
    }

    /// Marks an active hostname as unverified and notifies the organization. The hostname is still served.
    async fn mark_unverified(
        &self,
        actor: &Actor,
        claim: &Claim,
        failure: &FailedVerification,
        now: Time,
    ) -> Result<()> {
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                if !tx.claim_mark_unverified(failure, now).await? {
                    return Ok(Outcome::Unchanged(()));
                }
                let project = NamedProject { id: claim.project, name: claim.project_name.clone() };
                let hostname = claim.name.clone();
                let notice = Notice::HostnameUnproved { project, hostname, until: now.plus_seconds(GRACE_SECONDS) };
                self.organizations.raise(tx, claim.org, notice).await?;
                let data = json!({ "hostname": claim.name });
                Ok(Outcome::Changed((), Event::in_org("hostname.unproved", claim.org, claim.project, data)))
            })
            .await
    }

    /// Turns a hostname that was unverified for too long back into a pending claim.
    async fn detach(&self, actor: &Actor, claim: &Claim, failure: &FailedVerification, now: Time) -> Result<()> {
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                if tx.project_lock(claim.org, claim.project).await?.is_none() {
                    return Ok(Outcome::Unchanged(()));
                }
                if !tx.claim_detach(claim.org, failure, now, now.plus_seconds(CLAIM_SECONDS)).await? {
                    return Ok(Outcome::Unchanged(()));
                }
                self.stop_serving(tx, claim.org, claim.project, &claim.name).await?;
                let data = json!({ "hostname": claim.name });
                Ok(Outcome::Changed((), Event::in_org("hostname.detach", claim.org, claim.project, data)))
            })
            .await
    }
}

/// Returns the error message of an unverified hostname: the expected records, the observed records, and what to do.
fn explanation(claim: &Claim, checks: &[Check], fallback_origin: &str, now: Time) -> String {
    let observation = |proof: Proof| {
        let check = checks.iter().find(|check| check.proof == proof);
        match check {
            Some(Check { error: Some(error), observed: None, .. }) => error.clone(),
            Some(Check { observed: Some(observed), .. }) if !observed.is_empty() => {
                format!("found {}", observed.join(", "))
            }
            _ => "found none".to_owned(),
        }
    };
    let (name, txt) = (&claim.name, VerifyRecord::txt(&claim.name, &claim.token));
    let mut text =
        format!("Ownership is not verified. TXT record {} with {}: {}.", txt.name, txt.value, observation(Proof::Txt));
    if claim.held_by_another_org {
        text.push_str(" Another organization used this hostname before, so only the TXT record counts.");
    } else {
        text.push_str(&format!(" CNAME record {name} to {fallback_origin}: {}.", observation(Proof::Cname)));
    }
    if claim.state == HostnameState::PendingDns && claim.reserved_until.is_some_and(|until| until <= now) {
        text.push_str(" The reservation is over, so another project can claim the hostname.");
    }
    let interval = if claim.state == HostnameState::PendingDns { "every minute" } else { "once a day" };
    text.push_str(&format!(" Publish the record at the DNS provider of the domain. We check it {interval}."));
    text
}
