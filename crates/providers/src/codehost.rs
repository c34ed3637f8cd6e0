//! Signing in with a code host: OAuth's code flow with PKCE (RFC 6749 section 4.1, RFC 7636), in GitHub's shapes.
//!
//! The access token lives for the two calls of [`CodeHost::identify`] and is kept nowhere.

use kernel::Secret;
use serde_json::{Map, Value};
use url::Url;

use crate::outside::{InvalidOutside, Limits, Outside, OutsideError, origin};
use crate::person::Person;

/// What is asked for: who they are.
const SCOPE: &str = "read:user";
const TOKEN_MAX_BYTES: usize = 4096;

/// The code host and our registration there.
#[derive(Debug, Clone)]
pub struct CodeHostConfig {
    /// Our id there.
    pub client_id: String,
    /// Our secret there.
    pub client_secret: Secret,
    /// Where browsers are sent. A query that it has is kept.
    pub authorize_url: Url,
    /// Where a code becomes a token.
    pub token_url: Url,
    /// Where a token tells its user.
    pub user_url: Url,
}

/// Why nobody was identified. Shows no credential and no words of the code host but its error code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodeHostError {
    /// The code host does not take the code: used, expired, made up, or meant for somebody else. Holds its error code,
    /// which also tells when it is our registration that it does not take (`incorrect_client_credentials`).
    #[error("the code host refused the code: {0}")]
    Refused(String),
    /// It could not be asked, or answered nothing that can be read.
    #[error("the code host is not available: {0}")]
    Unavailable(#[from] OutsideError),
    /// It answered JSON that makes no sense.
    #[error("the code host answers nonsense: {0}")]
    Nonsense(&'static str),
}

/// A code host that people sign in with.
#[derive(Debug, Clone)]
pub struct CodeHost {
    config: CodeHostConfig,
    outside: Outside,
}

impl CodeHost {
    /// A code host, called within the product's limits.
    ///
    /// # Errors
    /// An address that is not http or https, or holds credentials.
    pub fn new(config: CodeHostConfig) -> Result<Self, InvalidOutside> {
        Self::within(config, Limits::default())
    }

    /// A code host, called within other limits.
    ///
    /// # Errors
    /// Those of [`CodeHost::new`].
    pub fn within(config: CodeHostConfig, limits: Limits) -> Result<Self, InvalidOutside> {
        // Browsers are sent there and it is not called from here, but it is held to the same rules.
        origin(&config.authorize_url)?;
        let outside = Outside::within("code host", [&config.token_url, &config.user_url], limits)?;
        Ok(Self { config, outside })
    }

    /// Where a browser is sent to sign in. `challenge` is S256 of the verifier that [`CodeHost::identify`] takes.
    #[must_use]
    pub fn authorize_url(&self, redirect_uri: &str, state: &str, challenge: &str) -> String {
        let mut url = self.config.authorize_url.clone();
        url.set_fragment(None);
        url.query_pairs_mut().extend_pairs([
            ("client_id", self.config.client_id.as_str()),
            ("redirect_uri", redirect_uri),
            ("response_type", "code"),
            ("scope", SCOPE),
            ("state", state),
            ("code_challenge", challenge),
            ("code_challenge_method", "S256"),
        ]);
        url.into()
    }

    /// Who the code stands for. Uses it up.
    ///
    /// # Errors
    /// [`CodeHostError`]. Only [`CodeHostError::Refused`] is about this sign-in alone.
    pub async fn identify(&self, code: &str, redirect_uri: &str, verifier: &str) -> Result<Person, CodeHostError> {
        let token = self.exchange(code, redirect_uri, verifier).await?;
        let user: Map<String, Value> = self.outside.get(&self.config.user_url, &token).await?;
        Person::of(&user).map_err(CodeHostError::Nonsense)
    }

    async fn exchange(&self, code: &str, redirect_uri: &str, verifier: &str) -> Result<Secret, CodeHostError> {
        let form = [
            ("grant_type", "authorization_code"),
            ("client_id", &self.config.client_id),
            ("client_secret", self.config.client_secret.reveal()),
            ("code", code),
            ("redirect_uri", redirect_uri),
            ("code_verifier", verifier),
        ];
        match self.outside.post_form(&self.config.token_url, &form).await {
            Ok(answer) => granted(&answer),
            // What a host that follows RFC 6749 section 5.2 to the letter answers to a code that it does not know.
            Err(OutsideError::Refused(400)) => Err(CodeHostError::Refused("400".to_owned())),
            Err(error) => Err(error.into()),
        }
    }
}

/// RFC 6749 section 5.1 and 5.2; GitHub answers both with 200.
fn granted(answer: &Map<String, Value>) -> Result<Secret, CodeHostError> {
    let text = |key| answer.get(key).and_then(Value::as_str);
    if let Some(error) = text("error") {
        return Err(CodeHostError::Refused(error_code(error)));
    }
    if !text("token_type").is_some_and(|token_type| token_type.eq_ignore_ascii_case("bearer")) {
        return Err(CodeHostError::Nonsense("the token's type"));
    }
    // It becomes part of a header.
    let fits =
        |token: &&str| (1..=TOKEN_MAX_BYTES).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
    let token = text("access_token").filter(fits).ok_or(CodeHostError::Nonsense("the token"))?;
    Ok(Secret::new(token.to_owned()))
}

/// Error codes are words; anything else could be a text that repeats what we sent.
fn error_code(error: &str) -> String {
    let is_word =
        (1..=64).contains(&error.len()) && error.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if is_word { error.to_owned() } else { "an error without a code".to_owned() }
}
