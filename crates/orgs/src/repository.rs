//! What organizations ask of storage.

use diesel::prelude::*;
use kernel::{AuditId, InviteId, NotificationId, OrgId, Paging, Plan, Provider, Role, Time, TokenHash, UserId};
use store::Result;

use crate::model::{AuditEvent, AuditFilter, Member, Notification, NotificationKind, Slug};
use crate::schema::{invites, orgs, people};

/// An organization as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = orgs)]
pub struct OrgRecord {
    pub id: OrgId,
    pub slug: Slug,
    pub name: String,
    pub plan: Plan,
    pub personal: bool,
    pub created_at: Time,
}

/// Somebody who has signed in, as this context may see them.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = people)]
pub struct Person {
    pub id: UserId,
    pub provider: Provider,
    pub subject: String,
    pub name: Option<String>,
    pub avatar_url: Option<String>,
}

/// An invitation as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = invites)]
pub struct InviteRecord {
    pub id: InviteId,
    pub org_id: OrgId,
    pub email: String,
    pub role: Role,
    pub token_hash: TokenHash,
    pub invited_by: UserId,
    pub created_at: Time,
    pub expires_at: Time,
    pub sent_at: Option<Time>,
    pub ended_at: Option<Time>,
    pub accepted_by: Option<UserId>,
}

/// The verbs of this context on a [`store::Connection`].
pub trait OrgRepository {
    /// Writes a new organization; false when its slug is taken.
    async fn org_insert(&mut self, org: &OrgRecord) -> Result<bool>;

    /// Locks the organization's row until the transaction ends and tells its plan.
    async fn org_lock(&mut self, org: OrgId) -> Result<Option<Plan>>;

    /// The organizations of a user, by id, and the user's role in each; of them `only` these, and all on one page
    /// without a paging.
    async fn org_list(
        &mut self,
        user: UserId,
        only: Option<&[OrgId]>,
        paging: Option<&Paging<OrgId>>,
    ) -> Result<Vec<(OrgRecord, Role)>>;

    /// Gives the organization another name, holding its row until the transaction ends; none when it has it already.
    async fn org_rename(&mut self, org: OrgId, name: &str) -> Result<Option<OrgRecord>>;

    /// The organization of this slug, when the user belongs to it.
    async fn org_of_member(&mut self, user: UserId, slug: &str) -> Result<Option<OrgId>>;

    /// One organization.
    async fn org_find(&mut self, org: OrgId) -> Result<Option<OrgRecord>>;

    /// The events of an organization that the filter lets through, newest first.
    async fn audit_list(
        &mut self,
        org: OrgId,
        filter: &AuditFilter,
        paging: &Paging<AuditId>,
    ) -> Result<Vec<AuditEvent>>;

    /// The members, by user id.
    async fn member_list(&mut self, org: OrgId, paging: &Paging<UserId>) -> Result<Vec<Member>>;

    /// One member.
    async fn member_find(&mut self, org: OrgId, user: UserId) -> Result<Option<Member>>;

    /// Writes a new member; false when the user is one already.
    async fn member_insert(&mut self, org: OrgId, user: UserId, role: Role, at: Time) -> Result<bool>;

    /// Gives a member another role.
    async fn member_set_role(&mut self, org: OrgId, user: UserId, role: Role) -> Result<()>;

    /// Removes a member.
    async fn member_delete(&mut self, org: OrgId, user: UserId) -> Result<()>;

    /// Admins other than `user`; meaningful under [`OrgRepository::org_lock`] alone.
    async fn member_other_admins(&mut self, org: OrgId, user: UserId) -> Result<i64>;

    /// What to call somebody.
    async fn person_name(&mut self, user: UserId) -> Result<String>;

    /// Who signed in as this.
    async fn person_find(&mut self, provider: Provider, subject: &str) -> Result<Option<Person>>;
}

/// Invitations on a [`store::Connection`]. Whatever changes one is done under [`OrgRepository::org_lock`].
pub trait InviteRepository {
    /// Writes an invitation: a new one, or another token, role and expiry for the one of its id.
    async fn invite_put(&mut self, invite: &InviteRecord) -> Result<()>;

    /// The open invitation of an address, whatever its case.
    async fn invite_open(&mut self, org: OrgId, email: &str) -> Result<Option<InviteRecord>>;

    /// The invitation that a token opens, with its organization.
    async fn invite_find(&mut self, token: TokenHash) -> Result<Option<(InviteRecord, OrgRecord)>>;

    /// The open invitations, newest first, expired ones too.
    async fn invite_list(&mut self, org: OrgId, paging: &Paging<InviteId>) -> Result<Vec<InviteRecord>>;

    /// Open invitations that have not expired, but for `except`.
    async fn invite_count(&mut self, org: OrgId, except: Option<InviteId>, at: Time) -> Result<i64>;

    /// Accepts the invitation of this token, if it is open and has not expired.
    async fn invite_accept(&mut self, invite: InviteId, token: TokenHash, by: UserId, at: Time) -> Result<bool>;

    /// Takes an open invitation back.
    async fn invite_revoke(&mut self, org: OrgId, invite: InviteId, at: Time) -> Result<bool>;

    /// Takes back the open invitations that somebody made, or sent last: which ones.
    async fn invite_revoke_of(&mut self, org: OrgId, by: UserId, at: Time) -> Result<Vec<InviteId>>;

    /// Notes that the mail with this token went out.
    async fn invite_sent(&mut self, invite: InviteId, token: TokenHash, at: Time) -> Result<()>;

    /// Forgets invitations of the organization that ended before this time: nobody may see them any more.
    async fn invite_forget(&mut self, org: OrgId, ended_before: Time) -> Result<()>;

    /// Whether a member has this address, whatever its case.
    async fn member_has_email(&mut self, org: OrgId, email: &str) -> Result<bool>;
}

/// Notifications on a [`store::Connection`].
pub trait NotificationRepository {
    /// Writes a notification.
    async fn notification_insert(&mut self, org: OrgId, notification: &Notification) -> Result<()>;

    /// Whether one of this kind about this project was raised at this time or later.
    async fn notification_raised(
        &mut self,
        org: OrgId,
        kind: NotificationKind,
        project: Option<&str>,
        since: Time,
    ) -> Result<bool>;

    /// The notifications, newest first.
    async fn notification_list(&mut self, org: OrgId, paging: &Paging<NotificationId>) -> Result<Vec<Notification>>;

    /// The newest notifications about a project.
    async fn notification_recent(&mut self, org: OrgId, project: &str, most: u16) -> Result<Vec<Notification>>;

    /// Notes that the first mail of it went out.
    async fn notification_sent(&mut self, notification: NotificationId, at: Time) -> Result<()>;

    /// The addresses of the admins who have one.
    async fn admin_emails(&mut self, org: OrgId) -> Result<Vec<String>>;
}
