//! The credential that a request presents.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use actix_web::http::header::AUTHORIZATION;
use actix_web::{HttpRequest, web};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use kernel::{CallerError, Token, TokenHash, TokenKind};
use oauth::{InvalidToken, OAuth, RejectedToken, VerifiedToken};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;
use protocol::basic_password;
use settings::rate_limit_key;

use crate::config::Config;
use crate::problem::Problem;

/// A user's credential: the hash under which it is stored, or the content of a signed token. Every match over the kinds
/// is exhaustive, so the compiler lists the places that must handle a new kind.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PresentedCredential {
    /// A login session.
    Session(TokenHash),
    /// A personal access token.
    AccessToken(TokenHash),
    /// An access token of a connected app, with a valid signature.
    ConnectedApp(VerifiedToken),
    /// An SSH key, by the SHA-256 of its public key. The caller has the private key. Only git clients present this
    /// credential.
    SshKey(TokenHash),
}

impl PresentedCredential {
    /// Returns the key of the credential's rate limit.
    pub(super) fn hash(self) -> TokenHash {
        match self {
            Self::Session(hash) | Self::AccessToken(hash) | Self::SshKey(hash) => hash,
            // All access tokens of a grant share its limit.
            Self::ConnectedApp(token) => TokenHash::of(&token.grant.to_string()),
        }
    }

    /// Parses a personal access token. Returns `None` if the text has another form.
    pub(crate) fn access_token(text: &str) -> Option<Self> {
        Token::parse(TokenKind::Access, text.trim()).map(|token| Self::AccessToken(token.hash()))
    }

    /// Parses the fingerprint of an SSH key. Returns `None` if the text has another form.
    pub(crate) fn ssh_key(fingerprint: &str) -> Option<Self> {
        let digest = STANDARD_NO_PAD.decode(fingerprint.strip_prefix("SHA256:")?).ok()?;
        Some(Self::SshKey(TokenHash::from_digest(digest.try_into().ok()?)))
    }

    /// Returns the stored form of a git client's credential: its kind and its hash. This text is not a credential for
    /// the API; only the later checks of a push use it: before its refs change, and before its deploy.
    pub(super) fn to_stored(self) -> Option<String> {
        match self {
            Self::AccessToken(hash) => Some(format!("token:{}", hash.hex())),
            Self::SshKey(hash) => Some(format!("ssh_key:{}", hash.hex())),
            Self::Session(_) | Self::ConnectedApp(_) => None,
        }
    }

    /// Parses [`Self::to_stored`].
    pub(super) fn from_stored(text: &str) -> Option<Self> {
        let (kind, hash) = text.split_once(':')?;
        let hash = TokenHash::from_hex(hash)?;
        match kind {
            "token" => Some(Self::AccessToken(hash)),
            "ssh_key" => Some(Self::SshKey(hash)),
            _ => None,
        }
    }

    /// Parses a bearer token. The prefix determines its kind. A text without a prefix is a token of a connected app
    /// (contract section 1, "Credentials").
    async fn bearer(request: &HttpRequest, text: &str) -> Result<Self, Problem> {
        let text = text.trim();
        if text.starts_with(TokenKind::Session.prefix()) {
            let session = Token::parse(TokenKind::Session, text).map(|token| Self::Session(token.hash()));
            return session.ok_or_else(invalid_credential);
        }
        if text.starts_with(TokenKind::Access.prefix()) {
            return Self::access_token(text).ok_or_else(invalid_credential);
        }
        let oauth = request.app_data::<web::Data<OAuth>>().ok_or_else(invalid_credential)?;
        match oauth.verify(text).await {
            Ok(token) => Ok(Self::ConnectedApp(token)),
            Err(RejectedToken::Invalid(InvalidToken(reason))) => {
                count_rejected_token(reason);
                Err(invalid_credential())
            }
            Err(RejectedToken::Keys(error)) => Err(error.into()),
        }
    }
}

/// Reads the user's credential: a bearer token, or a personal access token as the password of `Basic` with any user
/// name (RFC 7617).
pub(super) async fn read_credential(request: &HttpRequest) -> Result<PresentedCredential, Problem> {
    let (scheme, text) = authorization(request)?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return PresentedCredential::bearer(request, text).await;
    }
    let presented = if scheme.eq_ignore_ascii_case("basic") {
        basic_password(text).and_then(|password| PresentedCredential::access_token(&password))
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

/// Returns the scheme and the credential of the `Authorization` header, which must occur exactly once.
fn authorization(request: &HttpRequest) -> Result<(&str, &str), Problem> {
    let mut sent = request.headers().get_all(AUTHORIZATION);
    let first = sent.next().ok_or_else(Problem::no_credential)?;
    let text = first.to_str().ok().filter(|_| sent.next().is_none()).unwrap_or_default();
    Ok(text.split_once(' ').unwrap_or_default())
}

/// Returns the 401 error of an invalid credential.
pub(crate) fn invalid_credential() -> Problem {
    CallerError::InvalidCredential.into()
}

/// Returns the address by which the request is counted.
pub(crate) fn rate_limit_address(request: &HttpRequest) -> IpAddr {
    let peer = request.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
    let forwarded = request.headers().get_all("x-forwarded-for").filter_map(|value| value.to_str().ok());
    let config = request.app_data::<web::Data<Config>>();
    rate_limit_key(config.map_or(peer, |config| config.trusted_proxies.client(peer, forwarded)))
}

/// Counts an access token of a connected app that was rejected. `reason` is a metric label, so it must be one of a few
/// constants.
pub(super) fn count_rejected_token(reason: &'static str) {
    static REJECTED: LazyLock<Counter<u64>> = LazyLock::new(|| {
        opentelemetry::global::meter("svc")
            .u64_counter("svc.oauth.rejected_tokens")
            .with_description("Access tokens of connected apps that were rejected, by reason")
            .build()
    });
    REJECTED.add(1, &[KeyValue::new("reason", reason)]);
}
