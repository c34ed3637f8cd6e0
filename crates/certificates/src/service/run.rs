//! The runs of the background job. A run is one attempt to bring a name closer to its desired state, under a lease.

use std::slice;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use kernel::audit::{Actor, Event};
use kernel::{OrgId, Time, error_chain};
use serde_json::json;
use store::{Connection, Error, Outcome};
use tokio::time::Instant;

use super::challenge::record_name;
use super::limits::retry_seconds;
use super::sync::EXPIRING_SECONDS;
use super::{Certificates, metrics};
use crate::model::NameState;
use crate::ports::{AuthorityError, Notice};
use crate::repository::{
    AccountRepository as _, CertificateRepository as _, Claim, NameRecord, NameRepository as _, NameUpdate,
    OrderRecord, OrderRepository as _,
};

/// The background job, as in the audit log.
pub(super) const JOB: &str = "certificates";

/// The lease of a run. It exceeds [`RUN_TIMEOUT`], so that no two runs of a name overlap.
const LEASE_SECONDS: i64 = 120;

/// The timeout of a run.
const RUN_TIMEOUT: Duration = Duration::from_secs(90);

/// The number of concurrent runs in a process, and how many of them may be those of one organization. The default
/// settings give all background jobs four connections to Postgres.
const MAX_CONCURRENT_RUNS: usize = 8;
const MAX_RUNS_PER_ORG: usize = 4;

/// The pause after which a name whose run did not reach Postgres becomes due again.
const UNAVAILABLE_PAUSE: Duration = Duration::from_secs(2);

/// The interval of claims while runs are in progress.
const CLAIM_INTERVAL: Duration = Duration::from_secs(1);

/// The time after which [`Certificates::run_due`] claims no more names, so that it ends.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(60);

/// The time for which the failures of a removed name are kept: 1 day.
const KEEP_FAILURES_SECONDS: i64 = 24 * 3600;

/// The time after which a server claims a name that its configuration excludes: 1 hour. Until then, another server can
/// run the name, such as during a change of the configuration of one server after the other.
const EXCLUDED_SECONDS: i64 = 3600;

/// The maximum length of an error of a name, in characters.
const MAX_ERROR: usize = 400;

/// The delay after the first failed order: 2 minutes. It doubles with each further one, up to 6 hours. So an authority
/// that allows five failed validations in an hour is not asked more often.
const BACKOFF_SECONDS: i64 = 120;
const MAX_BACKOFF_SECONDS: i64 = 6 * 3600;

/// The reason why a run ended without a certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    /// The name was changed, or a later run claimed it. This run must not write anything.
    #[error("another run has claimed the name")]
    Stale,
    #[error(transparent)]
    Authority(AuthorityError),
    /// No order was created, or it is kept, because a limit was reached. The next run follows at `until`. The message
    /// is for users.
    #[error("{message}")]
    Postponed { until: Time, message: String },
    /// The order cannot succeed. The message is for users.
    #[error("{0}")]
    Failed(String),
    #[error(transparent)]
    Store(#[from] Error),
}

/// The time of the next run after a failure.
#[derive(Debug, Clone, Copy)]
enum Retry {
    /// The order has failed. The delay grows with the number of failures.
    Backoff { not_before: Option<Time> },
    /// The order was postponed.
    At(Time),
}

impl Certificates {
    /// Runs all due names: issues, renews and removes certificates. The background job runs this every second;
    /// concurrent runs in several processes share the work. A run that ends makes room for the next due name
    /// immediately.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable. A name whose run failed for this reason is due again after two
    /// seconds. A removed name, or one without a response of Postgres then, is due again at the end of its lease.
    pub async fn run_due(&self) -> store::Result<usize> {
        let (mut runs, mut running, mut orgs) = (0, FuturesUnordered::new(), Vec::new());
        let deadline = Instant::now() + CLAIM_TIMEOUT;
        let mut result = Ok(());
        loop {
            let limit = MAX_CONCURRENT_RUNS.saturating_sub(running.len());
            let mut is_exhausted = result.is_err() || limit == 0 || Instant::now() >= deadline;
            if !is_exhausted {
                match self.claim_due(&orgs, limit).await {
                    Ok(due) => {
                        is_exhausted = due.is_empty();
                        runs += due.len();
                        orgs.extend(due.iter().map(|name| name.org));
                        running.extend(due.into_iter().map(|name| async {
                            let org = name.org;
                            self.run_within_lease(name).await;
                            org
                        }));
                    }
                    Err(error) => result = Err(error),
                }
            }
            if !is_exhausted {
                continue;
            }
            // Names can become due during long runs.
            match tokio::time::timeout(CLAIM_INTERVAL, running.next()).await {
                Ok(Some(org)) => {
                    if let Some(position) = orgs.iter().position(|running| *running == org) {
                        orgs.swap_remove(position);
                    }
                }
                Ok(None) => return result.map(|()| runs),
                Err(_) => {}
            }
        }
    }

