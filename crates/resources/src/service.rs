//! The resources service.

use kernel::{ProjectId, ResourceSet};
use store::Store;

use crate::error::ResourceError;
use crate::repository::ResourceRepository as _;

/// The resources service. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Resources {
    store: Store,
}

impl Resources {
    /// Creates the service.
    #[must_use]
    pub const fn new(store: Store) -> Self {
        Self { store }
    }

    /// Returns the resources granted to a project, whether or not its live deployment declares them.
    ///
    /// # Errors
    /// [`ResourceError::Store`].
    pub async fn grants(&self, project: ProjectId) -> Result<ResourceSet, ResourceError> {
        Ok(self.store.connection().await?.grant_list(project).await?)
    }
}
