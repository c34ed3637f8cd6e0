//! The storage interface of this context.

use kernel::{ProjectId, ResourceSet};
use store::Result;

/// The verbs of this context on a [`store::Connection`].
pub trait ResourceRepository {
    /// The resources that the project is granted.
    async fn grant_list(&mut self, project: ProjectId) -> Result<ResourceSet>;
}
