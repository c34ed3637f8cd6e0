//! What users and their credentials ask of storage.

use kernel::{KeyId, OrgId, Paging, ProjectId, Provider, Scope, SessionId, Time, TokenHash, TokenId, UserId, ZoneId};
use store::Result;

use crate::model::{AccessToken, KeyType, LoginSession, Profile, SshKey};

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

/// A personal access token to write; of the token only its hash and its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    pub id: TokenId,
    pub user_id: UserId,
    pub name: String,
    pub token_hash: TokenHash,
    pub prefix: String,
    pub scopes: Vec<Scope>,
    pub only: Option<Only>,
    pub created_at: Time,
    pub expires_at: Option<Time>,
}

/// What a token is limited to, by ids: names change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Only {
    pub org: OrgId,
    /// With neither projects nor zones, the whole organization.
    pub projects: Option<Vec<ProjectId>>,
    pub zones: Option<Vec<ZoneId>>,
}

/// An SSH key to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    pub id: KeyId,
    pub user_id: UserId,
    pub title: String,
    pub kind: KeyType,
    pub fingerprint: String,
    pub line: String,
    pub created_at: Time,
}

/// A sign-in at the code host that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginRecord {
    /// Of the state that the code host hands back.
    pub state: TokenHash,
    /// Of the cookie in the one browser that may come back with it.
    pub browser: TokenHash,
    pub redirect: String,
    pub expires_at: Time,
}

/// Users and sessions on a [`store::Connection`].
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

    /// Writes a sign-in that is under way.
    async fn login_insert(&mut self, login: &LoginRecord) -> Result<()>;

    /// Forgets sign-ins that have expired, so many at once: how many.
    async fn login_forget(&mut self, at: Time, most: i64) -> Result<usize>;

    /// Takes the sign-in of this state and browser out: where its browser goes. Nobody else gets it after that.
    async fn login_take(&mut self, state: TokenHash, browser: TokenHash, at: Time) -> Result<Option<String>>;
}

/// Personal access tokens on a [`store::Connection`].
pub trait TokenRepository {
    /// Writes a token.
    async fn token_insert(&mut self, token: &TokenRecord) -> Result<()>;

    /// One of the user's tokens, revoked or not.
    async fn token_find(&mut self, user: UserId, token: TokenId) -> Result<Option<AccessToken>>;

    /// The user's tokens, newest first, revoked ones too.
    async fn token_list(&mut self, user: UserId, paging: &Paging<TokenId>) -> Result<Vec<AccessToken>>;

    /// Revokes a token of the user's; false when there is none that is not revoked.
    async fn token_revoke(&mut self, user: UserId, token: TokenId, at: Time) -> Result<bool>;

    /// Notes that a token is in use, unless that was noted after `stale`.
    async fn token_touch(&mut self, token: TokenId, at: Time, stale: Time) -> Result<()>;
}

/// SSH keys on a [`store::Connection`].
pub trait KeyRepository {
    /// Writes a key; false when anybody has registered it.
    async fn key_insert(&mut self, key: &KeyRecord) -> Result<bool>;

    /// The user's keys, newest first.
    async fn key_list(&mut self, user: UserId, paging: &Paging<KeyId>) -> Result<Vec<SshKey>>;

    /// Removes a key of the user's: its fingerprint; none when there is none.
    async fn key_delete(&mut self, user: UserId, key: KeyId) -> Result<Option<String>>;
}
