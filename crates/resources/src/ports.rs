//! The ports that other contexts implement.

use std::sync::Arc;

use async_trait::async_trait;
use kernel::{NamedProject, OrgId, ProjectId, StorageId};
use store::Connection;

/// A part of the desired state that this context owns. If the part has values, [`crate::PartValues`] loads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourcePart {
    /// The secrets of a project.
    Secrets,
    /// The object storage of a project.
    Storage,
    /// The access of a project to AI models, which has no values.
    Ai,
    /// The mail domain of a project.
    Email,
    /// The settings and providers of a project's app sign-in.
    Auth,
}

/// The desired state of projects on their nodes. It stores no values.
#[async_trait]
pub trait DesiredParts: Send + Sync {
    /// Publishes a change of the part in the caller's transaction, so that the home node fetches its current value.
    /// Returns false if the project was deleted.
    async fn publish(&self, tx: &mut Connection, project: ProjectId, part: ResourcePart) -> store::Result<bool>;

    /// Removes the part in the caller's transaction. This is a no-op if the part was not published.
    async fn withdraw(&self, tx: &mut Connection, project: ProjectId, part: ResourcePart) -> store::Result<()>;

    /// Publishes that the objects of a purged project must be deleted, in the transaction that purges the project.
    async fn publish_deletion(&self, tx: &mut Connection, project: ProjectId, prefix: StorageId) -> store::Result<()>;

    /// Removes all remaining desired state of a purged project, because its objects were deleted.
    async fn end(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()>;
}

/// The databases of projects.
#[async_trait]
pub trait Databases: Send + Sync {
    /// Locks the database of a project until the transaction ends, so that no deletion of it begins. Returns false if
    /// the project has no database, or if its database is being deleted.
    async fn lock(&self, tx: &mut Connection, project: ProjectId) -> store::Result<bool>;
}

/// The hostnames of projects.
#[async_trait]
pub trait Hostnames: Send + Sync {
    /// Lists the active hostnames of a project, the default hostname first.
    async fn active(&self, connection: &mut Connection, project: ProjectId) -> store::Result<Vec<String>>;
}

/// Access to organizations.
#[async_trait]
pub trait Organizations: Send + Sync {
    /// Raises a notification in the caller's transaction.
    async fn raise(&self, tx: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()>;
}

/// The notifications that this context raises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A write to the project's storage was refused because of the plan's quota.
    StorageLimit { project: NamedProject, limit_bytes: u64 },
}

/// The implementations of the ports.
#[derive(Clone)]
pub struct Ports {
    pub parts: Arc<dyn DesiredParts>,
    pub organizations: Arc<dyn Organizations>,
    pub databases: Arc<dyn Databases>,
    pub hostnames: Arc<dyn Hostnames>,
}
