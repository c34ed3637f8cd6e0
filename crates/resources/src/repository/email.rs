//! Mail domains.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::ProjectId;
use store::{Connection, Prepared, Result};

use crate::schema::email_domains;

/// Mail domains on a [`store::Connection`].
pub trait EmailRepository {
    /// Creates the mail domain of a project. This is a no-op if the project has one.
    ///
    /// # Errors
    /// Returns a violation of `email_domains_domain_key` if another project has the domain.
    async fn email_domain_create(&mut self, project: ProjectId, domain: &str) -> Result<()>;

    /// Deletes the mail domain of a project. This is a no-op if the project has none.
    async fn email_domain_delete(&mut self, project: ProjectId) -> Result<()>;

    /// Returns the mail domain of each of these projects that has one.
    async fn email_domain_load(&mut self, projects: &[ProjectId]) -> Result<Vec<(ProjectId, String)>>;
}

impl EmailRepository for Connection {
    async fn email_domain_create(&mut self, project: ProjectId, domain: &str) -> Result<()> {
        let row = (email_domains::project_id.eq(project), email_domains::domain.eq(domain));
        let insert = diesel::insert_into(email_domains::table).values(row);
        Prepared(insert.on_conflict(email_domains::project_id).do_nothing()).execute(self).await?;
        Ok(())
    }

    async fn email_domain_delete(&mut self, project: ProjectId) -> Result<()> {
        diesel::delete(email_domains::table.find(project)).execute(self).await?;
        Ok(())
    }

    async fn email_domain_load(&mut self, projects: &[ProjectId]) -> Result<Vec<(ProjectId, String)>> {
        let query = email_domains::table.filter(email_domains::project_id.eq_any(projects));
        Ok(query.select((email_domains::project_id, email_domains::domain)).load(self).await?)
    }
}
