//! Mailboxes. A project has one when it can send or receive mail.

use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel::upsert::excluded;
use diesel_async::RunQueryDsl;
use kernel::{Plan, ProjectId, Time};
use store::{Connection, Prepared, Result};

use crate::schema::{mailboxes, projects};

/// Bytes of stored mail, by direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Queryable, QueryableByName)]
pub struct MailBytes {
    #[diesel(sql_type = BigInt)]
    pub received: i64,
    #[diesel(sql_type = BigInt)]
    pub sent: i64,
}

/// Mailboxes on a [`store::Connection`].
pub trait MailboxRepository {
    /// Creates the mailbox of a project. This is a no-op if it exists.
    async fn mailbox_create(&mut self, project: ProjectId) -> Result<()>;

    /// Locks the mailbox of a project until the transaction ends, and creates it if it does not exist. Returns the
    /// bytes of the stored mail.
    async fn mailbox_lock(&mut self, project: ProjectId) -> Result<MailBytes>;

    /// Returns the bytes of the stored mail of a project.
    async fn mailbox_bytes(&mut self, project: ProjectId) -> Result<MailBytes>;

    /// Adds the bytes of stored mail, and creates the mailbox if it does not exist.
    async fn mailbox_add(&mut self, project: ProjectId, bytes: MailBytes) -> Result<()>;

    /// Subtracts the bytes of deleted mail.
    async fn mailbox_subtract(&mut self, project: ProjectId, bytes: MailBytes) -> Result<()>;

    /// Records a notification about the hourly limit at this time, and locks the mailbox. Returns false, without a lock,
    /// if the last one is later than `after`.
    async fn mailbox_claim_notice(&mut self, project: ProjectId, at: Time, after: Time) -> Result<bool>;

    /// Marks the mailboxes of these projects as purged at this time.
    async fn mailbox_mark_purged(&mut self, projects: &[ProjectId], at: Time) -> Result<()>;

    /// Returns up to `limit` mailboxes of purged projects, the earliest purge first. Skips the first `skipped` ones.
    async fn mailbox_list_purged(&mut self, limit: i64, skipped: i64) -> Result<Vec<ProjectId>>;

    /// Returns the mailboxes of projects that are not purged, in the order of the projects' ids, with the plan that
    /// determines at `now` how long mail is kept. The plan is `None` if the project is deleted.
    async fn mailbox_list(
        &mut self,
        after: Option<ProjectId>,
        limit: i64,
        now: Time,
    ) -> Result<Vec<(ProjectId, Option<Plan>)>>;

    /// Deletes the mailbox of a purged project.
    async fn mailbox_delete(&mut self, project: ProjectId) -> Result<()>;
}

impl MailboxRepository for Connection {
    async fn mailbox_create(&mut self, project: ProjectId) -> Result<()> {
        let insert = diesel::insert_into(mailboxes::table).values(mailboxes::project_id.eq(project));
        Prepared(insert.on_conflict_do_nothing()).execute(self).await?;
        Ok(())
    }

    async fn mailbox_lock(&mut self, project: ProjectId) -> Result<MailBytes> {
        let bytes = (mailboxes::received_bytes, mailboxes::sent_bytes);
        let query = mailboxes::table.find(project).select(bytes).for_update();
        if let Some(found) = query.first(self).await.optional()? {
            return Ok(found);
        }
        self.mailbox_create(project).await?;
        Ok(query.first(self).await?)
    }

    async fn mailbox_bytes(&mut self, project: ProjectId) -> Result<MailBytes> {
        let query = mailboxes::table.find(project).select((mailboxes::received_bytes, mailboxes::sent_bytes));
        Ok(query.first(self).await.optional()?.unwrap_or_default())
    }

    async fn mailbox_add(&mut self, project: ProjectId, bytes: MailBytes) -> Result<()> {
        let added = (
            mailboxes::project_id.eq(project),
            mailboxes::received_bytes.eq(bytes.received),
            mailboxes::sent_bytes.eq(bytes.sent),
        );
        let sums = (
            mailboxes::received_bytes.eq(mailboxes::received_bytes + excluded(mailboxes::received_bytes)),
            mailboxes::sent_bytes.eq(mailboxes::sent_bytes + excluded(mailboxes::sent_bytes)),
        );
        let upsert = diesel::insert_into(mailboxes::table).values(added).on_conflict(mailboxes::project_id);
        Prepared(upsert.do_update().set(sums)).execute(self).await?;
        Ok(())
    }

    async fn mailbox_subtract(&mut self, project: ProjectId, bytes: MailBytes) -> Result<()> {
        let differences = (
            mailboxes::received_bytes.eq(mailboxes::received_bytes - bytes.received),
            mailboxes::sent_bytes.eq(mailboxes::sent_bytes - bytes.sent),
        );
        Prepared(diesel::update(mailboxes::table.find(project)).set(differences)).execute(self).await?;
        Ok(())
    }

    async fn mailbox_claim_notice(&mut self, project: ProjectId, at: Time, after: Time) -> Result<bool> {
        let is_due = mailboxes::limit_notice_at.is_null().or(mailboxes::limit_notice_at.le(after));
        let mailbox = mailboxes::table.filter(mailboxes::project_id.eq(project).and(is_due.assume_not_null()));
        let update = diesel::update(mailbox).set(mailboxes::limit_notice_at.eq(at));
        Ok(Prepared(update).execute(self).await? == 1)
    }

    async fn mailbox_mark_purged(&mut self, projects: &[ProjectId], at: Time) -> Result<()> {
        let all = mailboxes::table.filter(mailboxes::project_id.eq_any(projects));
        diesel::update(all).set(mailboxes::purged_at.eq(at)).execute(self).await?;
        Ok(())
    }

    async fn mailbox_list_purged(&mut self, limit: i64, skipped: i64) -> Result<Vec<ProjectId>> {
        let purged = mailboxes::table
            .filter(mailboxes::purged_at.is_not_null())
            .order((mailboxes::purged_at, mailboxes::project_id));
        Ok(purged.select(mailboxes::project_id).limit(limit).offset(skipped).load(self).await?)
    }

    async fn mailbox_list(
        &mut self,
        after: Option<ProjectId>,
        limit: i64,
        now: Time,
    ) -> Result<Vec<(ProjectId, Option<Plan>)>> {
        let after = after.unwrap_or(ProjectId::earliest_at(Time::UNIX_EPOCH));
        let query = mailboxes::table
            .left_join(projects::table.on(projects::id.eq(mailboxes::project_id)))
            .filter(mailboxes::project_id.gt(after).and(mailboxes::purged_at.is_null()))
            .order(mailboxes::project_id)
            .select((mailboxes::project_id, projects::plan.nullable(), projects::pro_retention_until.nullable()));
        let rows: Vec<(ProjectId, Option<Plan>, Option<Time>)> = query.limit(limit).load(self).await?;
        let retention = |(project, plan, until): (ProjectId, Option<Plan>, Option<Time>)| {
            (project, plan.map(|plan| plan.for_retention(until, now)))
        };
        Ok(rows.into_iter().map(retention).collect())
    }

    async fn mailbox_delete(&mut self, project: ProjectId) -> Result<()> {
        let purged = mailboxes::project_id.eq(project).and(mailboxes::purged_at.is_not_null());
        diesel::delete(mailboxes::table.filter(purged)).execute(self).await?;
        Ok(())
    }
}
