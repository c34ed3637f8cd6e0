//! The use cases of signing in and out.

use std::sync::Arc;

use kernel::audit::{Actor, Event};
use kernel::{Page, Paging, Provider, SessionId, Time, Token, TokenKind, UserId};
use serde_json::json;
use store::{Connection, Outcome, Store};

use crate::error::IdentityError;
use crate::model::{DevLogin, LoginSession, Session};
use crate::port::PersonalOrgs;
use crate::repository::{IdentityRepository as _, NewSession, SignIn};

/// How long a login session lives (contract section 1): 30 days.
const SESSION_SECONDS: i64 = 30 * 24 * 3600;

/// How coarsely the last use of a session is noted: a read should not cost a write.
const COARSE_SECONDS: i64 = 600;

/// What is kept of a browser's name for itself.
const USER_AGENT_CHARS: usize = 255;

/// Users and their sessions. Cheap to clone.
#[derive(Clone)]
pub struct Identity {
    store: Store,
    personal_orgs: Arc<dyn PersonalOrgs>,
}

type Result<T> = std::result::Result<T, IdentityError>;

impl Identity {
    /// The service on this database.
    #[must_use]
    pub fn new(store: Store, personal_orgs: Arc<dyn PersonalOrgs>) -> Self {
        Self { store, personal_orgs }
    }

    /// Signs in whoever the caller says they are. Only for deployments that switched the development login on.
    ///
    /// # Errors
    /// [`IdentityError::Store`].
    pub async fn dev_login(&self, actor: &Actor, login: DevLogin, user_agent: Option<&str>) -> Result<Session> {
        let DevLogin { subject, email, name } = login;
        let subject = subject.to_string();
        self.sign_in(actor, SignIn { provider: Provider::Dev, subject, name, email, avatar_url: None }, user_agent)
            .await
    }

    /// Ends one of the user's sessions; it opens nothing from the next request on.
    ///
    /// # Errors
    /// [`IdentityError::SessionNotFound`].
    pub async fn session_end(&self, actor: &Actor, user: UserId, session: SessionId) -> Result<()> {
        self.store
            .transaction(actor, async |tx| {
                if !tx.session_delete(user, session).await? {
                    return Err(IdentityError::SessionNotFound);
                }
                let event = Event { name: "session.end", org: None, target: session.to_string(), data: json!({}) };
                Ok(Outcome::Changed((), event))
            })
            .await
    }

    /// The user's live sessions, newest first; `current` is the one that asks.
    ///
    /// # Errors
    /// [`IdentityError::Store`].
    pub async fn sessions(
        &self,
        user: UserId,
        current: SessionId,
        paging: &Paging<SessionId>,
    ) -> Result<Page<LoginSession>> {
        let now = self.store.world().now();
        let sessions = self.store.connection().await?.session_list(user, current, now, paging).await?;
        Ok(Page::cut(sessions, paging, |session| session.id))
    }

    /// Whether a session's last use, as noted, is old enough to be noted anew.
    #[must_use]
    pub fn is_stale(&self, last_used_at: Option<Time>, created_at: Time) -> bool {
        let noted = last_used_at.unwrap_or(created_at);
        self.store.world().now() > noted.plus_seconds(COARSE_SECONDS)
    }

    /// Notes that a session is in use.
    ///
    /// # Errors
    /// [`IdentityError::Store`].
    pub async fn session_touch(&self, session: SessionId) -> Result<()> {
        let now = self.store.world().now();
        let stale = now.plus_seconds(-COARSE_SECONDS);
        Ok(self.store.connection().await?.session_touch(session, now, stale).await?)
    }

    /// User, personal organization and session, in one transaction.
    async fn sign_in(&self, actor: &Actor, sign_in: SignIn, user_agent: Option<&str>) -> Result<Session> {
        let world = self.store.world();
        let (fresh, token, now) = (world.id::<UserId>(), Token::mint(TokenKind::Session, world), world.now());
        let expires_at = now.plus_seconds(SESSION_SECONDS);
        let user_agent = user_agent.map(|text| text.chars().take(USER_AGENT_CHARS).collect());
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let user = tx.user_upsert(fresh, &sign_in, now).await?;
                let first = user.id == fresh;
                if first {
                    self.personal_orgs.create(tx, user.id, &user.subject).await?;
                }
                let (id, token_hash) = (world.id(), token.hash());
                let session = NewSession { id, user_id: user.id, token_hash, user_agent, created_at: now, expires_at };
                tx.session_insert(&session).await?;
                // Nothing else would ever remove them.
                tx.session_delete_expired(user.id, now).await?;
                let data = json!({ "user": user.id, "provider": user.provider, "first": first });
                let event = Event { name: "session.start", org: None, target: id.to_string(), data };
                Ok(Outcome::Changed(Session { token, expires_at, user_id: user.id, subject: user.subject }, event))
            })
            .await
    }
}
