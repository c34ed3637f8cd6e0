//! TSIG keys.

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use crate::name::WireName;

/// A signature algorithm (RFC 8945 section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Sha256,
    Sha384,
    Sha512,
}

/// A key of a primary and its secondaries: `name:algorithm:base64` with hmac-sha256, hmac-sha384 or hmac-sha512.
/// `Debug` omits the secret.
#[derive(Clone)]
pub struct TsigKey {
    pub(super) name: WireName,
    pub(super) algorithm: WireName,
    pub(super) key: hmac::Key,
}

/// The reason why a text is not a key. The message does not contain the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTsigKey {
    #[error("not of the form name:algorithm:base64")]
    Shape,
    #[error("the name is not a domain name")]
    Name,
    #[error("the algorithm is not hmac-sha256, hmac-sha384 or hmac-sha512")]
    Algorithm,
    #[error("the secret is not valid base64")]
    Base64,
    #[error("the secret has fewer than 16 bytes")]
    Short,
}

impl Algorithm {
    const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];

    const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "hmac-sha256",
            Self::Sha384 => "hmac-sha384",
            Self::Sha512 => "hmac-sha512",
        }
    }

    const fn ring(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }
}

impl TsigKey {
    /// The minimum length of a secret, in bytes (RFC 8945 section 8 recommends the length of the digest).
    const MIN_SECRET_LENGTH: usize = 16;
}

impl FromStr for TsigKey {
    type Err = InvalidTsigKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, rest) = text.trim().split_once(':').ok_or(InvalidTsigKey::Shape)?;
        let (algorithm, secret) = rest.split_once(':').ok_or(InvalidTsigKey::Shape)?;
        let name = WireName::from_host(name).ok_or(InvalidTsigKey::Name)?;
        let algorithm = algorithm.to_ascii_lowercase();
        let known = Algorithm::ALL.into_iter().find(|known| known.name() == algorithm);
        let known = known.ok_or(InvalidTsigKey::Algorithm)?;
        let secret = STANDARD.decode(secret).map_err(|_| InvalidTsigKey::Base64)?;
        if secret.len() < Self::MIN_SECRET_LENGTH {
            return Err(InvalidTsigKey::Short);
        }
        let algorithm = WireName::from_host(known.name()).ok_or(InvalidTsigKey::Algorithm)?;
        Ok(Self { name, algorithm, key: hmac::Key::new(known.ring(), &secret) })
    }
}

impl std::fmt::Debug for TsigKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TsigKey").field("name", &self.name.to_host()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed_and_invalid_keys_are_rejected() {
        let key: TsigKey = "Xfr.Key.:HMAC-SHA256:AAECAwQFBgcICQoLDA0ODw==".parse().unwrap();
        assert_eq!(key.name, WireName::from_host("xfr.key").unwrap());
        assert!(!format!("{key:?}").contains("AAEC") && !format!("{key:?}").contains("1, 2"));
        for (text, fault) in [
            ("xfr", InvalidTsigKey::Shape),
            ("xfr:hmac-sha256", InvalidTsigKey::Shape),
            ("x y:hmac-sha256:AAECAwQFBgcICQoLDA0ODw==", InvalidTsigKey::Name),
            ("xfr:hmac-md5:AAECAwQFBgcICQoLDA0ODw==", InvalidTsigKey::Algorithm),
            ("xfr:hmac-sha256:hush!", InvalidTsigKey::Base64),
            ("xfr:hmac-sha256:aHVzaA==", InvalidTsigKey::Short),
        ] {
            assert_eq!(text.parse::<TsigKey>().unwrap_err(), fault, "{text}");
        }
    }
}
