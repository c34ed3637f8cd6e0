//! What organizations ask of storage.

use diesel::prelude::*;
use kernel::{AuditId, OrgId, Paging, Plan, Provider, Role, Time, UserId};
use store::Result;

use crate::model::{AuditEvent, AuditFilter, Member, Slug};
use crate::schema::{orgs, people};

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

/// The verbs of this context on a [`store::Connection`].
pub trait OrgRepository {
    /// Writes a new organization; false when its slug is taken.
    async fn org_insert(&mut self, org: &OrgRecord) -> Result<bool>;

    /// Locks the organization's row until the transaction ends and tells its plan.
    async fn org_lock(&mut self, org: OrgId) -> Result<Option<Plan>>;

    /// The organizations of a user, by id, and the user's role in each; all of them without a paging.
    async fn org_list(&mut self, user: UserId, paging: Option<&Paging<OrgId>>) -> Result<Vec<(OrgRecord, Role)>>;

    /// Gives the organization another name, holding its row until the transaction ends; none when it has it already.
    async fn org_rename(&mut self, org: OrgId, name: &str) -> Result<Option<OrgRecord>>;

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

    /// Who signed in as this.
    async fn person_find(&mut self, provider: Provider, subject: &str) -> Result<Option<Person>>;
}
