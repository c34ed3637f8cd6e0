//! SHA-256, the name of everything that is cached.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A SHA-256, written `sha256:<hex>`. Whatever parses is safe in a file's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// Computes the digest of what it passes on.
pub struct Hashing<W> {
    inner: W,
    context: ring::digest::Context,
}

/// Not `sha256:` and 64 lowercase hexadecimal digits.
#[derive(Debug)]
pub struct NoDigest;

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut context = Self::start();
        context.update(bytes);
        Self::finish(context)
    }

    /// Takes what a finished computation gives, which is as long as its algorithm says.
    pub fn finish(context: ring::digest::Context) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(context.finish().as_ref());
        Self(bytes)
    }

    /// A computation of one.
    pub fn start() -> ring::digest::Context {
        ring::digest::Context::new(&ring::digest::SHA256)
    }

    /// The digest with these digits.
    pub fn from_hex(digits: &str) -> Result<Self, NoDigest> {
        unhex(digits).map(Self).ok_or(NoDigest)
    }

    /// The digits alone.
    pub fn hex(&self) -> String {
        hex(&self.0)
    }
}

/// Lowercase hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// What these digits, all of them, stand for.
pub fn unhex(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        *byte = pair.iter().try_fold(0, |byte, digit| Some(byte << 4 | nibble(*digit)?))?;
    }
    Some(bytes)
}

impl FromStr for Digest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        text.strip_prefix("sha256:").ok_or(NoDigest).and_then(Self::from_hex)
    }
}

/// One spelling each: uppercase digits are none.
const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for NoDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not sha256: and 64 lowercase hexadecimal digits")
    }
}

impl std::error::Error for NoDigest {}

impl TryFrom<String> for Digest {
    type Error = NoDigest;

    fn try_from(text: String) -> Result<Self, NoDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl<W> Hashing<W> {
    /// Passes on to `inner`.
    pub fn new(inner: W) -> Self {
        Self { inner, context: Digest::start() }
    }

    /// The digest of all that was written.
    pub fn finish(self) -> Digest {
        Digest::finish(self.context)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write_all(bytes)?;
        self.context.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_spelling_parses() {
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(text.parse::<Digest>().unwrap(), Digest::of(b"abc"));
        assert_eq!(text.parse::<Digest>().unwrap().to_string(), text);
        for other in [text.to_uppercase(), text.replace("sha256:", ""), format!("{text}0"), text.replace("ba", "..")] {
            assert!(other.parse::<Digest>().is_err(), "{other}");
        }
    }
}
