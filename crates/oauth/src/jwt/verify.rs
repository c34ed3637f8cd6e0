//! Verification of access tokens (RFC 9068 section 4, RFC 8725).
//!
//! The key determines the algorithm: nothing in a header selects one. `jku`, `jwk`, `x5u` and `x5c` have no effect.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kernel::{ClientId, GrantId, ScopeSet, SigningKeyId, Time, UserId};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

use super::{TYPE, VerifiedToken};

/// The longest token that is read. This server issues tokens of about 700 bytes.
const MAX_LENGTH: usize = 4096;
/// How far the clock of another process of this installation may be ahead.
const CLOCK_SKEW_SECONDS: i64 = 60;

/// The reason why a token is rejected: a label for metrics. Clients do not receive it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the access token is invalid: {0}")]
pub struct InvalidToken(pub &'static str);

/// The claims that every token must have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) issuer: &'a str,
    pub(crate) audience: &'a str,
    pub(crate) now: Time,
}

/// A token in the compact form (RFC 7515 section 7.1) whose header is acceptable.
#[derive(Debug)]
pub(crate) struct UnverifiedToken<'a> {
    /// The key that the header names.
    pub(crate) key: SigningKeyId,
    signed: &'a str,
    payload: &'a str,
    signature: &'a str,
}

/// Unknown members have no effect, but a repeated member is an error.
#[derive(Deserialize)]
struct Header {
    alg: String,
    typ: String,
    kid: String,
    /// Extensions that a recipient must understand; this one understands none (RFC 7515 section 4.1.11).
    crit: Option<Value>,
}

#[derive(Deserialize)]
struct Payload {
    iss: String,
    sub: String,
    aud: String,
    exp: i64,
    iat: i64,
    nbf: Option<i64>,
    client_id: String,
    scope: String,
    sid: String,
}

impl<'a> UnverifiedToken<'a> {
    /// Splits a token, and checks its header.
    pub(crate) fn parse(text: &'a str) -> Result<Self, InvalidToken> {
        if text.len() > MAX_LENGTH {
            return Err(InvalidToken("too_long"));
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(InvalidToken("malformed"))?;
        let (header, payload) = signed.split_once('.').ok_or(InvalidToken("malformed"))?;
        let header: Header = decode(header)?;
        if header.alg != "ES256" {
            return Err(InvalidToken("algorithm"));
        }
        let media_type = header.typ.to_ascii_lowercase();
        if media_type.strip_prefix("application/").unwrap_or(&media_type) != TYPE {
            return Err(InvalidToken("type"));
        }
        if header.crit.is_some() {
            return Err(InvalidToken("critical"));
        }
        let key = header.kid.parse().map_err(|_| InvalidToken("key"))?;
        Ok(Self { key, signed, payload, signature })
    }

    /// Checks the signature with the key that the header names, and then the claims.
    pub(crate) fn verify(&self, public_key: &[u8], expected: Expected<'_>) -> Result<VerifiedToken, InvalidToken> {
        let signature = URL_SAFE_NO_PAD.decode(self.signature).map_err(|_| InvalidToken("malformed"))?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public_key)
            .verify(self.signed.as_bytes(), &signature)
            .map_err(|_| InvalidToken("signature"))?;
        let Payload { iss, sub, aud, exp, iat, nbf, client_id, scope, sid } = decode(self.payload)?;
        let Expected { issuer, audience, now } = expected;
        if iss != issuer {
            return Err(InvalidToken("issuer"));
        }
        if aud != audience {
            return Err(InvalidToken("audience"));
        }
        let seconds = now.unix_seconds();
        if exp <= seconds {
            return Err(InvalidToken("expired"));
        }
        if nbf.is_some_and(|nbf| nbf > seconds) || iat > seconds.saturating_add(CLOCK_SKEW_SECONDS) {
            return Err(InvalidToken("not_yet_valid"));
        }
        Ok(VerifiedToken {
            user: sub.parse::<UserId>().map_err(|_| InvalidToken("claims"))?,
            client: client_id.parse::<ClientId>().map_err(|_| InvalidToken("claims"))?,
            grant: sid.parse::<GrantId>().map_err(|_| InvalidToken("claims"))?,
            scopes: scope.parse::<ScopeSet>().map_err(|_| InvalidToken("claims"))?,
            expires_at: now.plus_seconds(exp.saturating_sub(seconds)),
        })
    }
}

/// Decodes a part: base64url without padding, and JSON.
fn decode<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, InvalidToken> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| InvalidToken("malformed"))?;
    serde_json::from_slice(&bytes).map_err(|_| InvalidToken("malformed"))
}