    /// Claims due names. `running` contains the organization of each run in progress.
    async fn claim_due(&self, running: &[OrgId], limit: usize) -> store::Result<Vec<NameRecord>> {
        let now = self.store.clock_rng().now();
        let claim = Claim {
            now,
            until: now.plus_seconds(LEASE_SECONDS),
            limit,
            running,
            org_limit: MAX_RUNS_PER_ORG,
            includes_hostnames: self.is_enabled(),
            platform_names: &self.configured_platform_names(),
            overdue: now.plus_seconds(-EXCLUDED_SECONDS),
        };
        self.store.connection().await?.names_claim_due(claim).await
    }

    async fn run_within_lease(&self, name: NameRecord) {
        let result = match tokio::time::timeout(RUN_TIMEOUT, self.run(&name)).await {
            Ok(result) => result,
            Err(_) => self.fail(&name, "the attempt took too long", Retry::Backoff { not_before: None }).await,
        };
        // The wildcard replaces the certificates of default hostnames after its first issue.
        let result = match result {
            Ok(()) if name.project.is_none() => self.reconcile_projects().await.map_err(RunError::Store),
            result => result,
        };
        match result {
            Ok(()) | Err(RunError::Stale) => {}
            Err(error) => {
                tracing::warn!(name = name.name, error = %error_chain(&error), "failed to run a name");
                if matches!(error, RunError::Store(Error::Unavailable(_))) {
                    tokio::time::sleep(UNAVAILABLE_PAUSE).await;
                    if let Err(error) = self.end_lease(&name).await {
                        tracing::warn!(name = name.name, error = %error_chain(&error), "failed to end a lease");
                    }
                }
            }
        }
    }

    async fn end_lease(&self, name: &NameRecord) -> store::Result<()> {
        let now = self.store.clock_rng().now();
        let message = Some("the service is busy; the order continues in a moment");
        self.store.connection().await?.name_reschedule(&name.name, name.run, now, message).await
    }

    async fn run(&self, name: &NameRecord) -> Result<(), RunError> {
        if !name.wanted {
            return self.remove(name).await;
        }
        if !self.is_enabled() {
            let now = self.store.clock_rng().now();
            return self.postpone(name, now, "the platform has no certificate authority").await;
        }
        if name.project.is_none() && !self.configured_platform_names().contains(&name.name) {
            return self.end_platform_name(name).await;
        }
        let result = self.issue(name).await;
        let backoff = Retry::Backoff { not_before: None };
        match result {
            Err(RunError::Authority(error)) => {
                let not_before = match &error {
                    AuthorityError::RateLimited { retry_after, .. } => {
                        Some(self.store.clock_rng().now().plus_seconds(retry_seconds(*retry_after)))
                    }
                    _ => None,
                };
                self.fail(name, &error.to_string(), Retry::Backoff { not_before }).await
            }
            Err(RunError::Failed(message)) => self.fail(name, &message, backoff).await,
            Err(RunError::Postponed { until, message }) => self.postpone(name, until, &message).await,
            Err(RunError::Store(error)) if !matches!(error, Error::Unavailable(_)) => {
                tracing::error!(name = name.name, error = %error_chain(&error), "an order failed unexpectedly");
                self.fail(name, "something went wrong on our side", backoff).await
            }
            result => result,
        }
    }

    /// Continues the order of a name, or creates one if it needs a certificate.
    async fn issue(&self, name: &NameRecord) -> Result<(), RunError> {
        let order = self.store.connection().await?.order_find(&name.name).await?;
        match order {
            Some(order) => self.continue_order(name, order).await,
            None if self.is_renewal_due(name).await? => self.start_order(name).await,
            None => Ok(()),
        }
    }

