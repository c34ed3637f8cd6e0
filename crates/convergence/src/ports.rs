//! The port of the contexts that receive reports.

use async_trait::async_trait;
use kernel::ProjectId;
use store::Connection;

/// Receives every report of one kind. Reports of one project arrive in the order in which its node observed them.
#[async_trait]
pub trait ReportReceiver<K>: Send + Sync {
    /// Stores a report about a project of the reporting node, in the transaction that accepts its batch. An error rolls
    /// the whole batch back, and the node sends it again.
    ///
    /// # Errors
    /// When the database is away.
    async fn receive(&self, tx: &mut Connection, project: ProjectId, report: K) -> store::Result<()>;
}
