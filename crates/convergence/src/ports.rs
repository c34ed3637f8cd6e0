//! The port for contexts that receive reports.

use async_trait::async_trait;
use kernel::ProjectId;
use store::Connection;

/// Receives all reports of one kind. Reports about one project arrive in the order in which its node observed them.
#[async_trait]
pub trait ReportReceiver<K>: Send + Sync {
    /// Stores a report about a project of the reporting node, in the transaction that accepts the batch. An error rolls
    /// back the whole batch, and the node retries it.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    async fn receive(&self, tx: &mut Connection, project: ProjectId, report: K) -> store::Result<()>;
}
