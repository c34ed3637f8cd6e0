//! The keys that sign access tokens.
//!
//! A key is published when it is created, and begins to sign two minutes later, when every cache of the key set
//! contains it. It stays published until the last token that it signed has expired. All times follow from the rows, so
//! the processes of an installation agree without coordination.

mod rotation;
mod set;

#[cfg(feature = "server")]
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use kernel::Time;
use store::{SealedColumn, Store};

use crate::error::OAuthError;
#[cfg(feature = "server")]
use crate::jwt::{Expected, InvalidToken, RejectedToken, UnverifiedToken, VerifiedToken};
use crate::repository::KeyRepository as _;

pub use set::{KeySet, PublishedKey};

/// The column of the private keys.
pub(crate) const PRIVATE_KEY: SealedColumn =
    SealedColumn { table: "oauth.signing_keys", column: "private_key", row_key: &[("id", "uuid")] };

/// The maximum time for which a cache may keep the key set (specification, "Connected-app OAuth", rule 2).
pub const KEY_SET_MAX_AGE_SECONDS: i64 = 60;
/// The time from the creation of a key to its first signature. The processes of this installation reload the keys every
/// ten seconds, and the caches expire after that.
const PUBLICATION_SECONDS: i64 = 2 * KEY_SET_MAX_AGE_SECONDS;
/// The lifetime of an access token (specification, "Limits").
pub(crate) const ACCESS_TOKEN_SECONDS: i64 = 15 * 60;
/// The time from the last signature of a key to its removal. It includes the difference between the clocks of two
/// processes.
const RETIREMENT_SECONDS: i64 = ACCESS_TOKEN_SECONDS + 60;

/// The signing keys. The operator's commands change them; every process of the authorization server caches them.
#[derive(Debug, Clone)]
pub struct SigningKeys {
    store: Store,
    cache: Arc<RwLock<Option<Arc<KeySet>>>>,
    /// The time at which a token with an unknown key last caused a load of the keys, in seconds since 1970.
    #[cfg(feature = "server")]
    reloaded_at: Arc<AtomicI64>,
}

impl SigningKeys {
    /// Creates the keys without loading them.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self {
            store,
            cache: Arc::default(),
            #[cfg(feature = "server")]
            reloaded_at: Arc::default(),
        }
    }

    /// Loads the keys into the cache. A background job calls it every ten seconds.
    ///
    /// # Errors
    /// Returns [`OAuthError::Store`], for example if a private key cannot be opened.
    pub async fn load(&self) -> Result<Arc<KeySet>, OAuthError> {
        let records = self.store.connection().await?.key_list().await?;
        let previous = self.cached();
        let keys = Arc::new(KeySet::new(&self.store, records, previous.as_deref())?);
        *self.cache.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&keys));
        Ok(keys)
    }

    /// Returns the cached keys. Loads them if this process has not loaded them yet.
    ///
    /// # Errors
    /// Returns the errors of [`Self::load`].
    pub async fn get(&self) -> Result<Arc<KeySet>, OAuthError> {
        match self.cached() {
            Some(keys) => Ok(keys),
            None => self.load().await,
        }
    }

    fn cached(&self) -> Option<Arc<KeySet>> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Verifies an access token. Queries the database only if this process has not loaded the keys yet, or the key is
    /// unknown.
    ///
    /// # Errors
    /// Returns [`RejectedToken`].
    #[cfg(feature = "server")]
    pub(crate) async fn verify(
        &self,
        token: &str,
        issuer: &str,
        audience: &str,
    ) -> Result<VerifiedToken, RejectedToken> {
        let token = UnverifiedToken::parse(token)?;
        let keys = self.get().await.map_err(RejectedToken::Keys)?;
        let now = self.now();
        let Some(key) = keys.find(token.key, now) else {
            // Another process may have created the key recently.
            let keys = self.reload(now).await.map_err(RejectedToken::Keys)?.ok_or(InvalidToken("key"))?;
            let key = keys.find(token.key, now).ok_or(InvalidToken("key"))?;
            return Ok(token.verify(key.public_key(), Expected { issuer, audience, now })?);
        };
        Ok(token.verify(key.public_key(), Expected { issuer, audience, now })?)
    }

    /// Loads the keys because a token names an unknown one. Returns `None` if such a load was less than a second ago,
    /// so that invented key ids cause no load on Postgres.
    #[cfg(feature = "server")]
    async fn reload(&self, now: Time) -> Result<Option<Arc<KeySet>>, OAuthError> {
        let previous = self.reloaded_at.swap(now.unix_seconds(), Ordering::Relaxed);
        if previous == now.unix_seconds() { Ok(None) } else { self.load().await.map(Some) }
    }

    fn now(&self) -> Time {
        self.store.clock_rng().now()
    }
}
