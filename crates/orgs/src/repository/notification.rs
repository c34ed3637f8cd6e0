//! Notifications.

use diesel::dsl::exists;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{NotificationId, OrgId, Paging, ProjectId, Role, Time, UserId};
use store::{Connection, Prepared, Result, any_of, newest_first};

use crate::model::{Notification, NotificationKind};
use crate::schema::{members, notifications, user_profiles};

/// Notifications on a [`store::Connection`].
pub trait NotificationRepository {
    /// Inserts a notification about a project, or about the whole organization.
    async fn notification_insert(
        &mut self,
        org: OrgId,
        project: Option<ProjectId>,
        notification: &Notification,
    ) -> Result<()>;

    /// Returns whether this kind was raised for this project at this time or later.
    async fn notification_exists_since(
        &mut self,
        org: OrgId,
        kind: NotificationKind,
        project: Option<ProjectId>,
        since: Time,
    ) -> Result<bool>;

    /// Returns the notifications, newest first.
    async fn notification_list(&mut self, org: OrgId, paging: &Paging<NotificationId>) -> Result<Vec<Notification>>;

    /// Returns the newest notifications of a project.
    async fn notification_recent(&mut self, org: OrgId, project: ProjectId, limit: u16) -> Result<Vec<Notification>>;

    /// Stores the time at which the first mail was sent.
    async fn notification_mark_sent(&mut self, notification: NotificationId, at: Time) -> Result<()>;

    /// Returns the admins who have an address, and their addresses.
    async fn admin_emails(&mut self, org: OrgId) -> Result<Vec<(UserId, String)>>;

    /// Returns whether the user is an admin with this address.
    async fn admin_has_email(&mut self, org: OrgId, user: UserId, email: &str) -> Result<bool>;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = notifications)]
struct NotificationRow {
    id: NotificationId,
    kind: NotificationKind,
    project: Option<String>,
    title: String,
    message: String,
    created_at: Time,
    sent_at: Option<Time>,
}

impl NotificationRepository for Connection {
    async fn notification_insert(
        &mut self,
        org: OrgId,
        project: Option<ProjectId>,
        notification: &Notification,
    ) -> Result<()> {
        let row = (
            notifications::id.eq(notification.id),
            notifications::org_id.eq(org),
            notifications::kind.eq(notification.kind),
            notifications::project_id.eq(project),
            notifications::project.eq(notification.project.as_deref()),
            notifications::title.eq(&notification.title),
            notifications::message.eq(&notification.message),
            notifications::created_at.eq(notification.created_at),
        );
        diesel::insert_into(notifications::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn notification_exists_since(
        &mut self,
        org: OrgId,
        kind: NotificationKind,
        project: Option<ProjectId>,
        since: Time,
    ) -> Result<bool> {
        let same = notifications::table.filter(
            notifications::org_id
                .eq(org)
                .and(notifications::kind.eq(kind))
                .and(notifications::project_id.is_not_distinct_from(project))
                .and(notifications::id.ge(NotificationId::earliest_at(since))),
        );
        Ok(diesel::select(exists(same)).get_result(self).await?)
    }

    async fn notification_list(&mut self, org: OrgId, paging: &Paging<NotificationId>) -> Result<Vec<Notification>> {
        let all = notifications::table.select(NotificationRow::as_select());
        let page = newest_first!(all, notifications::org_id = org, notifications::id, paging);
        Ok(page.load::<NotificationRow>(self).await?.into_iter().map(Notification::from).collect())
    }

    async fn notification_recent(&mut self, org: OrgId, project: ProjectId, limit: u16) -> Result<Vec<Notification>> {
        let query = notifications::table
            .filter(notifications::org_id.eq_any(any_of(org)).and(notifications::project_id.eq(project)))
            .order((notifications::org_id.desc(), notifications::id.desc()))
            .limit(limit.into())
            .select(NotificationRow::as_select());
        Ok(query.load::<NotificationRow>(self).await?.into_iter().map(Notification::from).collect())
    }

    async fn notification_mark_sent(&mut self, notification: NotificationId, at: Time) -> Result<()> {
        let first = notifications::table.find(notification).filter(notifications::sent_at.is_null());
        Prepared(diesel::update(first).set(notifications::sent_at.eq(at))).execute(self).await?;
        Ok(())
    }

    async fn admin_emails(&mut self, org: OrgId) -> Result<Vec<(UserId, String)>> {
        let admins = members::table
            .inner_join(user_profiles::table.on(user_profiles::id.eq(members::user_id)))
            .filter(members::org_id.eq(org).and(members::role.eq(Role::Admin)).and(user_profiles::email.is_not_null()))
            .select((members::user_id, user_profiles::email.assume_not_null()))
            .order(members::user_id);
        Ok(admins.load(self).await?)
    }

    async fn admin_has_email(&mut self, org: OrgId, user: UserId, email: &str) -> Result<bool> {
        let admin = members::table
            .inner_join(user_profiles::table.on(user_profiles::id.eq(members::user_id)))
            .filter(members::org_id.eq(org).and(members::user_id.eq(user)).and(members::role.eq(Role::Admin)))
            .filter(user_profiles::email.eq(email))
            .select(members::user_id);
        Ok(diesel::select(exists(admin)).get_result(self).await?)
    }
}

impl From<NotificationRow> for Notification {
    fn from(row: NotificationRow) -> Self {
        let NotificationRow { id, kind, project, title, message, created_at, sent_at } = row;
        Self { id, kind, project, title, message, created_at, sent_at }
    }
}
