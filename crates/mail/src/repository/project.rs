//! Projects, as seen by this context.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{NodeId, OrgId, Plan, ProjectId, Time};
use store::{Connection, Result};

use crate::schema::{mailboxes, projects};

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
    /// See [`Plan::for_retention`].
    pub pro_retention_until: Option<Time>,
    /// The granted mail domain.
    pub email_domain: Option<String>,
    /// The home node; `None` if no node serves the project.
    #[diesel(column_name = home_node_id)]
    pub home_node: Option<NodeId>,
}

/// The project that has a mail domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Queryable)]
pub struct DomainOwner {
    pub project: ProjectId,
    pub plan: Plan,
    /// See [`Plan::for_retention`].
    pub pro_retention_until: Option<Time>,
    /// The bytes of the stored received messages; `None` for a project without a mailbox.
    pub received_bytes: Option<i64>,
}

/// Projects on a [`store::Connection`].
pub trait ProjectRepository {
    /// Returns a project, or `None` for a deleted project.
    async fn project_find(&mut self, project: ProjectId) -> Result<Option<MailProject>>;

    /// Returns the owner of this mail domain.
    async fn project_by_domain(&mut self, domain: &str) -> Result<Option<DomainOwner>>;

    /// Returns whether a project has a mailbox, or `None` for a deleted project.
    async fn project_has_mailbox(&mut self, project: ProjectId) -> Result<Option<bool>>;
}

impl ProjectRepository for Connection {
    async fn project_find(&mut self, project: ProjectId) -> Result<Option<MailProject>> {
        let query = projects::table.filter(projects::id.eq(project)).select(MailProject::as_select());
        Ok(query.first(self).await.optional()?)
    }

    async fn project_by_domain(&mut self, domain: &str) -> Result<Option<DomainOwner>> {
        let query = projects::table
            .left_join(mailboxes::table.on(mailboxes::project_id.eq(projects::id)))
            .filter(projects::email_domain.eq(domain))
            .select((
                projects::id,
                projects::plan,
                projects::pro_retention_until,
                mailboxes::received_bytes.nullable(),
            ));
        Ok(query.first(self).await.optional()?)
    }

    async fn project_has_mailbox(&mut self, project: ProjectId) -> Result<Option<bool>> {
        let query = projects::table
            .left_join(mailboxes::table.on(mailboxes::project_id.eq(projects::id)))
            .filter(projects::id.eq(project))
            .select(mailboxes::project_id.nullable().is_not_null());
        Ok(query.first(self).await.optional()?)
    }
}