    /// Deletes the order and the certificate of a name that needs none. Also deletes the name, but keeps one with
    /// failed orders for a day, so that a hostname that is removed and added again does not lose its backoff.
    async fn remove(&self, name: &NameRecord) -> Result<(), RunError> {
        if name.is_kept() {
            return self.purge(name).await;
        }
        let keep_until = self.store.clock_rng().now().plus_seconds(KEEP_FAILURES_SECONDS);
        self.store
            .transaction(&Actor::service(JOB), async |tx: &mut Connection| {
                let current = self.lock(tx, name, false).await?;
                if current.wanted {
                    return Err(RunError::Stale);
                }
                self.delete_order_and_certificate(tx, &name.name).await?;
                if current.failures > 0 {
                    tx.name_keep(&name.name, keep_until).await?;
                } else {
                    tx.name_delete(&name.name).await?;
                }
                Ok(Outcome::Changed((), event("certificate.remove", &current, json!({ "name": name.name }))))
            })
            .await
    }

    /// Deletes a removed name whose failures were kept.
    async fn purge(&self, name: &NameRecord) -> Result<(), RunError> {
        self.store
            .transaction_unaudited(async |tx: &mut Connection| {
                let current = self.lock(tx, name, false).await?;
                if !current.is_kept() {
                    return Err(RunError::Stale);
                }
                Ok(tx.name_delete(&name.name).await?)
            })
            .await
    }

    /// Deletes the order and the certificate of a locked name.
    pub(super) async fn delete_order_and_certificate(&self, tx: &mut Connection, name: &str) -> store::Result<()> {
        if let Some(order) = tx.order_delete(name).await? {
            self.withdraw_challenge(tx, &order).await?;
        }
        tx.certificate_delete(name).await
    }

    /// Ends a name of the platform that is no longer configured, after the expiry of its certificate, so that a wrong
    /// setting interrupts no site.
    async fn end_platform_name(&self, name: &NameRecord) -> Result<(), RunError> {
        let now = self.store.clock_rng().now();
        let mut connection = self.store.connection().await?;
        let certificate = connection.certificate_find_by_name(&name.name).await?;
        if certificate.is_some_and(|certificate| certificate.not_after > now) {
            drop(connection);
            return self.postpone(name, now, "the name of the platform is no longer configured").await;
        }
        Ok(connection.name_end_platform(&name.name, name.run, now).await?)
    }

    /// Schedules the next run without a failure, and keeps the order.
    async fn postpone(&self, name: &NameRecord, due_at: Time, message: &str) -> Result<(), RunError> {
        let now = self.store.clock_rng().now();
        let certificate = self.store.connection().await?.certificate_find_by_name(&name.name).await?;
        if certificate.is_some_and(|certificate| certificate.not_after <= now.plus_seconds(EXPIRING_SECONDS)) {
            return self.fail(name, message, Retry::At(due_at)).await;
        }
        let message = truncate(message);
        Ok(self.store.connection().await?.name_reschedule(&name.name, name.run, due_at, Some(&message)).await?)
    }

    /// Records a failure: schedules the next order, and notifies the organization if the certificate expires soon. With
    /// [`Retry::Backoff`], the order has failed: deletes it, and counts the failure.
    async fn fail(&self, name: &NameRecord, message: &str, retry: Retry) -> Result<(), RunError> {
        let now = self.store.clock_rng().now();
        let message = &truncate(message);
        let is_order_failed = matches!(retry, Retry::Backoff { .. });
        if is_order_failed {
            metrics::count_order(false);
        }
        if name.project.is_none() {
            // The names of the platform have no project whose members see the failure.
            tracing::error!(name = name.name, reason = message, "failed to issue a certificate of the platform");
        }
        self.store
            .transaction(&Actor::service(JOB), async |tx: &mut Connection| {
                let current = self.lock(tx, name, false).await?;
                if is_order_failed && let Some(order) = tx.order_delete(&name.name).await? {
                    self.withdraw_challenge(tx, &order).await?;
                }
                let data = json!({ "name": name.name, "error": message });
                let failed = Outcome::Changed((), event("certificate.fail", &current, data));
                if !current.wanted {
                    return Ok(failed);
                }
                let certificate = tx.certificate_find_by_name(&name.name).await?;
                let expires_at = certificate.map(|certificate| certificate.not_after);
                let is_valid = expires_at.is_some_and(|expires_at| expires_at > now);
                let failures = current.failures.saturating_add(i32::from(is_order_failed));
                let expiring = expires_at.filter(|expires_at| *expires_at <= now.plus_seconds(EXPIRING_SECONDS));
                let notified_expiry = match expiring.filter(|expiry| current.notified_expiry != Some(*expiry)) {
                    Some(expiry) => {
                        self.notify(tx, &current, message, expiry).await?;
                        Some(expiry)
                    }
                    None => current.notified_expiry,
                };
                let retry_at = match retry {
                    Retry::Backoff { not_before } => {
                        let retry_at = self.retry_time(tx, failures, now).await?;
                        not_before.map_or(retry_at, |not_before| retry_at.max(not_before))
                    }
                    Retry::At(at) => at,
                };
                let update = NameUpdate {
                    state: if is_valid { NameState::Active } else { NameState::Failed },
                    // The state changes when the certificate expires.
                    due_at: expires_at.filter(|_| is_valid).map_or(retry_at, |expires_at| retry_at.min(expires_at)),
                    failures,
                    last_error: Some(message),
                    renew_at: current.renew_at,
                    notified_expiry,
                };
                tx.name_update(&name.name, name.run, update).await?;
                Ok(failed)
            })
            .await
    }

