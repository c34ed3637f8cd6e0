//! The codes and tokens of an authorization server (RFC 6749 section 4.1, RFC 7636).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::header::AUTHORIZATION;
use ring::digest::{SHA256, digest};
use url::Url;

use crate::http::{Request, Response};

/// RFC 6749 section 4.1.2 recommends at most ten minutes.
const CODE_LIFETIME: Duration = Duration::from_secs(60);

/// Codes and tokens with their grants.
#[derive(Debug)]
pub(crate) struct Grants<T> {
    codes: HashMap<String, Code<T>>,
    tokens: HashMap<String, T>,
}

#[derive(Debug)]
struct Code<T> {
    grant: T,
    client_id: String,
    redirect_uri: String,
    challenge: String,
    expires_at: Instant,
}

/// The reason for which a token request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenError {
    GrantType,
    /// The client is unknown, or its secret is wrong.
    Client,
    /// The code is unknown, used, expired or of another client, or the verifier is wrong.
    Code,
    RedirectUri,
}

impl<T> Default for Grants<T> {
    fn default() -> Self {
        Self { codes: HashMap::new(), tokens: HashMap::new() }
    }
}

impl<T> Grants<T> {
    /// Stores a code for an authorization request.
    pub fn add_code(&mut self, code: &str, request: &Request, grant: T) {
        let parameter = |name| request.parameter(name).to_owned();
        let (client_id, redirect_uri) = (parameter("client_id"), parameter("redirect_uri"));
        let (challenge, expires_at) = (parameter("code_challenge"), Instant::now() + CODE_LIFETIME);
        self.codes.insert(code.to_owned(), Code { grant, client_id, redirect_uri, challenge, expires_at });
    }

    /// Returns the grant of a token request's code, without redeeming the code.
    pub fn of_code(&self, request: &Request) -> Option<&T> {
        self.codes.get(request.parameter("code")).map(|code| &code.grant)
    }

    /// Redeems the code of a token request, whose client is authenticated. A code is valid for only one attempt,
    /// whatever its outcome.
    pub fn redeem(&mut self, request: &Request, client_id: &str) -> Result<T, TokenError> {
        if request.parameter("grant_type") != "authorization_code" {
            return Err(TokenError::GrantType);
        }
        let code = self.codes.remove(request.parameter("code")).ok_or(TokenError::Code)?;
        if code.redirect_uri != request.parameter("redirect_uri") {
            return Err(TokenError::RedirectUri);
        }
        let verifier = URL_SAFE_NO_PAD.encode(digest(&SHA256, request.parameter("code_verifier").as_bytes()));
        let is_valid = verifier == code.challenge && code.client_id == client_id && Instant::now() < code.expires_at;
        if is_valid { Ok(code.grant) } else { Err(TokenError::Code) }
    }

    pub fn add_token(&mut self, token: &str, grant: T) {
        self.tokens.insert(token.to_owned(), grant);
    }

    /// Returns the grant of the access token in a request (RFC 6750 section 2.1).
    pub fn of_token(&self, request: &Request) -> Option<&T> {
        self.tokens.get(request.header(AUTHORIZATION).strip_prefix("Bearer ")?)
    }
}

/// Sends the browser back to the client, with these parameters and the state of its request.
pub(crate) fn redirect_back(request: &Request, parameters: &[(&str, &str)]) -> Response {
    let mut back = Url::parse(request.parameter("redirect_uri")).unwrap();
    back.query_pairs_mut().extend_pairs(parameters).append_pair("state", request.parameter("state"));
    Response::redirect(back)
}
