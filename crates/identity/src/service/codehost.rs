//! Signing in at the code host (specification, "Login and identity"; RFC 6749 section 4.1, RFC 7636, RFC 9700).
//!
//! A sign-in belongs to the browser that began it: the code host's answer counts only together with that browser's
//! cookie, so nobody can be signed in as somebody else by a link. It can be ended once, within ten minutes.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kernel::audit::Actor;
use kernel::{AllowList, Malformed, Token, TokenKind};
use ring::digest::{SHA256, digest};

use super::{Identity, Result};
use crate::error::IdentityError;
use crate::model::Session;
use crate::ports::{CodeHost, CodeHostFailure};
use crate::repository::{IdentityRepository as _, LoginRecord};

/// How long a sign-in may take (contract section 2).
const LOGIN_SECONDS: i64 = 600;

/// The code host of a deployment, and where people may go from it.
pub struct CodeHostLogin {
    pub host: Arc<dyn CodeHost>,
    /// The address of the callback, as registered at the code host.
    pub callback: String,
    /// Where a signed-in browser may be sent.
    pub redirects: AllowList,
}

/// A sign-in that has begun.
pub struct LoginBegun {
    /// Where to send the browser.
    pub url: String,
    /// What the code host will hand back.
    pub state: Token,
    /// What the browser keeps meanwhile, out of the page's reach.
    pub browser: Token,
    /// How long it keeps it.
    pub seconds: i64,
}

/// A sign-in that has ended, in one way or the other.
#[derive(Debug)]
pub struct LoginEnded {
    /// Where the browser goes.
    pub redirect: String,
    pub outcome: Result<Session>,
}

impl Identity {
    /// Begins a sign-in that ends at `redirect`.
    ///
    /// # Errors
    /// [`IdentityError::Field`] for an address that is not allowed.
    pub async fn login_begin(&self, redirect: &str) -> Result<LoginBegun> {
        let login = self.code_host()?;
        let redirect = login.redirects.admit(redirect).map_err(|error| Malformed::new("redirect", error))?;
        let (world, now) = (self.store.world(), self.store.world().now());
        let (state, browser) = (Token::mint(TokenKind::Login, world), Token::mint(TokenKind::Login, world));
        let record = LoginRecord {
            state: state.hash(),
            browser: browser.hash(),
            redirect: redirect.into(),
            expires_at: now.plus_seconds(LOGIN_SECONDS),
        };
        self.store.connection().await?.login_insert(&record).await?;
        let challenge = sha256(&verifier(&browser));
        let url = login.host.authorize_url(&login.callback, state.reveal(), &challenge);
        Ok(LoginBegun { url, state, browser, seconds: LOGIN_SECONDS })
    }

    /// Ends the sign-in of this state in this browser with what the code host says: a code, or an error.
    ///
    /// # Errors
    /// [`IdentityError::UnknownLogin`]: then nobody knows where the browser should go. Once that is known, whatever
    /// goes wrong is the outcome.
    pub async fn login_end(
        &self,
        actor: &Actor,
        (state, browser): (&str, &str),
        said: std::result::Result<&str, &str>,
        user_agent: Option<&str>,
    ) -> Result<LoginEnded> {
        let login = self.code_host()?;
        let read = |text| Token::parse(TokenKind::Login, text).ok_or(IdentityError::UnknownLogin);
        let (state, browser) = (read(state)?, read(browser)?);
        let now = self.store.world().now();
        let taken = self.store.connection().await?.login_take(state.hash(), browser.hash(), now).await?;
        let redirect = taken.ok_or(IdentityError::UnknownLogin)?;
        let outcome = self.login_outcome(actor, login, &browser, said, user_agent).await;
        Ok(LoginEnded { redirect, outcome })
    }

    /// Forgets sign-ins that nobody ended in time. To be called now and then.
    ///
    /// # Errors
    /// [`IdentityError::Store`].
    pub async fn logins_forget(&self) -> Result<()> {
        let now = self.store.world().now();
        while store::is_full(self.store.connection().await?.login_forget(now, store::BATCH).await?) {}
        Ok(())
    }

    async fn login_outcome(
        &self,
        actor: &Actor,
        login: &CodeHostLogin,
        browser: &Token,
        said: std::result::Result<&str, &str>,
        user_agent: Option<&str>,
    ) -> Result<Session> {
        let code = match said {
            Ok(code) => code,
            Err("access_denied") => return Err(IdentityError::LoginRefused),
            Err(error) => {
                let cause = format!("it answered the error {:?}", error.chars().take(64).collect::<String>());
                return Err(CodeHostFailure::Unavailable(cause.into()).into());
            }
        };
        let (sign_in, wish) = login.host.identify(code, &login.callback, &verifier(browser)).await?;
        self.sign_in(actor, sign_in, &wish, user_agent).await
    }

    fn code_host(&self) -> Result<&CodeHostLogin> {
        let missing = || store::Error::inconsistent("there is no code host, and yet its routes are served");
        Ok(self.code_host.as_deref().ok_or_else(missing)?)
    }
}

/// The PKCE verifier follows from what the browser keeps, so it is stored nowhere.
fn verifier(browser: &Token) -> String {
    sha256(browser.reveal())
}

fn sha256(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}

/// Without the address, which holds the state.
impl std::fmt::Debug for LoginBegun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LoginBegun(…)")
    }
}