    /// Returns the time of the next order after a failure. While all authorities are paused, it is the end of the first
    /// pause.
    async fn retry_time(&self, tx: &mut Connection, failures: i32, now: Time) -> store::Result<Time> {
        let exponent = u32::try_from(failures.clamp(1, 16) - 1).unwrap_or_default();
        let delay = (BACKOFF_SECONDS << exponent).min(MAX_BACKOFF_SECONDS);
        let retry_at = now.plus_seconds(delay * 4 / 5 + self.random(delay * 2 / 5));
        let mut pauses = Vec::new();
        for authority in &self.ports.authorities {
            match tx.pause_find(authority.directory(), now).await? {
                Some(until) => pauses.push(until),
                None => return Ok(retry_at),
            }
        }
        let end = pauses.into_iter().min().map(|end| end.plus_seconds(self.random(BACKOFF_SECONDS)));
        Ok(end.map_or(retry_at, |end| retry_at.max(end)))
    }

    async fn notify(
        &self,
        tx: &mut Connection,
        name: &NameRecord,
        reason: &str,
        expires_at: Time,
    ) -> store::Result<()> {
        let Some(project) = tx.hostname_find_project(&name.name).await? else { return Ok(()) };
        let (hostname, reason) = (name.name.clone(), reason.to_owned());
        let notice = Notice::RenewalFailed { project, hostname, reason, expires_at };
        self.ports.organizations.raise(tx, name.org, notice).await
    }

    /// Locks the project of a name, the zones of its TXT record and then the name, in the same order as changes of
    /// hostnames. The record exists if the order of the name has one, or if the caller `publishes` it.
    ///
    /// # Errors
    /// Returns [`RunError::Stale`] if a later run has claimed the name, it was deleted, or it belongs to another project.
    pub(super) async fn lock(
        &self,
        tx: &mut Connection,
        name: &NameRecord,
        publishes: bool,
    ) -> Result<NameRecord, RunError> {
        if let Some(project) = name.project {
            self.ports.projects.lock(tx, name.org, project).await?;
        }
        let has_record = |order: &OrderRecord| order.published.as_ref().is_some_and(|it| it.zone.is_some());
        let published = tx.order_find(&name.name).await?.filter(has_record);
        let orgs = published.map(|order| order.org).into_iter().chain(publishes.then_some(name.org));
        let records: Vec<(OrgId, String)> = orgs.map(|org| (org, record_name(&name.name))).collect();
        self.ports.zones.lock(tx, &records).await?;
        let current = tx.name_lock_all(slice::from_ref(&name.name)).await?.pop();
        current.filter(|current| current.run == name.run && current.project == name.project).ok_or(RunError::Stale)
    }
}

/// Truncates an error, which can contain texts of an authority and of DNS records.
fn truncate(message: &str) -> String {
    message.chars().take(MAX_ERROR).collect()
}

/// Creates the audit event of a name.
pub(super) fn event(event: &'static str, name: &NameRecord, data: serde_json::Value) -> Event {
    match name.project {
        Some(project) => Event::in_org(event, name.org, project, data),
        None => Event::of_platform(event, &name.name, data),
    }
}
