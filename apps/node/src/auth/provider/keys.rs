//! The keys that sign a provider's ID tokens (RFC 7517), and the verification of signatures.
//!
//! The type of the key determines the algorithm, never the header of the token.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::{Client, Url};
use ring::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::client::send;
use super::id_token::Token;
use super::{ProviderError, Result};

/// Known keys are fetched again after this time.
const LIFETIME: Duration = Duration::from_secs(60 * 60);
/// For an unknown key, the keys are fetched at most once in this time.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(10);

/// The keys of a provider.
pub struct Keys {
    url: Url,
    fetched: Mutex<Option<Fetched>>,
}

struct Fetched {
    at: Instant,
    keys: Vec<Key>,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

#[derive(Clone, Deserialize)]
#[serde(tag = "kty")]
enum Key {
    #[serde(rename = "RSA")]
    Rsa { kid: Option<String>, n: String, e: String },
    #[serde(rename = "EC")]
    Ec { kid: Option<String>, crv: String, x: String, y: String },
}

impl Keys {
    pub fn new(url: Url) -> Self {
        Self { url, fetched: Mutex::default() }
    }

    /// Verifies the signature of a token.
    pub async fn verify(&self, client: &Client, token: &Token<'_>) -> Result<()> {
        let key = self.find(client, token.header.kid.as_deref()).await?;
        if key.verify(token) { Ok(()) } else { Err(ProviderError::failed("the signature of the ID token is invalid")) }
    }

    /// Returns the key with this id, or the only key if the token names none. Concurrent callers wait for one fetch.
    async fn find(&self, client: &Client, id: Option<&str>) -> Result<Key> {
        let unknown = || ProviderError::failed("the ID token is signed with an unknown key");
        let mut fetched = self.fetched.lock().await;
        let known = fetched.as_ref().filter(|it| it.at.elapsed() < LIFETIME);
        if let Some(key) = known.and_then(|it| it.find(id)) {
            return Ok(key);
        }
        if fetched.as_ref().is_some_and(|it| it.at.elapsed() < MIN_FETCH_INTERVAL) {
            return Err(unknown());
        }
        let (status, body) = send(client.get(self.url.clone())).await?;
        if status != 200 {
            return Err(ProviderError::failed(format!("the keys failed with status {status}")));
        }
        let set: KeySet = serde_json::from_slice(&body).map_err(|_| ProviderError::failed("the keys are malformed"))?;
        // Keys of other types are ignored (RFC 7517 section 5).
        let keys = set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).collect();
        fetched.insert(Fetched { at: Instant::now(), keys }).find(id).ok_or_else(unknown)
    }
}

impl Fetched {
    fn find(&self, id: Option<&str>) -> Option<Key> {
        match (id, self.keys.as_slice()) {
            (None, [key]) => Some(key.clone()),
            (None, _) => None,
            (Some(id), keys) => keys.iter().find(|key| key.id() == Some(id)).cloned(),
        }
    }
}

impl Key {
    fn id(&self) -> Option<&str> {
        let (Self::Rsa { kid, .. } | Self::Ec { kid, .. }) = self;
        kid.as_deref()
    }

    fn verify(&self, token: &Token<'_>) -> bool {
        let (algorithm, signed) = (token.header.alg.as_str(), token.signed.as_bytes());
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap_or_default();
        match self {
            Self::Rsa { n, e, .. } => {
                let key = RsaPublicKeyComponents { n: decode(n), e: decode(e) };
                algorithm == "RS256" && key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, &token.signature).is_ok()
            }
            Self::Ec { crv, x, y, .. } => {
                // The uncompressed point (SEC 1 section 2.3.3).
                let point = [&[4], decode(x).as_slice(), decode(y).as_slice()].concat();
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
                algorithm == "ES256" && crv == "P-256" && key.verify(signed, &token.signature).is_ok()
            }
        }
    }
}
