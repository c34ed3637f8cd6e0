//! Types for secrets. The plaintext and its stored form are different types, and `Debug` shows neither.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use diesel::deserialize::{self, FromSql};
use diesel::pg::{Pg, PgValue};
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::Binary;
use ring::digest;

use crate::ClockRng;

/// A secret text, such as a setting. Only [`Secret::reveal`] shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a plaintext.
    #[must_use]
    pub const fn new(plaintext: String) -> Self {
        Self(plaintext)
    }

    /// Returns the plaintext.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The kind of a bearer token, which its prefix identifies (contract section 1, "Credentials").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A login session.
    Session,
    /// A personal access token.
    Access,
    /// An invitation to an organization.
    Invite,
    /// A sign-in at the code host that is in progress: its state, and the cookie of its browser.
    Login,
    /// A key that bypasses a project's access policy.
    Bypass,
    /// A node's credential on the internal listener.
    Node,
    /// An authorization code of a connected app.
    AuthorizationCode,
    /// A refresh token of a connected app.
    RefreshToken,
    /// The secret of a confidential connected app.
    ClientSecret,
    /// A device code of a connected app (RFC 8628).
    DeviceCode,
}

impl TokenKind {
    /// Returns the prefix of all tokens of this kind.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Session => "svc_ses_",
            Self::Access => "svc_pat_",
            Self::Invite => "svc_inv_",
            Self::Login => "svc_lgn_",
            Self::Bypass => "svc_byp_",
            Self::Node => "svc_nod_",
            Self::AuthorizationCode => "svc_oac_",
            Self::RefreshToken => "svc_ort_",
            Self::ClientSecret => "svc_ocs_",
            Self::DeviceCode => "svc_odc_",
        }
    }
}

/// A bearer token in plaintext: the prefix of its kind and 256 random bits in base64url. It implements `Serialize` only
/// for the single response that contains it.
#[derive(Clone, PartialEq, Eq, serde::Serialize)]
#[serde(transparent)]
pub struct Token(String);

/// The SHA-256 digest of a token, which is its stored form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, diesel::AsExpression, diesel::FromSqlRow)]
#[diesel(sql_type = Binary)]
pub struct TokenHash([u8; 32]);

impl Token {
    /// Creates a token.
    #[must_use]
    pub fn mint(kind: TokenKind, clock_rng: &ClockRng) -> Self {
        Self(format!("{}{}", kind.prefix(), URL_SAFE_NO_PAD.encode(clock_rng.bytes::<32>())))
    }

    /// Parses a token of this kind. Returns `None` if the text does not have its format.
    #[must_use]
    pub fn parse(kind: TokenKind, text: &str) -> Option<Self> {
        let bits = URL_SAFE_NO_PAD.decode(text.strip_prefix(kind.prefix())?).ok()?;
        (bits.len() == 32).then(|| Self(text.to_owned()))
    }

    /// Returns the digest to store.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(&self.0)
    }

    /// Returns the plaintext.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl TokenHash {
    /// Returns the digest of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
        Self(hash)
    }

    /// Wraps a SHA-256 digest.
    #[must_use]
    pub const fn from_digest(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// Parses the 64 hex digits of [`Self::hex`].
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        sha256::unhex(text).map(Self)
    }

    /// Returns the digest as 64 hex digits, for a comparison outside this process, such as at a node.
    #[must_use]
    pub fn hex(&self) -> String {
        crate::hex(&self.0)
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl std::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

impl ToSql<Binary, Pg> for TokenHash {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        ToSql::<Binary, Pg>::to_sql(self.0.as_slice(), out)
    }
}

impl FromSql<Binary, Pg> for TokenHash {
    fn from_sql(bytes: PgValue<'_>) -> deserialize::Result<Self> {
        let bytes = <Vec<u8> as FromSql<Binary, Pg>>::from_sql(bytes)?;
        Ok(Self(bytes.try_into().map_err(|_| "a stored token hash is not 32 bytes")?))
    }
}

crate::string_schema!(Token, |schema| schema
    .format(Some(utoipa::openapi::SchemaFormat::KnownFormat(utoipa::openapi::KnownFormat::Password)))
    .description(Some("a credential, returned only in this response")));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_parses_only_as_its_kind_and_debug_hides_it() {
        let token = Token::mint(TokenKind::Session, &ClockRng::system());
        assert_eq!(Token::parse(TokenKind::Session, token.reveal()), Some(token.clone()));
        assert_eq!(Token::parse(TokenKind::Node, token.reveal()), None);
        assert_eq!(Token::parse(TokenKind::Session, &token.reveal()[..40]), None);
        assert_eq!(
            format!("{token:?} {:?} {:?}", token.hash(), Secret::new("x".into())),
            "Token(…) TokenHash(…) Secret(…)"
        );
    }
}
