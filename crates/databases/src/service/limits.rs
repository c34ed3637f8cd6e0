//! The daily limits of expensive operations, per project.

use kernel::{ProjectId, Time};
use store::Connection;

use super::{DAY, Databases, Result};
use crate::error::DatabaseError;
use crate::repository::{LimitedOperation, UsageRepository as _};

impl Databases {
    /// Checks that an operation may begin. The caller holds the lock of the placement, so that concurrent requests
    /// cannot exceed the limit together. Operations that failed or were aborted count, too.
    ///
    /// # Errors
    /// Returns [`DatabaseError::DailyLimit`].
    pub(super) async fn ensure_below_daily_limit(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        operation: LimitedOperation,
        now: Time,
    ) -> Result<()> {
        let (operations, limit) = match operation {
            LimitedOperation::Restore => ("restores", self.abuse_limits.database_restores_per_project),
            LimitedOperation::Export => ("exports", self.abuse_limits.database_exports_per_project),
            LimitedOperation::Change => ("deletions and enablings", self.abuse_limits.database_changes_per_project),
        };
        let oldest = match limit {
            0 => Some(now),
            _ => tx.usage_nth_newest(project, operation, now.plus_seconds(-DAY), limit).await?,
        };
        let Some(oldest) = oldest else { return Ok(()) };
        let retry_after = oldest.plus_seconds(DAY).seconds_since(now).max(1);
        Err(DatabaseError::DailyLimit { operations, limit, retry_after })
    }
}
