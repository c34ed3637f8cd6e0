//! The ports of the identity context.

use kernel::{OrgId, ProjectId, UserId, ZoneId};
use store::Connection;

use crate::repository::SignIn;

/// Creates the personal organization of a new user.
#[async_trait::async_trait]
pub trait PersonalOrgs: Send + Sync {
    /// Creates the user's personal organization in the transaction that creates the user. The slug is `preferred_slug`,
    /// or derived from it.
    async fn create(&self, tx: &mut Connection, user: UserId, preferred_slug: &str) -> store::Result<()>;
}

/// Resolves the targets of a token restriction.
#[async_trait::async_trait]
pub trait RestrictionTargets: Send + Sync {
    /// Returns the organization with this slug if the user is a member.
    async fn org(&self, tx: &mut Connection, user: UserId, slug: &str) -> store::Result<Option<OrgId>>;

    /// Returns the project with this name in the organization.
    async fn project(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<Option<ProjectId>>;

    /// Returns the zone with this name, in Unicode or Punycode, in the organization.
    async fn zone(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<Option<ZoneId>>;
}

/// The code host at which users sign in (OAuth 2.0, RFC 6749 section 4.1, with PKCE, RFC 7636).
#[async_trait::async_trait]
pub trait CodeHost: Send + Sync {
    /// Returns the address that the browser is sent to.
    fn authorize_url(&self, redirect_uri: &str, state: &str, challenge: &str) -> String;

    /// Exchanges the code for the user who signed in and the preferred slug of their personal organization.
    async fn identify(
        &self,
        code: &str,
        redirect_uri: &str,
        verifier: &str,
    ) -> Result<(SignIn, String), CodeHostFailure>;
}

/// An error of the code exchange. Only the log shows its source.
#[derive(Debug, thiserror::Error)]
pub enum CodeHostFailure {
    #[error("the code host rejected the sign-in; start again")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the code host is unavailable; try again in a moment")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}
