//! The repository of grants: a trait and its SQL.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{ProjectId, Resource, ResourceSet};
use store::{Connection, Result};

use crate::schema::grants;

/// Grants on a [`store::Connection`].
pub trait ResourceRepository {
    /// Lists the resources granted to a project.
    async fn grant_list(&mut self, project: ProjectId) -> Result<ResourceSet>;
}

impl ResourceRepository for Connection {
    async fn grant_list(&mut self, project: ProjectId) -> Result<ResourceSet> {
        let query = grants::table.filter(grants::project_id.eq(project)).select(grants::resource);
        let granted: Vec<Resource> = query.load(self).await?;
        Ok(ResourceSet::from_fn(|resource| granted.contains(&resource)))
    }
}
