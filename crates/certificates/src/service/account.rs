//! The accounts at the authorities.

use std::time::Duration;

use kernel::audit::{Actor, Event};
use kernel::seal::Sealed;
use serde_json::json;
use store::{Connection, Error, Outcome, Quota, SealedColumn};

use super::Certificates;
use super::run::{JOB, RunError};
use crate::ports::{Authority, AuthorityError, AuthoritySession};
use crate::repository::AccountRepository as _;

/// The sealed credentials of accounts.
pub(super) const CREDENTIALS: SealedColumn =
    SealedColumn { table: "certificates.accounts", column: "sealed", row_key: &[("directory", "text")] };

/// The attempts to create an account at an authority. The period exceeds the duration of an attempt, so that no two
/// servers create one concurrently.
const CREATIONS: Quota = Quota { permits: 1, period: Duration::from_secs(60) };

/// The maximum random delay of a name that waits for the account: 1 minute.
const CREATION_JITTER_SECONDS: i64 = 60;

/// A session, with the account to which it belongs.
pub(super) struct Session {
    pub(super) calls: Box<dyn AuthoritySession>,
    account: Sealed,
}

impl Certificates {
    /// Starts a session with the account at an authority. Creates the account before its first use.
    pub(super) async fn session(&self, authority: &dyn Authority) -> Result<Session, RunError> {
        let directory = authority.directory();
        let account = match self.store.connection().await?.account_find(directory).await? {
            Some(account) => account,
            None => self.create_account(authority).await?,
        };
        let credentials = self.store.open_text(CREDENTIALS.associated_data(directory), &account)?;
        match authority.open(&credentials).await {
            Ok(calls) => Ok(Session { calls, account }),
            Err(error) => {
                self.end_rejected_account(directory, &account, &error).await?;
                Err(self.handle_account_error(directory, error).await?)
            }
        }
    }

    /// Creates the account at an authority. One task of one server creates it; the other ones use that account.
    async fn create_account(&self, authority: &dyn Authority) -> Result<Sealed, RunError> {
        let directory = authority.directory();
        let _serialized = self.account_creation.lock().await;
        self.check_pause(directory).await?;
        if let Some(account) = self.store.connection().await?.account_find(directory).await? {
            return Ok(account);
        }
        let wait = self.store.permits_take(&format!("certificate-account {directory}"), CREATIONS, 1).await?;
        if let Some(wait) = wait {
            let seconds = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX).saturating_add(1);
            let jitter = self.random(CREATION_JITTER_SECONDS);
            let until = self.store.clock_rng().now().plus_seconds(seconds.saturating_add(jitter));
            let message = "the account at the certificate authority is being created".to_owned();
            return Err(RunError::Postponed { until, message });
        }
        let credentials = match authority.create_account().await {
            Ok(credentials) => credentials,
            Err(error) => return Err(self.handle_account_error(directory, error).await?),
        };
        let sealed = self.store.seal(CREDENTIALS.associated_data(directory), credentials.reveal().as_bytes())?;
        let now = self.store.clock_rng().now();
        self.store
            .transaction(&Actor::service(JOB), async |tx: &mut Connection| {
                if tx.account_insert(directory, sealed.clone(), now).await? {
                    let event = Event::of_platform("certificate.account_create", directory, json!({}));
                    return Ok(Outcome::Changed(sealed, event));
                }
                let missing = || Error::inconsistent("the account at an authority is missing");
                Ok(Outcome::Unchanged(tx.account_find(directory).await?.ok_or_else(missing)?))
            })
            .await
            .map_err(RunError::Store)
    }

    /// Pauses an authority that limits the rate of accounts or directories, because every name needs them.
    async fn handle_account_error(&self, directory: &str, error: AuthorityError) -> store::Result<RunError> {
        if let AuthorityError::RateLimited { retry_after, .. } | AuthorityError::Overloaded { retry_after, .. } = &error
        {
            self.pause(directory, *retry_after).await?;
        }
        Ok(RunError::Authority(error))
    }

    /// Deletes the account of a session that the authority has rejected. The next session then creates a new one.
    pub(super) async fn end_rejected_session(
        &self,
        directory: &str,
        session: &Session,
        error: &AuthorityError,
    ) -> store::Result<()> {
        self.end_rejected_account(directory, &session.account, error).await
    }

    async fn end_rejected_account(
        &self,
        directory: &str,
        account: &Sealed,
        error: &AuthorityError,
    ) -> store::Result<()> {
        if !matches!(error, AuthorityError::Account(_)) {
            return Ok(());
        }
        self.store
            .transaction(&Actor::service(JOB), async |tx: &mut Connection| {
                // Another run may have replaced the account.
                if !tx.account_delete(directory, account).await? {
                    return Ok(Outcome::Unchanged(()));
                }
                let event = Event::of_platform("certificate.account_delete", directory, json!({}));
                Ok(Outcome::Changed((), event))
            })
            .await
    }
}
