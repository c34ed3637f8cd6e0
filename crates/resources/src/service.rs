//! The use cases of resources.

use kernel::{ProjectId, ResourceSet};
use store::Store;

use crate::error::ResourceError;
use crate::repository::ResourceRepository as _;

/// The resources that projects are granted. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Resources {
    store: Store,
}

impl Resources {
    /// The service on this database.
    #[must_use]
    pub const fn new(store: Store) -> Self {
        Self { store }
    }

    /// The resources that the project is granted, whether or not its live deployment declares them.
    ///
    /// # Errors
    /// [`ResourceError::Store`].
    pub async fn granted(&self, project: ProjectId) -> Result<ResourceSet, ResourceError> {
        Ok(self.store.connection().await?.grant_list(project).await?)
    }
}
