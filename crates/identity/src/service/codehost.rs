//! Sign-in at the code host (specification, "Login and identity"; RFC 6749 section 4.1, RFC 7636, RFC 9700).
//!
//! A sign-in is bound to the browser that started it: the callback is valid only with that browser's cookie. So an
//! attacker cannot send a link that signs a victim in to the attacker's account. A sign-in can end only once, and only
//! within ten minutes.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kernel::audit::Actor;
use kernel::{AllowList, InvalidField, Token, TokenKind};
use ring::digest::{SHA256, digest};

use super::{Identity, Result};
use crate::error::IdentityError;
use crate::model::Session;
use crate::ports::{CodeHost, CodeHostFailure};
use crate::repository::{IdentityRepository as _, LoginRecord};

/// The time in which a sign-in must end (contract section 2).
const LOGIN_LIFETIME_SECONDS: i64 = 600;

/// The code host of an installation, and the allowed redirects after a sign-in.
pub struct CodeHostLogin {
    pub host: Arc<dyn CodeHost>,
    /// The callback address that is registered at the code host.
    pub callback: String,
    /// The addresses that the browser may be sent to after the sign-in.
    pub redirects: AllowList,
}

/// A started sign-in.
pub struct LoginStart {
    /// The address to send the browser to.
    pub url: String,
    /// The state that the code host sends back.
    pub state: Token,
    /// The value of the browser's `HttpOnly` cookie.
    pub browser: Token,
    /// The lifetime of the cookie in seconds.
    pub seconds: i64,
}

/// The result of a sign-in.
#[derive(Debug)]
pub struct LoginResult {
    /// The address to send the browser to.
    pub redirect: String,
    pub outcome: Result<Session>,
}

impl Identity {
    /// Starts a sign-in that sends the browser to `redirect` when it ends.
    ///
    /// # Errors
    /// Returns [`IdentityError::Fields`] if `redirect` is not allowed.
    pub async fn login_begin(&self, redirect: &str) -> Result<LoginStart> {
        let login = self.code_host()?;
        let redirect = login.redirects.admit(redirect).map_err(|error| InvalidField::new("redirect", error))?;
        let (clock_rng, now) = (self.store.clock_rng(), self.store.clock_rng().now());
        let (state, browser) = (Token::mint(TokenKind::Login, clock_rng), Token::mint(TokenKind::Login, clock_rng));
        let record = LoginRecord {
            state: state.hash(),
            browser: browser.hash(),
            redirect: redirect.into(),
            expires_at: now.plus_seconds(LOGIN_LIFETIME_SECONDS),
        };
        self.store.connection().await?.login_insert(&record).await?;
        let challenge = sha256(&verifier(&browser));
        let url = login.host.authorize_url(&login.callback, state.reveal(), &challenge);
        Ok(LoginStart { url, state, browser, seconds: LOGIN_LIFETIME_SECONDS })
    }

    /// Ends the sign-in with this state and browser cookie. `response` is the code or the error of the code host.
    ///
    /// # Errors
    /// Returns [`IdentityError::UnknownLogin`] if the sign-in is unknown, because its redirect is then unknown too.
    /// Later errors are in the outcome.
    pub async fn login_end(
        &self,
        actor: &Actor,
        (state, browser): (&str, &str),
        response: std::result::Result<&str, &str>,
        user_agent: Option<&str>,
    ) -> Result<LoginResult> {
        let login = self.code_host()?;
        let parse = |text| Token::parse(TokenKind::Login, text).ok_or(IdentityError::UnknownLogin);
        let (state, browser) = (parse(state)?, parse(browser)?);
        let now = self.store.clock_rng().now();
        let redirect = self.store.connection().await?.login_consume(state.hash(), browser.hash(), now).await?;
        let redirect = redirect.ok_or(IdentityError::UnknownLogin)?;
        let outcome = self.login_outcome(actor, login, &browser, response, user_agent).await;
        Ok(LoginResult { redirect, outcome })
    }

    /// Purges expired sign-ins. A background job calls this periodically.
    pub async fn logins_purge(&self) -> Result<()> {
        let now = self.store.clock_rng().now();
        while store::is_full_batch(self.store.connection().await?.login_purge(now).await?) {}
        Ok(())
    }

    async fn login_outcome(
        &self,
        actor: &Actor,
        login: &CodeHostLogin,
        browser: &Token,
        response: std::result::Result<&str, &str>,
        user_agent: Option<&str>,
    ) -> Result<Session> {
        let code = match response {
            Ok(code) => code,
            Err("access_denied") => return Err(IdentityError::LoginRefused),
            Err(error) => {
                let cause =
                    format!("the code host returned the error {:?}", error.chars().take(64).collect::<String>());
                return Err(CodeHostFailure::Unavailable(cause.into()).into());
            }
        };
        let (sign_in, preferred_slug) = login.host.identify(code, &login.callback, &verifier(browser)).await?;
        self.sign_in(actor, sign_in, &preferred_slug, user_agent).await
    }

    fn code_host(&self) -> Result<&CodeHostLogin> {
        let missing = || store::Error::inconsistent("the code host routes are served without a code host");
        Ok(self.code_host.as_deref().ok_or_else(missing)?)
    }
}

/// Derives the PKCE verifier from the browser cookie, so that it need not be stored.
fn verifier(browser: &Token) -> String {
    sha256(browser.reveal())
}

fn sha256(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}

/// The derived implementation would show the state, which the address contains.
impl std::fmt::Debug for LoginStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LoginStart(…)")
    }
}
