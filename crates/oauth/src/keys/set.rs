//! The keys as a process caches them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kernel::{SigningKeyId, Time};
use serde_json::{Value, json};
use store::Store;

use super::{PRIVATE_KEY, RETIREMENT_SECONDS};
use crate::error::OAuthError;
#[cfg(feature = "server")]
use crate::jwt::Signer;
use crate::repository::KeyRecord;

/// All keys, newest first.
#[derive(Debug)]
pub struct KeySet {
    keys: Vec<PublishedKey>,
}

/// A key of the key set.
#[derive(Debug)]
pub struct PublishedKey {
    pub id: SigningKeyId,
    pub created_at: Time,
    /// The time at which the key starts to sign.
    pub signs_from: Time,
    /// The time at which a newer key takes over. `None` for the newest key.
    pub signs_until: Option<Time>,
    public_key: Vec<u8>,
    #[cfg(feature = "server")]
    signer: Signer,
}

/// Returns the one of these keys, newest first, that signs at this time. If the clock was set back, all keys may sign
/// only later. Then it is the oldest one, which most caches of the key set contain.
pub(super) fn find_signing<K>(keys: &[K], signs_from: impl Fn(&K) -> Time, now: Time) -> Option<&K> {
    keys.iter().find(|key| signs_from(key) <= now).or_else(|| keys.last())
}

impl KeySet {
    /// Opens the private keys that `previous` does not have yet.
    pub(super) fn new(store: &Store, records: Vec<KeyRecord>, previous: Option<&Self>) -> Result<Self, OAuthError> {
        let mut keys: Vec<PublishedKey> = Vec::with_capacity(records.len());
        for record in records {
            let signs_until = keys.last().map(|newer| newer.signs_from);
            keys.push(PublishedKey::new(store, record, signs_until, previous)?);
        }
        Ok(Self { keys })
    }

    pub(super) fn all(&self) -> &[PublishedKey] {
        &self.keys
    }

    /// Returns the keys that the key set of RFC 7517 contains at this time, newest first.
    pub fn published(&self, now: Time) -> impl Iterator<Item = &PublishedKey> {
        self.keys.iter().filter(move |key| !key.is_retired(now))
    }

    /// Returns the key that signs at this time.
    #[must_use]
    pub fn current(&self, now: Time) -> Option<&PublishedKey> {
        find_signing(&self.keys, |key| key.signs_from, now)
    }

    /// Returns a key that is published at this time.
    #[cfg(feature = "server")]
    pub(crate) fn find(&self, id: SigningKeyId, now: Time) -> Option<&PublishedKey> {
        self.published(now).find(|key| key.id == id)
    }

    /// Returns the published keys as JWKs (RFC 7517 section 5).
    #[must_use]
    pub fn jwks(&self, now: Time) -> Value {
        self.published(now).map(PublishedKey::jwk).collect()
    }
}

impl PublishedKey {
    fn new(
        store: &Store,
        record: KeyRecord,
        signs_until: Option<Time>,
        previous: Option<&KeySet>,
    ) -> Result<Self, OAuthError> {
        let KeyRecord { id, public_key, private_key, created_at, signs_from } = record;
        #[cfg(feature = "server")]
        let signer = match previous.and_then(|known| known.keys.iter().find(|key| key.id == id)) {
            Some(known) => known.signer.clone(),
            None => {
                let row = id.as_uuid().to_string();
                Signer::new(id, &store.open(PRIVATE_KEY.associated_data(&row), &private_key)?)?
            }
        };
        #[cfg(not(feature = "server"))]
        let _ = (store, private_key, previous, PRIVATE_KEY);
        Ok(Self {
            id,
            created_at,
            signs_from,
            signs_until,
            public_key,
            #[cfg(feature = "server")]
            signer,
        })
    }

    /// Returns the time at which the key leaves the key set, because the last token that it signed has expired.
    #[must_use]
    pub fn retires_at(&self) -> Option<Time> {
        self.signs_until.map(|until| until.plus_seconds(RETIREMENT_SECONDS))
    }

    pub(super) fn is_retired(&self, now: Time) -> bool {
        self.retires_at().is_some_and(|at| at <= now)
    }

    #[cfg(feature = "server")]
    pub(crate) fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    #[cfg(feature = "server")]
    pub(crate) fn signer(&self) -> &Signer {
        &self.signer
    }

    /// Returns the public key (RFC 7518 section 6.2.1). The stored point consists of the byte `04`, then x and y with
    /// 32 bytes each.
    fn jwk(&self) -> Value {
        let coordinate = |at: usize| URL_SAFE_NO_PAD.encode(self.public_key.get(at..at + 32).unwrap_or_default());
        json!({
            "kty": "EC", "crv": "P-256", "x": coordinate(1), "y": coordinate(33),
            "kid": self.id, "use": "sig", "alg": "ES256",
        })
    }
}
