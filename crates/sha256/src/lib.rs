//! SHA-256 digests, the names of bundles and their files: one type for the control plane, the protocol and the nodes.
//!
//! The feature `diesel` stores a digest in Postgres, and `openapi` adds its schema.

mod hex;
#[cfg(feature = "openapi")]
mod openapi;
#[cfg(feature = "diesel")]
mod sql;

use ring::digest::{Context, SHA256};

pub use hex::{hex, unhex};

/// A SHA-256 digest: `sha256:` and 64 lowercase hex digits on the wire, 32 bytes in Postgres.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "diesel", derive(diesel::AsExpression, diesel::FromSqlRow))]
#[cfg_attr(feature = "diesel", diesel(sql_type = diesel::sql_types::Binary))]
pub struct Digest([u8; 32]);

/// A text that is not a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be sha256: and 64 lowercase hex digits")]
pub struct InvalidDigest;

/// Computes a [`Digest`] incrementally.
#[derive(Clone)]
pub struct Digester(Context);

impl Digest {
    /// Returns the digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut digester = Digester::default();
        digester.update(bytes);
        digester.finish()
    }

    /// Parses 64 hex digits, without `sha256:`.
    ///
    /// # Errors
    /// Returns [`InvalidDigest`] for any other text. Uppercase digits are invalid too, so that a digest has only one
    /// spelling.
    pub fn from_hex(digits: &str) -> Result<Self, InvalidDigest> {
        unhex(digits).map(Self).ok_or(InvalidDigest)
    }

    /// Returns the 64 hex digits, without `sha256:`.
    #[must_use]
    pub fn hex(&self) -> String {
        hex(&self.0)
    }
}

impl Default for Digester {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Digester {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest of all added bytes.
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
        text.strip_prefix("sha256:").ok_or(InvalidDigest).and_then(Self::from_hex)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_text_round_trips() {
        let digest = Digest::of(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse(), Ok(digest));
        assert_eq!(Digest::from_hex(&text[7..]), Ok(digest));
        let uppercase_digits = format!("sha256:{}", text[7..].to_uppercase());
        for other in ["", "sha256:", &text[7..], &text.to_uppercase(), &uppercase_digits, &format!("{text}0")] {
            assert_eq!(other.parse::<Digest>(), Err(InvalidDigest), "{other}");
        }
        assert_eq!(text.replace("ba", "..").parse::<Digest>(), Err(InvalidDigest));
    }
}
