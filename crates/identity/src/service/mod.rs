//! Use cases of users. This file contains sessions and the development login; the other files contain the other
//! credentials.

mod codehost;
mod key;
mod token;

pub use codehost::{CodeHostLogin, LoginResult, LoginStart};

use std::sync::Arc;

use kernel::audit::{Actor, Credential, Event};
use kernel::{AbuseLimits, Page, Paging, Provider, SessionId, Time, Token, TokenKind, UserId};
use serde_json::json;
use store::{Connection, Outcome, Store};

use crate::error::IdentityError;
use crate::model::{DevLogin, LoginSession, Session};
use crate::ports::{PersonalOrgs, RestrictionTargets};
use crate::repository::{IdentityRepository as _, KeyRepository as _, NewSession, SignIn, TokenRepository as _};

/// The lifetime of a login session (contract section 1): 30 days.
const SESSION_LIFETIME_SECONDS: i64 = 30 * 24 * 3600;
/// The maximum number of sessions of a user. A further one ends the session that was used least recently.
const MAX_SESSIONS: i64 = 100;

/// The time for which a credential's last use is not recorded again, so that most requests need no write.
const LAST_USED_RESOLUTION_SECONDS: i64 = 600;

/// The stored length of a `User-Agent`.
const MAX_USER_AGENT_CHARS: usize = 255;

/// The service for users, sessions and other credentials. Cheap to clone.
#[derive(Clone)]
pub struct Identity {
    store: Store,
    personal_orgs: Arc<dyn PersonalOrgs>,
    restriction_targets: Arc<dyn RestrictionTargets>,
    code_host: Option<Arc<CodeHostLogin>>,
    limits: AbuseLimits,
}

type Result<T> = std::result::Result<T, IdentityError>;

impl Identity {
    /// Creates the service without a code host, with the default limits.
    #[must_use]
    pub fn new(
        store: Store,
        personal_orgs: Arc<dyn PersonalOrgs>,
        restriction_targets: Arc<dyn RestrictionTargets>,
    ) -> Self {
        Self { store, personal_orgs, restriction_targets, code_host: None, limits: AbuseLimits::default() }
    }

    /// Sets the limits.
    #[must_use]
    pub fn with_limits(self, limits: AbuseLimits) -> Self {
        Self { limits, ..self }
    }

    /// Adds a code host at which users can sign in.
    #[must_use]
    pub fn with_code_host(self, code_host: CodeHostLogin) -> Self {
        Self { code_host: Some(Arc::new(code_host)), ..self }
    }

    /// Signs in the given user without authentication. Only for installations that enable the development login.
    pub async fn dev_login(&self, actor: &Actor, login: DevLogin, user_agent: Option<&str>) -> Result<Session> {
        let DevLogin { subject, email, name } = login;
        let email = email.map(|email| email.to_string());
        let (preferred_slug, subject) = (subject.as_str(), subject.to_string());
        let sign_in = SignIn { provider: Provider::Dev, subject, name, email, avatar_url: None };
        self.sign_in(actor, sign_in, preferred_slug, user_agent).await
    }

    /// Ends a session of the user. The next request with it is rejected.
    ///
    /// # Errors
    /// Returns [`IdentityError::SessionNotFound`].
    pub async fn session_end(&self, actor: &Actor, user: UserId, session: SessionId) -> Result<()> {
        self.store
            .transaction(actor, async |tx| {
                // Lock the user, because two sessions may end each other concurrently. Check the caller before the
                // change, because a session may end itself.
                tx.user_lock(user).await?;
                let authorized = self.store.authorize(tx, actor).await?;
                if !tx.session_delete(user, session).await? {
                    return Err(IdentityError::SessionNotFound);
                }
                let event = Event::of_account("session.end", user, session, json!({}));
                Ok(Outcome::ChangedAuthority((), event, authorized))
            })
            .await
    }

    /// Returns the user's unexpired sessions, newest first. `current` is the session of the request.
    pub async fn sessions(
        &self,
        user: UserId,
        current: SessionId,
        paging: &Paging<SessionId>,
    ) -> Result<Page<LoginSession>> {
        let now = self.store.clock_rng().now();
        let sessions = self.store.connection().await?.session_list(user, current, now, paging).await?;
        Ok(Page::cut(sessions, paging, |session| session.id))
    }

    /// Purges expired sessions. A background job calls this periodically.
    pub async fn sessions_purge(&self) -> Result<()> {
        let now = self.store.clock_rng().now();
        while store::is_full_batch(self.store.connection().await?.session_purge(now).await?) {}
        Ok(())
    }

    /// Returns whether a use of a credential must be stored now, because the stored last use is too old.
    #[must_use]
    pub fn is_use_due(&self, last_used_at: Option<Time>) -> bool {
        last_used_at.is_none_or(|at| self.store.clock_rng().now() > at.plus_seconds(LAST_USED_RESOLUTION_SECONDS))
    }

    /// Stores the current time as the last use of a credential, unless the stored time is recent.
    pub async fn touch(&self, credential: Credential) -> Result<()> {
        let now = self.store.clock_rng().now();
        let stale = now.plus_seconds(-LAST_USED_RESOLUTION_SECONDS);
        let mut connection = self.store.connection().await?;
        match credential {
            Credential::Session(session) => connection.session_touch(session, now, stale).await?,
            Credential::Token(token) => connection.token_touch(token, now, stale).await?,
            Credential::SshKey(key) => connection.key_touch(key, now, stale).await?,
            Credential::Grant(_)
            | Credential::Client(_)
            | Credential::None
            | Credential::Operator
            | Credential::Service => {}
        }
        Ok(())
    }

    /// Upserts the user, creates the personal organization of a new user, and starts a session, in one transaction.
    async fn sign_in(
        &self,
        actor: &Actor,
        sign_in: SignIn,
        preferred_slug: &str,
        user_agent: Option<&str>,
    ) -> Result<Session> {
        let clock_rng = self.store.clock_rng();
        let (new_id, now) = (clock_rng.id::<UserId>(), clock_rng.now());
        let token = Token::mint(TokenKind::Session, clock_rng);
        let expires_at = now.plus_seconds(SESSION_LIFETIME_SECONDS);
        let user_agent = user_agent.map(|text| text.chars().take(MAX_USER_AGENT_CHARS).collect());
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let user = tx.user_upsert(new_id, &sign_in, now).await?;
                let is_first = user.id == new_id;
                if is_first {
                    self.personal_orgs.create(tx, user.id, preferred_slug).await?;
                }
                let (id, token_hash) = (clock_rng.id(), token.hash());
                let session = NewSession { id, user_id: user.id, token_hash, user_agent, created_at: now, expires_at };
                tx.session_insert(&session).await?;
                let ended = tx.session_delete_unused(&session, MAX_SESSIONS - 1).await?;
                let data = json!({ "user": user.id, "provider": user.provider, "first": is_first, "ended": ended });
                let event = Event::of_account("session.start", user.id, id, data);
                Ok(Outcome::Changed(Session { token, expires_at, user_id: user.id, subject: user.subject }, event))
            })
            .await
    }
}
