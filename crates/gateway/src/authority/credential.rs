//! The credential that a request presents.

use std::net::{IpAddr, Ipv4Addr};

use actix_web::http::header::AUTHORIZATION;
use actix_web::{HttpRequest, web};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kernel::{CallerError, Token, TokenHash, TokenKind};
use settings::rate_limit_key;

use crate::config::Config;
use crate::problem::Problem;

/// A user's credential, as the hash under which it is stored. Every match over the kinds is exhaustive, so that a new
/// kind does not compile before each match handles it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PresentedCredential {
    /// A login session.
    Session(TokenHash),
    /// A personal access token.
    AccessToken(TokenHash),
}

impl PresentedCredential {
    /// The key of the credential's rate limit.
    pub(super) fn hash(self) -> TokenHash {
        match self {
            Self::Session(hash) | Self::AccessToken(hash) => hash,
        }
    }

    /// Parses a personal access token; `None` if the text has another form.
    pub(crate) fn access_token(text: &str) -> Option<Self> {
        Token::parse(TokenKind::Access, text.trim()).map(|token| Self::AccessToken(token.hash()))
    }

    fn bearer(text: &str) -> Option<Self> {
        let session = || Token::parse(TokenKind::Session, text.trim()).map(|token| Self::Session(token.hash()));
        session().or_else(|| Self::access_token(text))
    }
}

/// Reads the user's credential: a bearer token, or a personal access token as the password of `Basic` with any user
/// name (RFC 7617).
pub(super) fn read_credential(request: &HttpRequest) -> Result<PresentedCredential, Problem> {
    let (scheme, text) = authorization(request)?;
    let presented = if scheme.eq_ignore_ascii_case("bearer") {
        PresentedCredential::bearer(text)
    } else if scheme.eq_ignore_ascii_case("basic") {
        password(text.trim()).and_then(|password| PresentedCredential::access_token(&password))
    } else {
        None
    };
    presented.ok_or_else(invalid_credential)
}

/// Reads a node's bearer token.
pub(super) fn node_token(request: &HttpRequest) -> Result<Token, Problem> {
    let (scheme, text) = authorization(request)?;
    let token = scheme.eq_ignore_ascii_case("bearer").then(|| Token::parse(TokenKind::Node, text.trim()));
    token.flatten().ok_or_else(invalid_credential)
}

/// The scheme and the credential of the only `Authorization` header.
fn authorization(request: &HttpRequest) -> Result<(&str, &str), Problem> {
    let mut sent = request.headers().get_all(AUTHORIZATION);
    let first = sent.next().ok_or_else(Problem::no_credential)?;
    let text = first.to_str().ok().filter(|_| sent.next().is_none()).unwrap_or_default();
    Ok(text.split_once(' ').unwrap_or_default())
}

fn password(credential: &str) -> Option<String> {
    let decoded = String::from_utf8(STANDARD.decode(credential).ok()?).ok()?;
    decoded.split_once(':').map(|(_, password)| password.to_owned())
}

/// 401 of an invalid credential.
pub(crate) fn invalid_credential() -> Problem {
    CallerError::InvalidCredential.into()
}

/// The address that the request counts against.
pub(super) fn rate_limit_address(request: &HttpRequest) -> IpAddr {
    let peer = request.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
    let forwarded = request.headers().get_all("x-forwarded-for").filter_map(|value| value.to_str().ok());
    let config = request.app_data::<web::Data<Config>>();
    rate_limit_key(config.map_or(peer, |config| config.trusted_proxies.client(peer, forwarded)))
}
