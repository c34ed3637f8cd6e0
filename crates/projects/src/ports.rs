//! What this context asks of others.

use kernel::audit::Actor;
use kernel::{Digest, OrgId, Plan, ProjectId};
use store::Connection;

/// Organizations, as far as projects depend on them.
#[async_trait::async_trait]
pub trait Organizations: Send + Sync {
    /// Locks the organization's row until the transaction ends and tells its plan; none when there is no such
    /// organization.
    ///
    /// # Errors
    /// When the database is away.
    async fn lock(&self, tx: &mut Connection, org: OrgId) -> store::Result<Option<Plan>>;

    /// Tells the organization that its plan's limit has stopped a project from being created.
    ///
    /// # Errors
    /// When the database is away.
    async fn limit_reached(&self, actor: &Actor, org: OrgId, limit: u32) -> store::Result<()>;
}

/// What is live of a project, for whoever serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// The active hostnames.
    pub hostnames: Vec<String>,
    /// The bundle.
    pub bundle: Digest,
    /// The bundle's size, in bytes.
    pub size_bytes: i64,
    /// The deployment's version.
    pub version: i32,
}

/// The nodes that serve projects.
#[async_trait::async_trait]
pub trait Placements: Send + Sync {
    /// Writes down, in the transaction that decides it, what the project's node is to serve.
    ///
    /// # Errors
    /// When the database is away.
    async fn converge(&self, tx: &mut Connection, project: ProjectId, live: Live) -> store::Result<()>;
}
