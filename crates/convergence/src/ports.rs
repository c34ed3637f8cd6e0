//! What this context asks of others.

use async_trait::async_trait;
use kernel::ProjectId;
use store::Connection;

use crate::report::DeploymentState;

/// Deployments, as far as nodes report of them.
#[async_trait]
pub trait Deployments: Send + Sync {
    /// Notes how a deployment fares.
    ///
    /// # Errors
    /// When the database is away.
    async fn observed(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        version: i32,
        state: DeploymentState,
        message: Option<&str>,
    ) -> store::Result<()>;
}
