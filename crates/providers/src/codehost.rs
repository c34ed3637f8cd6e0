//! Sign-in at a code host: OAuth's code flow with PKCE (RFC 6749 section 4.1, RFC 7636), in GitHub's formats.
//!
//! The access token is used only within [`CodeHost::identify`] and never stored.

use kernel::Secret;
use serde_json::{Map, Value};
use url::Url;

use crate::outbound::{Limits, OutboundClient, OutboundConfigError, OutboundError, origin};
use crate::person::Person;

/// The OAuth scope to read the user's profile.
const SCOPE: &str = "read:user";
const MAX_TOKEN_BYTES: usize = 4096;

/// The code host and our registration at it.
#[derive(Debug, Clone)]
pub struct CodeHostConfig {
    /// Our client id.
    pub client_id: String,
    /// Our client secret.
    pub client_secret: Secret,
    /// The authorization endpoint. Its query is preserved.
    pub authorize_url: Url,
    /// The token endpoint.
    pub token_url: Url,
    /// The endpoint that returns the user of a token.
    pub user_url: Url,
}

/// An error of a sign-in. It contains no credential. Of the code host's response, it contains only the error code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodeHostError {
    /// The code host rejected the code: it is used, expired, invalid, or for another client. The error code may also
    /// show that our registration was rejected (`incorrect_client_credentials`).
    #[error("the code host rejected the code: {0}")]
    Refused(String),
    /// The code host is unreachable, or its response is unreadable.
    #[error("the code host is not available: {0}")]
    Unavailable(#[from] OutboundError),
    /// The JSON response has an invalid field.
    #[error("the code host sent an invalid response: {0}")]
    InvalidResponse(&'static str),
}

/// A client of a code host.
#[derive(Debug, Clone)]
pub struct CodeHost {
    config: CodeHostConfig,
    client: OutboundClient,
}

impl CodeHost {
    /// Creates a client with the default limits.
    ///
    /// # Errors
    /// Returns an error for an address that is not http or https, or contains credentials.
    pub fn new(config: CodeHostConfig) -> Result<Self, OutboundConfigError> {
        Self::with_limits(config, Limits::default())
    }

    /// Creates a client with custom limits.
    ///
    /// # Errors
    /// Returns the errors of [`CodeHost::new`].
    pub fn with_limits(config: CodeHostConfig, limits: Limits) -> Result<Self, OutboundConfigError> {
        // Only browsers call this address, but it must follow the rules for the addresses that the service calls.
        origin(&config.authorize_url)?;
        let client = OutboundClient::with_limits("code host", [&config.token_url, &config.user_url], limits)?;
        Ok(Self { config, client })
    }

    /// Returns the sign-in address for a browser. `challenge` is S256 of the verifier for [`CodeHost::identify`].
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

    /// Exchanges the code for the user who signed in. A code is valid only once.
    ///
    /// # Errors
    /// Returns [`CodeHostError`]. Only [`CodeHostError::Refused`] is specific to this sign-in.
    pub async fn identify(&self, code: &str, redirect_uri: &str, verifier: &str) -> Result<Person, CodeHostError> {
        let token = self.exchange(code, redirect_uri, verifier).await?;
        let user: Map<String, Value> = self.client.get(&self.config.user_url, &token).await?;
        Person::parse(&user).map_err(CodeHostError::InvalidResponse)
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
        match self.client.post_form(&self.config.token_url, &form).await {
            Ok(response) => parse_token_response(&response),
            // RFC 6749 section 5.2 requires this status for an invalid code.
            Err(OutboundError::Status(400)) => Err(CodeHostError::Refused("400".to_owned())),
            Err(error) => Err(error.into()),
        }
    }
}

/// Parses a token response (RFC 6749 section 5.1 and 5.2). GitHub sends status 200 for tokens and for errors.
fn parse_token_response(response: &Map<String, Value>) -> Result<Secret, CodeHostError> {
    let text = |key| response.get(key).and_then(Value::as_str);
    if let Some(error) = text("error") {
        return Err(CodeHostError::Refused(error_code(error)));
    }
    if !text("token_type").is_some_and(|token_type| token_type.eq_ignore_ascii_case("bearer")) {
        return Err(CodeHostError::InvalidResponse("token_type"));
    }
    // The token becomes part of a header, so its characters must be valid there.
    let is_valid =
        |token: &&str| (1..=MAX_TOKEN_BYTES).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
    let token = text("access_token").filter(is_valid).ok_or(CodeHostError::InvalidResponse("access_token"))?;
    Ok(Secret::new(token.to_owned()))
}

/// Returns an error code if it is a single word. Another text could contain data of our request.
fn error_code(error: &str) -> String {
    let is_word =
        (1..=64).contains(&error.len()) && error.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if is_word { error.to_owned() } else { "unknown error code".to_owned() }
}
