//! ID tokens (OpenID Connect Core, section 2), and the keys that sign them (RFC 7515, RFC 7517).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use super::IdTokenFault;
use crate::rsa_key;
use crate::values::{new_id, now};

/// The lifetime of an ID token, in seconds.
const LIFETIME: i64 = 3600;

/// A key with its id. A new key of RS256 is the same RSA key with another id, because ring cannot generate RSA keys.
#[derive(Debug)]
pub(super) enum SigningKey {
    Rs256 { id: String },
    Es256 { id: String, pair: Box<EcdsaKeyPair> },
}

/// The content of an ID token.
#[derive(Debug)]
pub(super) struct IdToken<'a> {
    pub issuer: &'a str,
    pub subject: &'a str,
    pub client_id: &'a str,
    /// The nonce of the authorization request, empty for none.
    pub nonce: &'a str,
    pub fault: Option<IdTokenFault>,
}

impl SigningKey {
    pub fn rs256() -> Self {
        Self::Rs256 { id: new_id() }
    }

    pub fn es256() -> Self {
        let (algorithm, rng) = (&ECDSA_P256_SHA256_FIXED_SIGNING, rng());
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &rng).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &rng).unwrap();
        Self::Es256 { id: new_id(), pair: Box::new(pair) }
    }

    /// Returns another key of the same algorithm.
    pub fn renew(&self) -> Self {
        match self {
            Self::Rs256 { .. } => Self::rs256(),
            Self::Es256 { .. } => Self::es256(),
        }
    }

    pub const fn algorithm(&self) -> &'static str {
        match self {
            Self::Rs256 { .. } => "RS256",
            Self::Es256 { .. } => "ES256",
        }
    }

    /// Returns the public key.
    pub fn to_jwk(&self) -> Value {
        let algorithm = self.algorithm();
        match self {
            Self::Rs256 { id } => {
                let (n, e) = rsa_key::public_key();
                let (n, e) = (encode(n), encode(e));
                json!({ "kty": "RSA", "use": "sig", "alg": algorithm, "kid": id, "n": n, "e": e })
            }
            Self::Es256 { id, pair } => {
                // The uncompressed point: a byte for the format, and the coordinates (SEC 1 section 2.3.3).
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                let (x, y) = (encode(x), encode(y));
                json!({ "kty": "EC", "crv": "P-256", "use": "sig", "alg": algorithm, "kid": id, "x": x, "y": y })
            }
        }
    }

    /// Returns an ID token, or `None` if its fault is that it is missing.
    pub fn sign(&self, content: &IdToken<'_>) -> Option<String> {
        let fault = content.fault;
        let (Self::Rs256 { id } | Self::Es256 { id, .. }) = self;
        let mut header = json!({ "alg": self.algorithm(), "kid": id, "typ": "JWT" });
        match fault {
            Some(IdTokenFault::Missing) => return None,
            Some(IdTokenFault::Malformed) => return Some("not a token".to_owned()),
            Some(IdTokenFault::UnknownKey) => header["kid"] = new_id().into(),
            Some(IdTokenFault::Unsigned) => header = json!({ "alg": "none" }),
            _ => {}
        }
        let signed = format!("{}.{}", encode(header.to_string()), encode(content.claims().to_string()));
        let mut signature = match self {
            _ if fault == Some(IdTokenFault::Unsigned) => Vec::new(),
            Self::Rs256 { .. } => rsa_key::sign_sha256(signed.as_bytes()),
            Self::Es256 { pair, .. } => pair.sign(&rng(), signed.as_bytes()).unwrap().as_ref().to_vec(),
        };
        if fault == Some(IdTokenFault::Signature) {
            signature[0] ^= 1;
        }
        Some(format!("{signed}.{}", encode(signature)))
    }
}

impl IdToken<'_> {
    fn claims(&self) -> Value {
        let now = now().timestamp();
        let mut claims = json!({
            "iss": self.issuer, "sub": self.subject, "aud": self.client_id, "iat": now, "exp": now + LIFETIME,
        });
        if !self.nonce.is_empty() && self.fault != Some(IdTokenFault::NoNonce) {
            claims["nonce"] = self.nonce.into();
        }
        match self.fault {
            Some(IdTokenFault::Issuer) => claims["iss"] = "https://other.example".into(),
            Some(IdTokenFault::Audience) => claims["aud"] = "another-client".into(),
            Some(IdTokenFault::Expired) => claims["exp"] = (now - LIFETIME).into(),
            Some(IdTokenFault::Nonce) => claims["nonce"] = "another-nonce".into(),
            Some(IdTokenFault::Subject) => claims["sub"] = "another-subject".into(),
            _ => {}
        }
        claims
    }
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

#[expect(clippy::disallowed_methods, reason = "the sandbox shares no code with the product")]
fn rng() -> SystemRandom {
    SystemRandom::new()
}
