//! Custom hostnames: listing, deletion and periodic verification.
//!
//! A claim reserves a name for seven days. Verified ownership makes the hostname active. An active hostname is verified
//! daily, and becomes a pending claim again after seven days without a proof. The API call and the background job,
//! which runs every minute, both use [`Projects::verify_ownership`].

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use kernel::audit::{Actor, Event};
use kernel::{OrgId, ProjectId, error_chain};
use serde_json::json;
use store::{Connection, Outcome, is_full_batch};

use super::{Org, Projects, Result};
use crate::error::ProjectError;
use crate::hostname::normalize;
use crate::model::{Hostname, HostnameKind, HostnameState};
use crate::repository::{ClaimRepository as _, FailedVerification, HostnameRepository as _, ProjectRepository as _};

/// The background job, as in the audit log.
pub(super) const JOB: &str = "hostnames";

/// The lifetime of an unverified claim (contract section 5): 7 days.
pub(super) const CLAIM_SECONDS: i64 = 7 * 24 * 3600;

/// The lease on a hostname during its verification.
const LEASE_SECONDS: i64 = 60;

/// The DNS timeout when a caller waits for the result.
pub(super) const INTERACTIVE_TIMEOUT: Duration = Duration::from_secs(4);

/// The DNS timeout in the background job. A name that is not yet cached usually resolves on the next run.
const BACKGROUND_TIMEOUT: Duration = Duration::from_millis(1500);

/// The number of hostnames that the background job leases at the same time. Even if no name server responds, their
/// checks end within the lease.
const CHECK_BATCH_SIZE: i64 = 384;

/// The number of concurrent checks in the background job, each with two lookups. Together they need fewer than the 128
/// permits of the resolver: a lookup that waits for a permit could time out without a query.
const MAX_CONCURRENT_CHECKS: usize = 48;

/// The number of results that the background job applies at the same time, each on its own connection to Postgres. With
/// more, requests and other jobs would wait for connections.
const MAX_CONCURRENT_CHANGES: usize = 4;

impl Projects {
    /// Lists the hostnames of a project, the default hostname first.
    ///
    /// # Errors
    /// Returns [`ProjectError::Store`].
    pub async fn hostnames(&self, project: ProjectId) -> Result<Vec<Hostname>> {
        let hostnames = self.store.lookup(async |lookups| lookups.hostname_list(project).await).await?;
        Ok(hostnames.into_iter().map(|hostname| hostname.with_verify_records(&self.site.fallback_origin)).collect())
    }

