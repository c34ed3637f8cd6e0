//! SHA-256 digests that name things.

use diesel::deserialize::{self, FromSql};
use diesel::pg::{Pg, PgValue};
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::Binary;
use ring::digest::{Context, SHA256};

/// A SHA-256 digest: `sha256:` and 64 lowercase hex digits on the wire, 32 bytes in Postgres.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, diesel::AsExpression, diesel::FromSqlRow)]
#[diesel(sql_type = Binary)]
pub struct Digest([u8; 32]);

/// A text that is not a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be sha256: and 64 lowercase hex digits")]
pub struct InvalidDigest;

/// Computes a [`Digest`] of bytes as they come.
#[derive(Clone)]
pub struct Digester(Context);

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut digester = Digester::default();
        digester.update(bytes);
        digester.finish()
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn into_bytes(self) -> [u8; 32] {
        self.0
    }

    /// The 64 hex digits, without `sha256:`.
    #[must_use]
    pub fn hex(&self) -> String {
        crate::hex(&self.0)
    }
}

impl Default for Digester {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Digester {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes taken.
    #[must_use]
    pub fn finish(self) -> Digest {
        let mut digest = [0; 32];
        digest.copy_from_slice(self.0.finish().as_ref());
        Digest(digest)
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let hex = text.strip_prefix("sha256:").ok_or(InvalidDigest)?;
        if hex.len() != 64 || hex.bytes().any(|digit| !matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(InvalidDigest);
        }
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(hex.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| InvalidDigest)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| InvalidDigest)?;
        }
        Ok(Self(digest))
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl ToSql<Binary, Pg> for Digest {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        ToSql::<Binary, Pg>::to_sql(self.0.as_slice(), out)
    }
}

impl FromSql<Binary, Pg> for Digest {
    fn from_sql(bytes: PgValue<'_>) -> deserialize::Result<Self> {
        let bytes = <Vec<u8> as FromSql<Binary, Pg>>::from_sql(bytes)?;
        Ok(Self(bytes.try_into().map_err(|_| "a stored digest is not 32 bytes")?))
    }
}

crate::string_schema!(Digest, |schema| schema
    .pattern(Some("^sha256:[0-9a-f]{64}$"))
    .description(Some("sha256: and 64 lowercase hex digits")));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_reads_back() {
        let digest = Digest::of(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse(), Ok(digest));
        for wrong in ["", "sha256:", &text.to_uppercase(), &text[7..], &format!("{text}0")] {
            assert_eq!(wrong.parse::<Digest>(), Err(InvalidDigest), "{wrong}");
        }
    }
}
