//! The task that removes sessions and identities that have ended.
//!
//! A few projects are cleaned concurrently. A project can make its database arbitrarily slow, so each attempt has a
//! timeout, and projects whose last attempt failed have separate permits: they delay only each other.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use daemon::error_chain;
use futures_util::FutureExt as _;
use protocol::Auth;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::AuthMetrics;
use super::store::upkeep::{self, SessionLimits};
use super::store::{Pool, Pools, Result, StoreError};
use crate::environment::Environments;

/// How often the task looks for projects with work.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The delay after a failure, for example while the database is being restored.
const RETRY_DELAY: Duration = Duration::from_secs(60);
/// After this number of sign-ins, the size of the table is checked.
const SIGN_INS: u64 = 1000;
/// After this time, the table of a project with sign-ins is checked.
const INTERVAL: Duration = Duration::from_secs(60 * 60);
/// After this time, expired sessions are removed.
const MAX_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest time of an attempt. Removed batches stay removed, so a repetition continues after them.
const TIMEOUT: Duration = Duration::from_secs(2 * 60);
/// The largest number of projects that are cleaned concurrently.
const MAX_CONCURRENT: usize = 4;
/// The largest number of projects whose last attempt failed and that are cleaned concurrently.
const MAX_RETRIES: usize = 2;

/// The task's state.
struct Upkeep {
    environments: Arc<Environments>,
    pools: Arc<Pools>,
    metrics: AuthMetrics,
    permits: Arc<Semaphore>,
    retry_permits: Arc<Semaphore>,
    checks: HashMap<String, Check>,
    /// The time of the last failure of each project whose last attempt failed.
    failed: HashMap<String, Instant>,
    running: HashSet<String>,
    attempts: JoinSet<(String, Result<Option<Check>>)>,
}

/// The last check of a project.
struct Check {
    auth: Arc<Auth>,
    epoch: i64,
    sign_ins: u64,
    at: Instant,
}

/// Removes what has ended, until the task is stopped.
pub async fn keep_up(environments: Arc<Environments>, pools: Arc<Pools>, metrics: AuthMetrics) {
    let mut upkeep = Upkeep {
        environments,
        pools,
        metrics,
        permits: Arc::new(Semaphore::new(MAX_CONCURRENT)),
        retry_permits: Arc::new(Semaphore::new(MAX_RETRIES)),
        checks: HashMap::new(),
        failed: HashMap::new(),
        running: HashSet::new(),
        attempts: JoinSet::new(),
    };
    loop {
        upkeep.start_due();
        let next_poll = sleep(POLL_INTERVAL);
        tokio::pin!(next_poll);
        loop {
            tokio::select! {
                () = &mut next_poll => break,
                Some(Ok((project, result))) = upkeep.attempts.join_next() => upkeep.end(project, result),
            }
        }
    }
}

impl Upkeep {
    fn start_due(&mut self) {
        let projects: HashSet<String> = self.environments.projects_with_auth();
        self.checks.retain(|project, _| projects.contains(project));
        self.failed.retain(|project, _| projects.contains(project));
        self.pools.retain(|project| projects.contains(project));
        for project in projects {
            // A saved state may be older than the rows of the database.
            let Some(auth) = self.environments.confirmed_auth(&project) else { continue };
            let pool = self.pools.get(&project);
            // While the database is closed, there is nothing to do.
            let Ok(access) = pool.access() else { continue };
            let is_due = self.checks.get(&project).is_none_or(|last| last.is_over(&auth, access.epoch, &pool));
            let waits = self.failed.get(&project).is_some_and(|at| at.elapsed() < RETRY_DELAY);
            if is_due && !waits && self.running.insert(project.clone()) {
                self.start(project, pool);
            }
        }
    }

    fn start(&mut self, project: String, pool: Arc<Pool>) {
        let permits = if self.failed.contains_key(&project) { &self.retry_permits } else { &self.permits };
        let (permits, environments, metrics) =
            (Arc::clone(permits), Arc::clone(&self.environments), self.metrics.clone());
        self.attempts.spawn(async move {
            let attempt = async {
                let _permit = permits.acquire().await.map_err(|_| StoreError::CLOSED)?;
                // The settings may have changed while the task waited.
                let Some(auth) = environments.confirmed_auth(&project) else { return Ok(None) };
                let Ok(check) = Check::begin(auth, &pool) else { return Ok(None) };
                let cleaned = timeout(TIMEOUT, clean(&project, &pool, &check.auth, &metrics)).await;
                match cleaned.unwrap_or(Err(StoreError::TIMED_OUT)) {
                    // The database was closed during the attempt. It becomes due when the database is open again.
                    Err(_) if pool.access().is_err() => Ok(None),
                    cleaned => cleaned.map(|()| Some(check)),
                }
            };
            let result = AssertUnwindSafe(attempt).catch_unwind().await;
            (project, result.unwrap_or(Err(StoreError::Unavailable("the attempt panicked"))))
        });
    }

    fn end(&mut self, project: String, result: Result<Option<Check>>) {
        self.running.remove(&project);
        match result {
            Ok(check) => {
                self.failed.remove(&project);
                self.checks.extend(check.map(|check| (project, check)));
            }
            Err(error) => {
                let error = error_chain(error);
                tracing::warn!(project, error, "failed to remove ended sessions; retrying");
                self.failed.insert(project, Instant::now());
            }
        }
    }
}

async fn clean(project: &str, pool: &Pool, auth: &Auth, metrics: &AuthMetrics) -> Result<()> {
    let removed = upkeep::clean(pool, auth, SessionLimits::default()).await?;
    metrics.count_removed(removed);
    let upkeep::Removed { identities, ended, oldest } = removed;
    if identities + ended + oldest > 0 {
        tracing::info!(project, identities, ended, oldest, "removed identities and sessions of app users");
    }
    Ok(())
}

impl Check {
    fn begin(auth: Arc<Auth>, pool: &Pool) -> Result<Self> {
        Ok(Self { auth, epoch: pool.access()?.epoch, sign_ins: pool.sign_ins(), at: Instant::now() })
    }

    /// Returns whether another check is due. A change of the providers or of the grant makes it due immediately.
    fn is_over(&self, auth: &Auth, epoch: i64, pool: &Pool) -> bool {
        let sign_ins = pool.sign_ins().saturating_sub(self.sign_ins);
        let has_ended = self.epoch != epoch
            || self.auth.grant != auth.grant
            || self.auth.session_days != auth.session_days
            || self.auth.providers != auth.providers;
        let (since, has_sign_ins) = (self.at.elapsed(), sign_ins > 0);
        has_ended || sign_ins >= SIGN_INS || has_sign_ins && since >= INTERVAL || since >= MAX_INTERVAL
    }
}
