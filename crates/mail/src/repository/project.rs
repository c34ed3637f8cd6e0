//! Projects, as this context sees them.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{NodeId, OrgId, Plan, ProjectId};
use store::{Connection, Result};

use crate::schema::projects;

/// A project that is not deleted.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = projects)]
pub struct MailProject {
    pub id: ProjectId,
    pub name: String,
    #[diesel(column_name = org_id)]
    pub org: OrgId,
    #[diesel(column_name = slug)]
    pub org_slug: String,
    pub plan: Plan,
    /// The granted mail domain.
    pub email_domain: Option<String>,
    /// The home node; `None` for a project that no node serves.
    #[diesel(column_name = home_node_id)]
    pub home_node: Option<NodeId>,
}

/// Projects on a [`store::Connection`].
pub trait ProjectRepository {
    /// Returns a project, or `None` for a deleted project.
    async fn project_find(&mut self, project: ProjectId) -> Result<Option<MailProject>>;

    /// Returns the project that has this mail domain.
    async fn project_by_domain(&mut self, domain: &str) -> Result<Option<ProjectId>>;
}

impl ProjectRepository for Connection {
    async fn project_find(&mut self, project: ProjectId) -> Result<Option<MailProject>> {
        let query = projects::table.filter(projects::id.eq(project)).select(MailProject::as_select());
        Ok(query.first(self).await.optional()?)
    }

    async fn project_by_domain(&mut self, domain: &str) -> Result<Option<ProjectId>> {
        let query = projects::table.filter(projects::email_domain.eq(domain)).select(projects::id);
        Ok(query.first(self).await.optional()?)
    }
}
