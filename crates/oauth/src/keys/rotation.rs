//! Creation, rotation and removal of keys.

use kernel::SigningKeyId;
use kernel::audit::{Actor, Event};
use kernel::seal::Sealed;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::json;
use store::{Connection, Error, Outcome};

use super::set::find_signing;
use super::{KeySet, PRIVATE_KEY, PUBLICATION_SECONDS, SigningKeys};
use crate::error::OAuthError;
use crate::repository::{KeyRecord, KeyRepository as _};

impl SigningKeys {
    /// Creates the first key, which signs immediately. This is a no-op if a key exists. A background job calls it.
    ///
    /// # Errors
    /// Returns [`OAuthError::Store`].
    pub async fn ensure(&self, actor: &Actor) -> Result<(), OAuthError> {
        if self.get().await?.current(self.now()).is_some() {
            return Ok(());
        }
        self.store
            .transaction::<_, OAuthError>(actor, async |tx: &mut Connection| {
                tx.key_lock().await?;
                if !tx.key_list().await?.is_empty() {
                    return Ok(Outcome::Unchanged(()));
                }
                let key = self.create(tx, 0).await?;
                Ok(Outcome::Changed((), event("oauth.key.rotate", key.id, None)))
            })
            .await?;
        self.load().await.map(drop)
    }

    /// Publishes a new key, which signs two minutes later. The previous key stays published until its tokens have
    /// expired.
    ///
    /// # Errors
    /// Returns [`OAuthError::RotationInProgress`] if the newest key does not sign yet.
    pub async fn rotate(&self, actor: &Actor) -> Result<KeySet, OAuthError> {
        self.store
            .transaction::<_, OAuthError>(actor, async |tx: &mut Connection| {
                tx.key_lock().await?;
                let before = tx.key_list().await?;
                if let Some(pending) = before.first().filter(|newest| newest.signs_from > self.now()) {
                    return Err(OAuthError::RotationInProgress(pending.id));
                }
                let delay = if before.is_empty() { 0 } else { PUBLICATION_SECONDS };
                let key = self.create(tx, delay).await?;
                Ok(Outcome::Changed((), event("oauth.key.rotate", key.id, before.first().map(|key| key.id))))
            })
            .await?;
        self.list().await
    }

    /// Removes a key immediately. Use this for a key that may be known to others. Its tokens become invalid within ten
    /// seconds, and their clients can refresh them. If the key was signing, a new one takes over immediately.
    ///
    /// # Errors
    /// Returns [`OAuthError::KeyNotFound`].
    pub async fn retire(&self, actor: &Actor, key: SigningKeyId) -> Result<KeySet, OAuthError> {
        self.store
            .transaction::<_, OAuthError>(actor, async |tx: &mut Connection| {
                tx.key_lock().await?;
                let keys = tx.key_list().await?;
                if !tx.key_delete(key).await? {
                    return Err(OAuthError::KeyNotFound);
                }
                let replacement = match find_signing(&keys, |key| key.signs_from, self.now()) {
                    Some(signing) if signing.id == key => Some(self.create(tx, 0).await?.id),
                    _ => None,
                };
                let data = json!({ "replacement": replacement });
                Ok(Outcome::Changed((), Event::of_platform("oauth.key.retire", key, data)))
            })
            .await?;
        self.list().await
    }

    /// Deletes the keys whose last token has expired. A background job calls it.
    ///
    /// # Errors
    /// Returns [`OAuthError::Store`].
    pub async fn purge(&self, actor: &Actor) -> Result<(), OAuthError> {
        let now = self.now();
        let keys = self.load().await?;
        for key in keys.all().iter().filter(|key| key.is_retired(now)) {
            self.store
                .transaction::<_, OAuthError>(actor, async |tx: &mut Connection| {
                    if tx.key_delete(key.id).await? {
                        Ok(Outcome::Changed((), Event::of_platform("oauth.key.retire", key.id, json!({}))))
                    } else {
                        Ok(Outcome::Unchanged(()))
                    }
                })
                .await?;
        }
        Ok(())
    }

    /// Reads the keys from the database.
    ///
    /// # Errors
    /// Returns [`OAuthError::Store`].
    pub async fn list(&self) -> Result<KeySet, OAuthError> {
        let records = self.store.connection().await?.key_list().await?;
        KeySet::new(&self.store, records, None)
    }

    /// Inserts a new key, which signs after `delay` seconds.
    async fn create(&self, tx: &mut Connection, delay: i64) -> Result<KeyRecord, OAuthError> {
        #[expect(clippy::disallowed_methods, reason = "ring generates keys only with its own generator")]
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
            .map_err(|_| Error::inconsistent("the operating system returned no random bytes"))?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random)
            .map_err(Error::inconsistent)?;
        let created_at = self.now();
        let id: SigningKeyId = self.store.clock_rng().id_at(created_at);
        let private_key: Sealed =
            self.store.seal(PRIVATE_KEY.associated_data(&id.as_uuid().to_string()), pkcs8.as_ref())?;
        let public_key = pair.public_key().as_ref().to_vec();
        let record = KeyRecord { id, public_key, private_key, created_at, signs_from: created_at.plus_seconds(delay) };
        tx.key_insert(&record).await?;
        Ok(record)
    }
}

fn event(name: &'static str, key: SigningKeyId, previous: Option<SigningKeyId>) -> Event {
    Event::of_platform(name, key, json!({ "previous": previous }))
}
