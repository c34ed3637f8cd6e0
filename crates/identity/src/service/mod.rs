//! The use cases of users: signing in and out here, the credentials beside the session in the files next to it.

mod codehost;
mod key;
mod token;

pub use codehost::{CodeHostLogin, LoginBegun, LoginEnded};

use std::sync::Arc;

use kernel::audit::{Actor, Credential, Event};
use kernel::{Page, Paging, Provider, SessionId, Time, Token, TokenKind, UserId};
use serde_json::json;
use store::{Connection, Outcome, Store};

use crate::error::IdentityError;
use crate::model::{DevLogin, LoginSession, Session};
use crate::ports::{PersonalOrgs, Places};
use crate::repository::{IdentityRepository as _, NewSession, SignIn, TokenRepository as _};

/// How long a login session lives (contract section 1): 30 days.
const SESSION_SECONDS: i64 = 30 * 24 * 3600;

/// How coarsely the last use of a credential is noted: a read should not cost a write.
const COARSE_SECONDS: i64 = 600;

/// What is kept of a browser's name for itself.
const USER_AGENT_CHARS: usize = 255;

/// Users, their sessions and their other credentials. Cheap to clone.
#[derive(Clone)]
pub struct Identity {
    store: Store,
    personal_orgs: Arc<dyn PersonalOrgs>,
    places: Arc<dyn Places>,
    code_host: Option<Arc<CodeHostLogin>>,
}

type Result<T> = std::result::Result<T, IdentityError>;

impl Identity {
    /// The service on this database, without a code host to sign in at.
    #[must_use]
    pub fn new(store: Store, personal_orgs: Arc<dyn PersonalOrgs>, places: Arc<dyn Places>) -> Self {
        Self { store, personal_orgs, places, code_host: None }
    }

    /// The same service, with a code host to sign in at.
    #[must_use]
    pub fn with_code_host(self, code_host: CodeHostLogin) -> Self {
        Self { code_host: Some(Arc::new(code_host)), ..self }
    }

    /// Signs in whoever the caller says they are. Only for deployments that switched the development login on.
    ///
    /// # Errors
    /// [`IdentityError::Store`].
    pub async fn dev_login(&self, actor: &Actor, login: DevLogin, user_agent: Option<&str>) -> Result<Session> {
        let DevLogin { subject, email, name } = login;
        let email = email.map(|email| email.to_string());
        let (wish, subject) = (subject.as_str(), subject.to_string());
        let sign_in = SignIn { provider: Provider::Dev, subject, name, email, avatar_url: None };
        self.sign_in(actor, sign_in, wish, user_agent).await
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

    /// Whether the last use of a credential, as noted, is old enough to be noted anew.
    #[must_use]
    pub fn is_stale(&self, noted: Option<Time>) -> bool {
        noted.is_none_or(|noted| self.store.world().now() > noted.plus_seconds(COARSE_SECONDS))
    }

    /// Notes that a credential is in use.
    ///
    /// # Errors
    /// [`IdentityError::Store`].
    pub async fn touch(&self, credential: Credential) -> Result<()> {
        let now = self.store.world().now();
        let stale = now.plus_seconds(-COARSE_SECONDS);
        let mut connection = self.store.connection().await?;
        match credential {
            Credential::Session(session) => connection.session_touch(session, now, stale).await?,
            Credential::Token(token) => connection.token_touch(token, now, stale).await?,
            Credential::None | Credential::Operator | Credential::Service => {}
        }
        Ok(())
    }

    /// User, personal organization and session, in one transaction; `wish` is what the organization would best be called.
    async fn sign_in(&self, actor: &Actor, sign_in: SignIn, wish: &str, user_agent: Option<&str>) -> Result<Session> {
        let world = self.store.world();
        let (fresh, token, now) = (world.id::<UserId>(), Token::mint(TokenKind::Session, world), world.now());
        let expires_at = now.plus_seconds(SESSION_SECONDS);
        let user_agent = user_agent.map(|text| text.chars().take(USER_AGENT_CHARS).collect());
        self.store
            .transaction(actor, async |tx: &mut Connection| {
                let user = tx.user_upsert(fresh, &sign_in, now).await?;
                let first = user.id == fresh;
                if first {
                    self.personal_orgs.create(tx, user.id, wish).await?;
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
