//! What this context asks of others.

use kernel::UserId;
use store::Connection;

/// Founds organizations for people who sign in for the first time.
#[async_trait::async_trait]
pub trait PersonalOrgs: Send + Sync {
    /// Creates the user's own organization in the transaction that creates the user; `wish` is what it would best be
    /// called.
    ///
    /// # Errors
    /// When the database is away.
    async fn create(&self, tx: &mut Connection, user: UserId, wish: &str) -> store::Result<()>;
}
