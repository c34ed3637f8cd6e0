//! The repository on Postgres.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{ProjectId, Resource, ResourceSet};
use store::{Connection, Result};

use crate::repository::ResourceRepository;
use crate::schema::grants;

impl ResourceRepository for Connection {
    async fn grant_list(&mut self, project: ProjectId) -> Result<ResourceSet> {
        let query = grants::table.filter(grants::project_id.eq(project)).select(grants::resource);
        let granted: Vec<Resource> = query.load(self).await?;
        Ok(ResourceSet::which(|resource| granted.contains(&resource)))
    }
}
