//! Grants.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{ProjectId, Resource, ResourceSet, Time};
use store::{Connection, Prepared, Result};

use crate::schema::grants;

/// Grants on a [`store::Connection`].
pub trait GrantRepository {
    /// Lists the resources granted to a project.
    async fn grant_list(&mut self, project: ProjectId) -> Result<ResourceSet>;

    /// Inserts a grant. Returns false if the project has it.
    async fn grant_insert(&mut self, project: ProjectId, resource: Resource, at: Time) -> Result<bool>;

    /// Deletes a grant. Returns false if the project does not have it.
    async fn grant_delete(&mut self, project: ProjectId, resource: Resource) -> Result<bool>;
}

impl GrantRepository for Connection {
    async fn grant_list(&mut self, project: ProjectId) -> Result<ResourceSet> {
        let query = grants::table.filter(grants::project_id.eq(project)).select(grants::resource);
        let granted: Vec<Resource> = query.load(self).await?;
        Ok(ResourceSet::from_fn(|resource| granted.contains(&resource)))
    }

    async fn grant_insert(&mut self, project: ProjectId, resource: Resource, at: Time) -> Result<bool> {
        let row = (grants::project_id.eq(project), grants::resource.eq(resource), grants::granted_at.eq(at));
        let insert = diesel::insert_into(grants::table).values(row);
        let insert = insert.on_conflict((grants::project_id, grants::resource)).do_nothing();
        Ok(Prepared(insert).execute(self).await? == 1)
    }

    async fn grant_delete(&mut self, project: ProjectId, resource: Resource) -> Result<bool> {
        Ok(diesel::delete(grants::table.find((project, resource))).execute(self).await? == 1)
    }
}
