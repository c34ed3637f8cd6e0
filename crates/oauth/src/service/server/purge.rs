//! Deletion of rows that no grant needs.

use store::is_full_batch;

use super::{OAuth, Result};
use crate::repository::{CodeRepository as _, DeviceRepository as _, GrantRepository as _};

/// The time for which an expired request of a device is kept, so that its client learns that it expired.
const EXPIRED_DEVICE_SECONDS: i64 = 600;

impl OAuth {
    /// Deletes expired grants with their codes and tokens, and codes and device requests that expired without a grant.
    /// Also deletes the stored successors of refresh tokens after the grace period. A background job calls it.
    ///
    /// # Errors
    /// Returns [`OAuthError::Store`](crate::OAuthError::Store).
    pub async fn purge(&self) -> Result<()> {
        let now = self.now();
        let grace = self.config.as_ref().map_or(0, |config| config.refresh_grace_seconds);
        let mut connection = self.store.connection().await?;
        while is_full_batch(connection.grant_purge(now).await?) {}
        while is_full_batch(connection.code_purge(now).await?) {}
        while is_full_batch(connection.device_purge(now.plus_seconds(-EXPIRED_DEVICE_SECONDS)).await?) {}
        while is_full_batch(connection.grant_purge_successors(now.plus_seconds(-grace)).await?) {}
        Ok(())
    }
}
