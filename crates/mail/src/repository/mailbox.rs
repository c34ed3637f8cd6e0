//! Mailboxes: the projects that have mail.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{Plan, ProjectId, Time};
use store::{Connection, Prepared, Result};

use crate::schema::{mailboxes, projects};

/// Mailboxes on a [`store::Connection`].
pub trait MailboxRepository {
    /// Creates the mailbox of a project. This is a no-op if it exists.
    async fn mailbox_create(&mut self, project: ProjectId) -> Result<()>;

    /// Locks the mailbox of a project until the transaction ends, and creates it if it does not exist.
    async fn mailbox_lock(&mut self, project: ProjectId) -> Result<()>;

    /// Marks the mailboxes of these projects, which are purged at this time.
    async fn mailbox_mark_purged(&mut self, projects: &[ProjectId], at: Time) -> Result<()>;

    /// Returns mailboxes of purged projects.
    async fn mailbox_list_purged(&mut self, limit: i64) -> Result<Vec<ProjectId>>;

    /// Returns the mailboxes of projects that were not purged, with the plan of their organization, in the order of their
    /// projects. The plan of a deleted project is `None`.
    async fn mailbox_list(&mut self, after: Option<ProjectId>, limit: i64) -> Result<Vec<(ProjectId, Option<Plan>)>>;

    /// Deletes the mailbox of a purged project.
    async fn mailbox_delete(&mut self, project: ProjectId) -> Result<()>;
}

impl MailboxRepository for Connection {
    async fn mailbox_create(&mut self, project: ProjectId) -> Result<()> {
        let insert = diesel::insert_into(mailboxes::table).values(mailboxes::project_id.eq(project));
        Prepared(insert.on_conflict_do_nothing()).execute(self).await?;
        Ok(())
    }

    async fn mailbox_lock(&mut self, project: ProjectId) -> Result<()> {
        let query = mailboxes::table.find(project).select(mailboxes::project_id).for_update();
        let found: Option<ProjectId> = query.first(self).await.optional()?;
        if found.is_none() {
            self.mailbox_create(project).await?;
            let _: ProjectId = query.first(self).await?;
        }
        Ok(())
    }

    async fn mailbox_mark_purged(&mut self, projects: &[ProjectId], at: Time) -> Result<()> {
        let all = mailboxes::table.filter(mailboxes::project_id.eq_any(projects));
        diesel::update(all).set(mailboxes::purged_at.eq(at)).execute(self).await?;
        Ok(())
    }

    async fn mailbox_list_purged(&mut self, limit: i64) -> Result<Vec<ProjectId>> {
        let purged = mailboxes::table.filter(mailboxes::purged_at.is_not_null()).order(mailboxes::purged_at);
        Ok(purged.select(mailboxes::project_id).limit(limit).load(self).await?)
    }

    async fn mailbox_list(&mut self, after: Option<ProjectId>, limit: i64) -> Result<Vec<(ProjectId, Option<Plan>)>> {
        let after = after.unwrap_or(ProjectId::earliest_at(Time::UNIX_EPOCH));
        let query = mailboxes::table
            .left_join(projects::table.on(projects::id.eq(mailboxes::project_id)))
            .filter(mailboxes::project_id.gt(after).and(mailboxes::purged_at.is_null()))
            .order(mailboxes::project_id)
            .select((mailboxes::project_id, projects::plan.nullable()));
        Ok(query.limit(limit).load(self).await?)
    }

    async fn mailbox_delete(&mut self, project: ProjectId) -> Result<()> {
        let purged = mailboxes::project_id.eq(project).and(mailboxes::purged_at.is_not_null());
        diesel::delete(mailboxes::table.filter(purged)).execute(self).await?;
        Ok(())
    }
}
