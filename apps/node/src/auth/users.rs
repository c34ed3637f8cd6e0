//! `env.auth.users`: the users of a project, for its worker code.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix_web::HttpRequest;
use daemon::error_chain;
use protocol::{Auth, AuthProviderKind};
use tokio::time::Instant;

use super::AuthMetrics;
use super::cookies::SessionCookie;
use super::session::{Handles, WorkerSession};
use super::store::{Pool, Pools, Result, StoreError, TokenDigest, User};

/// Failures of a project, and those of a provider in a project, are logged once in this time, because each request of a
/// visitor can cause one.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The users of all projects.
pub struct Users {
    pools: Arc<Pools>,
    handles: Handles,
    pub(super) metrics: AuthMetrics,
    /// The time of the last logged failure of each project. With a provider: of the provider in the project.
    logged: Mutex<HashMap<(String, Option<AuthProviderKind>), Instant>>,
}

impl Users {
    /// Creates the key of the handles.
    ///
    /// # Errors
    /// Returns an error if the system has no random bytes.
    pub fn new(pools: Arc<Pools>, metrics: AuthMetrics) -> std::io::Result<Self> {
        Ok(Self { pools, handles: Handles::new()?, metrics, logged: Mutex::default() })
    }

    /// Returns the connections of a project.
    pub fn pool(&self, project: &str) -> Arc<Pool> {
        self.pools.get(project)
    }

    /// Counts a failure, and logs it unless one of the project was logged recently.
    pub fn record_failure(&self, project: &str, error: StoreError) {
        self.metrics.count_failure();
        if self.may_log(project, None) {
            let error = error_chain(error);
            tracing::warn!(project, error, "failed to use the users of a project");
        }
    }

    /// Logs a failure of a provider, unless one of this provider in the project was logged recently.
    pub(super) fn log_provider_failure(&self, project: &str, provider: AuthProviderKind, error: &str) {
        if self.may_log(project, Some(provider)) {
            tracing::warn!(project, provider = provider.as_str(), error, "failed to sign in an app user");
        }
    }

    fn may_log(&self, project: &str, provider: Option<AuthProviderKind>) -> bool {
        let (now, mut logged) = (Instant::now(), self.logged.lock().unwrap_or_else(PoisonError::into_inner));
        let key = (project.to_owned(), provider);
        if logged.get(&key).is_some_and(|at| now - *at < LOG_INTERVAL) {
            return false;
        }
        logged.retain(|_, at| now - *at < LOG_INTERVAL);
        logged.insert(key, now);
        true
    }

    /// Returns the user of a handle; `None` if the session has ended.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub async fn current(&self, project: &str, auth: &Auth, handle: &str) -> Result<Option<User>> {
        match self.handles.open(project, handle) {
            Some(token) => self.resolve(project, auth, &token).await,
            None => Ok(None),
        }
    }

    /// Returns the user of a session.
    pub(super) async fn resolve(&self, project: &str, auth: &Auth, token: &TokenDigest) -> Result<Option<User>> {
        let began = Instant::now();
        let resolved = self.pool(project).resolve(auth, token).await;
        self.metrics.observe_resolution(began.elapsed());
        resolved
    }

    /// Returns the handle of a visitor's session, and its cookie if the browser must store it for longer. This needs no
    /// statement.
    pub(super) fn worker_session(
        &self,
        request: &HttpRequest,
        project: &str,
        auth: &Auth,
        https: bool,
    ) -> Option<WorkerSession> {
        let cookie = SessionCookie::of(request, https)?;
        let handle = self.handles.seal(project, &cookie.digest())?;
        Some(WorkerSession { handle, renewal: cookie.renewal(auth, https) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_of_a_project_are_logged_once_a_minute() {
        let metrics = AuthMetrics::new(&prometheus::Registry::new()).unwrap();
        let users = Users::new(Arc::new(Pools::new(None)), metrics).unwrap();
        let keys = [
            ("prj_1", None),
            ("prj_2", None),
            ("prj_1", Some(AuthProviderKind::Codehost)),
            ("prj_1", Some(AuthProviderKind::Messenger)),
            ("prj_2", Some(AuthProviderKind::Codehost)),
        ];
        assert!(keys.iter().all(|(project, provider)| users.may_log(project, *provider)));
        assert!(!keys.iter().any(|(project, provider)| users.may_log(project, *provider)));
        tokio::time::advance(LOG_INTERVAL).await;
        assert!(users.may_log("prj_1", None) && !users.may_log("prj_1", None));
        assert_eq!(users.logged.lock().unwrap().len(), 1);
    }
}