    /// Deletes a custom hostname of a project. The name is free immediately.
    ///
    /// # Errors
    /// Returns [`ProjectError::DefaultHostname`] or [`ProjectError::HostnameNotFound`].
    pub async fn hostname_delete(&self, actor: &Actor, org: &Org, project: ProjectId, name: &str) -> Result<()> {
        let name = normalize(name).ok_or(ProjectError::HostnameNotFound)?;
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                tx.project_lock(org.id, project).await?.ok_or(ProjectError::NotFound)?;
                let hostname = tx.hostname_find(project, &name).await?.ok_or(ProjectError::HostnameNotFound)?;
                if hostname.kind == HostnameKind::Default {
                    return Err(ProjectError::DefaultHostname);
                }
                tx.hostname_delete(project, &name).await?;
                if hostname.state == HostnameState::Active {
                    self.stop_serving(tx, org.id, project, &name).await?;
                }
                Ok(Outcome::Changed((), Event::in_org("hostname.delete", org.id, project, json!({ "hostname": name }))))
            })
            .await
    }

    /// Verifies the ownership of a hostname now, like the background job.
    ///
    /// # Errors
    /// Returns [`ProjectError::HostnameNotFound`] or [`ProjectError::TooManyChecks`].
    pub async fn hostname_verify(&self, actor: &Actor, project: ProjectId, name: &str) -> Result<Hostname> {
        let name = normalize(name).ok_or(ProjectError::HostnameNotFound)?;
        let claim = self.store.connection().await?.claim_find(project, &name).await?;
        if let Some(claim) = claim {
            let permit = self.lookups.acquire(claim.org).await.ok_or(ProjectError::TooManyChecks)?;
            let records = self.look_up_records(&claim, INTERACTIVE_TIMEOUT).await;
            let verification = self.verify_ownership(&claim, records).await?;
            drop(permit);
            if let Some(failure) = self.apply_verification(actor, &claim, verification).await? {
                self.record(actor, async |tx| tx.claims_record_failures(&[failure]).await).await?;
            }
        }
        let hostname = self.store.connection().await?.hostname_find(project, &name).await?;
        Ok(hostname.ok_or(ProjectError::HostnameNotFound)?.with_verify_records(&self.site.fallback_origin))
    }

    /// Makes the custom hostnames of an organization due that are equal to or below a domain, so that the background job
    /// verifies them.
    ///
    /// # Errors
    /// Returns [`ProjectError::Store`].
    pub async fn hostnames_set_due(&self, org: OrgId, domain: &str) -> Result<()> {
        let (now, mut after) = (self.store.clock_rng().now(), String::new());
        loop {
            let names = self.store.connection().await?.claims_set_due(org, domain, now, &after).await?;
            if !is_full_batch(names.len()) {
                return Ok(());
            }
            // Each name once, because the background job may have leased the hostnames of earlier batches since.
            after = names.into_iter().max().unwrap_or_default();
        }
    }

    /// Verifies the hostnames that are due at its start. The background job runs this every minute; concurrent runs
    /// share the work.
    ///
    /// # Errors
    /// Returns [`ProjectError::Store`]. The results that were recorded before the error are kept.
    pub async fn hostnames_check(&self) -> Result<usize> {
        let actor = Actor::service(JOB);
        // While no name server responds, a run can take longer than a pending hostname needs to become due again.
        let (started_at, mut checked) = (self.store.clock_rng().now(), 0);
        loop {
            let lease_expires_at = self.store.clock_rng().now().plus_seconds(LEASE_SECONDS);
            let due =
                self.store.connection().await?.claims_lease_due(started_at, lease_expires_at, CHECK_BATCH_SIZE).await?;
            if due.is_empty() {
                return Ok(checked);
            }
            checked += due.len();
            let lookups = stream::iter(due).map(async |claim| {
                let records = self.look_up_records(&claim, BACKGROUND_TIMEOUT).await;
                (claim, records)
            });
            let outcomes = lookups.buffer_unordered(MAX_CONCURRENT_CHECKS).map(async |(claim, records)| {
                let verification = self.verify_ownership(&claim, records).await?;
                self.apply_verification(&actor, &claim, verification).await
            });
            let outcomes: Vec<_> = outcomes.buffer_unordered(MAX_CONCURRENT_CHANGES).collect().await;
            let mut failures: Vec<FailedVerification> = Vec::with_capacity(outcomes.len());
            for outcome in outcomes {
                match outcome {
                    Ok(failure) => failures.extend(failure),
                    // The hostname becomes due again when its lease expires.
                    Err(error) => tracing::warn!(error = %error_chain(&error), "failed to verify a hostname"),
                }
            }
            self.record_failures(&failures).await?;
        }
    }

    /// Records failed verifications in one statement. If Postgres rejects the statement, records each failure
    /// separately, so that one hostname does not block the others.
    async fn record_failures(&self, failures: &[FailedVerification]) -> Result<()> {
        let mut connection = self.store.connection().await?;
        match connection.claims_record_failures(failures).await {
            Err(store::Error::Statement(_)) => {}
            recorded => return Ok(recorded?),
        }
        for failure in failures {
            match connection.claims_record_failures(std::slice::from_ref(failure)).await {
                Err(error @ store::Error::Statement(_)) => {
                    let (hostname, error) = (&failure.name, error_chain(&error));
                    tracing::error!(hostname, %error, "failed to record a verification");
                }
                recorded => recorded?,
            }
        }
        Ok(())
    }
}
