//! Secrets as types: the plaintext and what is stored of it are different things, and `Debug` shows neither.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use diesel::deserialize::{self, FromSql};
use diesel::pg::{Pg, PgValue};
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::Binary;
use ring::digest;

use crate::World;

/// A secret text, such as a setting. Shown by nothing but [`Secret::reveal`].
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a plaintext.
    #[must_use]
    pub const fn new(plaintext: String) -> Self {
        Self(plaintext)
    }

    /// The plaintext.
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

/// What a bearer token opens; told by its prefix (contract section 1, "Credentials").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A login session.
    Session,
    /// A personal access token.
    Access,
    /// An invitation to an organization.
    Invite,
    /// A sign-in at the code host that is under way: its state, and the cookie of its browser.
    Login,
    /// A key that passes by a project's access policy.
    Bypass,
    /// A node's credential on the internal listener.
    Node,
}

impl TokenKind {
    /// What every token of the kind begins with.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Session => "svc_ses_",
            Self::Access => "svc_pat_",
            Self::Invite => "svc_inv_",
            Self::Login => "svc_lgn_",
            Self::Bypass => "svc_byp_",
            Self::Node => "svc_nod_",
        }
    }
}

/// A bearer token in plaintext: the prefix of its kind and 256 random bits in base64url. It serialises, for the one
/// answer that hands it out.
#[derive(Clone, PartialEq, Eq, serde::Serialize)]
#[serde(transparent)]
pub struct Token(String);

/// SHA-256 of a token: all that is stored of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, diesel::AsExpression, diesel::FromSqlRow)]
#[diesel(sql_type = Binary)]
pub struct TokenHash([u8; 32]);

impl Token {
    /// A fresh token.
    #[must_use]
    pub fn mint(kind: TokenKind, world: &World) -> Self {
        Self(format!("{}{}", kind.prefix(), URL_SAFE_NO_PAD.encode(world.bytes::<32>())))
    }

    /// The token that somebody sent, when it has the shape of one of this kind.
    #[must_use]
    pub fn parse(kind: TokenKind, text: &str) -> Option<Self> {
        let bits = URL_SAFE_NO_PAD.decode(text.strip_prefix(kind.prefix())?).ok()?;
        (bits.len() == 32).then(|| Self(text.to_owned()))
    }

    /// What is stored of it.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, self.0.as_bytes()).as_ref());
        TokenHash(hash)
    }

    /// The plaintext.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl TokenHash {
    /// The 64 hex digits, for whoever is to compare it elsewhere.
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
    .description(Some("a credential, shown in this answer alone")));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_parses_as_its_own_kind_only_and_debug_tells_nothing() {
        let token = Token::mint(TokenKind::Session, &World::system());
        assert_eq!(Token::parse(TokenKind::Session, token.reveal()), Some(token.clone()));
        assert_eq!(Token::parse(TokenKind::Node, token.reveal()), None);
        assert_eq!(Token::parse(TokenKind::Session, &token.reveal()[..40]), None);
        assert_eq!(
            format!("{token:?} {:?} {:?}", token.hash(), Secret::new("x".into())),
            "Token(…) TokenHash(…) Secret(…)"
        );
    }
}
