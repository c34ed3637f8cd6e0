//! What this context asks of others.

use kernel::{OrgId, ProjectId, UserId, ZoneId};
use store::Connection;

use crate::repository::SignIn;

/// Founds organizations for people who sign in for the first time.
#[async_trait::async_trait]
pub trait PersonalOrgs: Send + Sync {
    /// Creates the user's own organization in the transaction that creates the user; `wish` is what it would best be
    /// called.
    ///
    /// # Errors
    /// When the database is away.
    async fn create(&self, tx: &mut Connection, user: UserId, wish: &str) -> store::Result<()>;
}

/// Finds the places that a token may be limited to.
#[async_trait::async_trait]
pub trait Places: Send + Sync {
    /// The organization of this slug, when the user belongs to it.
    ///
    /// # Errors
    /// When the database is away.
    async fn org(&self, tx: &mut Connection, user: UserId, slug: &str) -> store::Result<Option<OrgId>>;

    /// The project of this name in the organization.
    ///
    /// # Errors
    /// When the database is away.
    async fn project(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<Option<ProjectId>>;

    /// The zone of this name in the organization, in Unicode or punycode.
    ///
    /// # Errors
    /// When the database is away.
    async fn zone(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<Option<ZoneId>>;
}

/// The code host where people sign in (OAuth 2.0, RFC 6749 section 4.1, with PKCE, RFC 7636).
#[async_trait::async_trait]
pub trait CodeHost: Send + Sync {
    /// Where the browser is sent.
    fn authorize_url(&self, redirect_uri: &str, state: &str, challenge: &str) -> String;

    /// Exchanges the code for whoever signed in, and the name that their organization would best have.
    ///
    /// # Errors
    /// When the code host refuses the code, or does not answer as it should.
    async fn identify(
        &self,
        code: &str,
        redirect_uri: &str,
        verifier: &str,
    ) -> Result<(SignIn, String), CodeHostFailure>;
}

/// Why a code was not exchanged; the cause is for the log.
#[derive(Debug, thiserror::Error)]
pub enum CodeHostFailure {
    #[error("the code host did not accept the sign-in; start again")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the code host did not answer as it should; try again in a moment")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}
