//! What signing in asks of storage.

use kernel::{Paging, Provider, SessionId, Time, TokenHash, UserId};
use store::Result;

use crate::model::{LoginSession, Profile};

/// Somebody whom a provider vouches for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignIn {
    pub provider: Provider,
    pub subject: String,
    pub name: Option<String>,
    pub email: Option<String>,
    pub avatar_url: Option<String>,
}

/// A session to write; of the token only its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    pub id: SessionId,
    pub user_id: UserId,
    pub token_hash: TokenHash,
    pub user_agent: Option<String>,
    pub created_at: Time,
    pub expires_at: Time,
}

/// The verbs of this context on a [`store::Connection`].
pub trait IdentityRepository {
    /// The user of this provider and subject: a new one under `id`, or the one there is, with whatever the provider
    /// now says of name, address and picture. Of two at once the second waits and finds the first's.
    async fn user_upsert(&mut self, id: UserId, sign_in: &SignIn, at: Time) -> Result<Profile>;

    /// Writes a session.
    async fn session_insert(&mut self, session: &NewSession) -> Result<()>;

    /// Removes the user's sessions that have expired.
    async fn session_delete_expired(&mut self, user: UserId, at: Time) -> Result<()>;

    /// Ends a session of the user's; false when there is none.
    async fn session_delete(&mut self, user: UserId, session: SessionId) -> Result<bool>;

    /// The user's sessions that have not expired, newest first; `current` is the one that asks.
    async fn session_list(
        &mut self,
        user: UserId,
        current: SessionId,
        at: Time,
        paging: &Paging<SessionId>,
    ) -> Result<Vec<LoginSession>>;

    /// Notes that a session is in use, unless that was noted after `stale`.
    async fn session_touch(&mut self, session: SessionId, at: Time, stale: Time) -> Result<()>;
}
