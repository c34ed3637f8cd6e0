//! What signing in asks of storage.

use kernel::{Provider, SessionId, Time, TokenHash, UserId};
use store::Result;

use crate::model::Profile;

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

    /// Ends a session; false when it had ended.
    async fn session_delete(&mut self, session: SessionId) -> Result<bool>;
}
