//! Deletion of rows that no grant needs.

use kernel::error_chain;
use store::is_full_batch;

use super::{OAuth, Result};
use crate::error::OAuthError;
use crate::repository::{
    CodeRepository as _, DeviceRepository as _, GrantRepository as _, RefreshTokenRepository as _,
};

/// The time for which an expired request of a device is kept, so that its client learns that it expired.
const EXPIRED_DEVICE_SECONDS: i64 = 600;

impl OAuth {
    /// Deletes expired grants with their codes, the refresh tokens of all ended grants, and codes and device requests
    /// that expired without a grant. Also deletes the stored successors of refresh tokens after the grace period. If the
    /// rows of one kind cannot be deleted, logs the error and continues with the others. A background job calls it.
    ///
    /// # Errors
    /// Returns [`OAuthError::Store`]: the last error.
    pub async fn purge(&self) -> Result<()> {
        let now = self.now();
        let grace = self.config.as_ref().map_or(0, |config| config.refresh_grace_seconds);
        let grants = async {
            while is_full_batch(self.store.connection().await?.grant_purge(now).await?) {}
            Ok::<_, OAuthError>(())
        };
        let tokens = async {
            while is_full_batch(self.store.connection().await?.refresh_token_purge().await?) {}
            while is_full_batch(self.store.connection().await?.ended_grant_purge().await?) {}
            Ok::<_, OAuthError>(())
        };
        let codes = async {
            while is_full_batch(self.store.connection().await?.code_purge(now).await?) {}
            Ok::<_, OAuthError>(())
        };
        let devices = async {
            let before = now.plus_seconds(-EXPIRED_DEVICE_SECONDS);
            while is_full_batch(self.store.connection().await?.device_purge(before).await?) {}
            Ok::<_, OAuthError>(())
        };
        let successors = async {
            let before = now.plus_seconds(-grace);
            while is_full_batch(self.store.connection().await?.grant_purge_successors(before).await?) {}
            Ok::<_, OAuthError>(())
        };
        // One after the other: the tokens include those of the grants that were just deleted.
        let results = [
            ("grants", grants.await),
            ("refresh tokens", tokens.await),
            ("codes", codes.await),
            ("device codes", devices.await),
            ("successors", successors.await),
        ];
        let mut result = Ok(());
        for (rows, outcome) in results {
            if let Err(error) = outcome {
                tracing::warn!(rows, error = %error_chain(&error), "failed to purge rows of connected apps");
                result = Err(error);
            }
        }
        result
    }
}
