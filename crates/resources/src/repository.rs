//! What resources ask of storage, and their SQL.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{ProjectId, Resource, ResourceSet};
use store::{Connection, Result};

use crate::schema::grants;

/// Grants on a [`store::Connection`].
pub trait ResourceRepository {
    /// The resources that the project is granted.
    async fn grant_list(&mut self, project: ProjectId) -> Result<ResourceSet>;
}

impl ResourceRepository for Connection {
    async fn grant_list(&mut self, project: ProjectId) -> Result<ResourceSet> {
        let query = grants::table.filter(grants::project_id.eq(project)).select(grants::resource);
        let granted: Vec<Resource> = query.load(self).await?;
        Ok(ResourceSet::which(|resource| granted.contains(&resource)))
    }
}
