//! Organizations, their members and their audit log.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::audit::Credential;
use kernel::{AuditId, OrgId, Paging, Plan, Provider, Role, Time, UserId};
use store::{Connection, Prepared, Result, any_of, newest_first};

use crate::model::{AuditEvent, AuditFilter, Member, Slug};
use crate::schema::{audit_events, members, orgs, user_profiles};

/// A stored organization.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = orgs)]
pub struct OrgRecord {
    pub id: OrgId,
    pub slug: Slug,
    pub name: String,
    pub plan: Plan,
    pub personal: bool,
    pub created_at: Time,
    /// `None` after the user was deleted.
    pub created_by: Option<UserId>,
}

/// A user, with the columns that this context may read.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = user_profiles)]
pub struct Person {
    pub id: UserId,
    pub provider: Provider,
    pub subject: String,
    pub name: Option<String>,
    pub avatar_url: Option<String>,
}

/// The log that shows an audit event.
#[derive(Debug, Clone, Copy)]
pub enum AuditLog {
    /// The log of an organization.
    Org(OrgId),
    /// The log of a user's own account.
    Account(UserId),
}

/// Organizations, their members and their audit log on a [`store::Connection`].
pub trait OrgRepository {
    /// Inserts an organization. Returns false if the slug is taken.
    async fn org_insert(&mut self, org: &OrgRecord) -> Result<bool>;

    /// Locks the creation of organizations by a user, until the transaction ends.
    async fn org_lock_creation(&mut self, by: UserId) -> Result<()>;

    /// Counts the organizations that a user created, without the personal one. The result is reliable only under
    /// [`Self::org_lock_creation`].
    async fn org_count_created(&mut self, by: UserId) -> Result<i64>;

    /// Locks the organization's row until the transaction ends, and returns its plan.
    async fn org_lock(&mut self, org: OrgId) -> Result<Option<Plan>>;

    /// Sets the plan of a locked organization, and the time until which the retention of the pro plan applies.
    async fn org_set_plan(&mut self, org: OrgId, plan: Plan, pro_retention_until: Option<Time>) -> Result<()>;

    /// Returns the organizations of a user and the user's roles, sorted by id. `only` restricts the listing to these
    /// organizations. Without `paging`, it returns all of them.
    async fn org_list(
        &mut self,
        user: UserId,
        only: Option<&[OrgId]>,
        paging: Option<&Paging<OrgId>>,
    ) -> Result<Vec<(OrgRecord, Role)>>;

    /// Renames the organization and locks its row. Returns `None` if it already has the name.
    async fn org_rename(&mut self, org: OrgId, name: &str) -> Result<Option<OrgRecord>>;

    /// Returns the organization with this slug if the user is a member.
    async fn org_find_for_member(&mut self, user: UserId, slug: &str) -> Result<Option<OrgId>>;

    /// Returns the organization with this slug.
    async fn org_find_by_slug(&mut self, slug: &str) -> Result<Option<OrgId>>;

    /// Returns an organization.
    async fn org_find(&mut self, org: OrgId) -> Result<Option<OrgRecord>>;

    /// Returns the audit events of a log that match the filter, newest first.
    async fn audit_list(
        &self,
        log: AuditLog,
        filter: &AuditFilter,
        paging: &Paging<AuditId>,
    ) -> Result<Vec<AuditEvent>>;

    /// Returns the members, sorted by user id.
    async fn member_list(&self, org: OrgId, paging: &Paging<UserId>) -> Result<Vec<Member>>;

    /// Returns a member.
    async fn member_find(&mut self, org: OrgId, user: UserId) -> Result<Option<Member>>;

    /// Inserts a member. Returns false if the user is already a member.
    async fn member_insert(&mut self, org: OrgId, user: UserId, role: Role, at: Time) -> Result<bool>;

    /// Changes a member's role.
    async fn member_set_role(&mut self, org: OrgId, user: UserId, role: Role) -> Result<()>;

    /// Removes a member.
    async fn member_delete(&mut self, org: OrgId, user: UserId) -> Result<()>;

    /// Counts the admins other than `user`. The result is reliable only under [`OrgRepository::org_lock`].
    async fn member_count_other_admins(&mut self, org: OrgId, user: UserId) -> Result<i64>;

    /// Returns the user's name, or the subject of a user without a name.
    async fn person_display_name(&mut self, user: UserId) -> Result<String>;

    /// Returns the user with this provider and subject.
    async fn person_find(&mut self, provider: Provider, subject: &str) -> Result<Option<Person>>;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = members)]
struct MemberRow {
    role: Role,
    joined_at: Time,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = audit_events)]
struct AuditRow {
    id: AuditId,
    event: String,
    actor_id: Option<UserId>,
    actor_subject: Option<String>,
    credential: String,
    target: String,
    data: serde_json::Value,
    request_id: String,
    created_at: Time,
}

impl OrgRepository for Connection {
    async fn org_insert(&mut self, org: &OrgRecord) -> Result<bool> {
        let insert = diesel::insert_into(orgs::table).values(org).on_conflict(orgs::slug).do_nothing();
        Ok(Prepared(insert).execute(self).await? == 1)
    }

    async fn org_lock_creation(&mut self, by: UserId) -> Result<()> {
        super::lock_activity(self, "orgs.orgs", by).await
    }

    async fn org_count_created(&mut self, by: UserId) -> Result<i64> {
        let created = orgs::table.filter(orgs::created_by.eq(by).and(orgs::personal.eq(false)));
        Ok(created.count().get_result(self).await?)
    }

    async fn org_lock(&mut self, org: OrgId) -> Result<Option<Plan>> {
        Ok(orgs::table.find(org).select(orgs::plan).for_no_key_update().first(self).await.optional()?)
    }

    async fn org_set_plan(&mut self, org: OrgId, plan: Plan, pro_retention_until: Option<Time>) -> Result<()> {
        let set = (orgs::plan.eq(plan), orgs::pro_retention_until.eq(pro_retention_until));
        diesel::update(orgs::table.find(org)).set(set).execute(self).await?;
        Ok(())
    }

    async fn org_list(
        &mut self,
        user: UserId,
        only: Option<&[OrgId]>,
        paging: Option<&Paging<OrgId>>,
    ) -> Result<Vec<(OrgRecord, Role)>> {
        let mut query = members::table
            .inner_join(orgs::table)
            .filter(members::user_id.eq_any(any_of(user)))
            .select((OrgRecord::as_select(), members::role))
            .order((members::user_id, members::org_id))
            .into_boxed();
        if let Some(only) = only {
            query = query.filter(members::org_id.eq_any(only));
        }
        if let Some(paging) = paging {
            query = query.limit(paging.fetch());
            if let Some(after) = paging.after {
                query = query.filter(members::org_id.gt(after));
            }
        }
        Ok(query.load(self).await?)
    }

    async fn org_rename(&mut self, org: OrgId, name: &str) -> Result<Option<OrgRecord>> {
        let update = diesel::update(orgs::table.find(org).filter(orgs::name.ne(name)))
            .set(orgs::name.eq(name))
            .returning(OrgRecord::as_returning());
        Ok(update.get_result(self).await.optional()?)
    }

    async fn org_find_for_member(&mut self, user: UserId, slug: &str) -> Result<Option<OrgId>> {
        let own = members::table.inner_join(orgs::table).filter(members::user_id.eq(user).and(orgs::slug.eq(slug)));
        Ok(own.select(orgs::id).first(self).await.optional()?)
    }

    async fn org_find_by_slug(&mut self, slug: &str) -> Result<Option<OrgId>> {
        Ok(orgs::table.filter(orgs::slug.eq(slug)).select(orgs::id).first(self).await.optional()?)
    }

    async fn org_find(&mut self, org: OrgId) -> Result<Option<OrgRecord>> {
        Ok(orgs::table.find(org).select(OrgRecord::as_select()).first(self).await.optional()?)
    }

    async fn audit_list(
        &self,
        log: AuditLog,
        filter: &AuditFilter,
        paging: &Paging<AuditId>,
    ) -> Result<Vec<AuditEvent>> {
        let all = audit_events::table.select(AuditRow::as_select());
        let mut query = match log {
            AuditLog::Org(org) => newest_first!(all, audit_events::org_id = org, audit_events::id, paging),
            AuditLog::Account(user) => newest_first!(all, audit_events::account_id = user, audit_events::id, paging),
        };
        if let Some(event) = &filter.event {
            query = query.filter(audit_events::event.eq(event));
        }
        if let Some(actor) = filter.actor {
            query = query.filter(audit_events::actor_id.eq(actor));
        }
        // Ids begin with their time, so a time range is a range of the index that serves the page.
        if let Some(since) = filter.since {
            query = query.filter(audit_events::id.ge(AuditId::earliest_at(since)));
        }
        if let Some(until) = filter.until {
            query = query.filter(audit_events::id.lt(AuditId::earliest_at(until)));
        }
        Ok(query.load::<AuditRow>(&mut &*self).await?.into_iter().map(AuditEvent::from).collect())
    }

    async fn member_list(&self, org: OrgId, paging: &Paging<UserId>) -> Result<Vec<Member>> {
        let mut query = members::table
            .inner_join(user_profiles::table.on(user_profiles::id.eq(members::user_id)))
            .filter(members::org_id.eq_any(any_of(org)))
            .select((Person::as_select(), MemberRow::as_select()))
            .order((members::org_id, members::user_id))
            .limit(paging.fetch())
            .into_boxed();
        if let Some(after) = paging.after {
            query = query.filter(members::user_id.gt(after));
        }
        Ok(query.load::<(Person, MemberRow)>(&mut &*self).await?.into_iter().map(Member::from).collect())
    }

    async fn member_find(&mut self, org: OrgId, user: UserId) -> Result<Option<Member>> {
        let found = members::table
            .inner_join(user_profiles::table.on(user_profiles::id.eq(members::user_id)))
            .filter(members::org_id.eq(org).and(members::user_id.eq(user)))
            .select((Person::as_select(), MemberRow::as_select()))
            .first::<(Person, MemberRow)>(self)
            .await
            .optional()?;
        Ok(found.map(Member::from))
    }

    async fn member_insert(&mut self, org: OrgId, user: UserId, role: Role, at: Time) -> Result<bool> {
        let row =
            (members::org_id.eq(org), members::user_id.eq(user), members::role.eq(role), members::joined_at.eq(at));
        let insert = diesel::insert_into(members::table).values(row).on_conflict_do_nothing();
        Ok(Prepared(insert).execute(self).await? == 1)
    }

    async fn member_set_role(&mut self, org: OrgId, user: UserId, role: Role) -> Result<()> {
        let update = diesel::update(members::table.find((org, user))).set(members::role.eq(role));
        Prepared(update).execute(self).await?;
        Ok(())
    }

    async fn member_delete(&mut self, org: OrgId, user: UserId) -> Result<()> {
        diesel::delete(members::table.find((org, user))).execute(self).await?;
        Ok(())
    }

    async fn member_count_other_admins(&mut self, org: OrgId, user: UserId) -> Result<i64> {
        let others = members::table
            .filter(members::org_id.eq(org).and(members::role.eq(Role::Admin)).and(members::user_id.ne(user)))
            .count();
        Ok(others.get_result(self).await?)
    }

    async fn person_display_name(&mut self, user: UserId) -> Result<String> {
        let (name, subject): (Option<String>, String) =
            user_profiles::table.find(user).select((user_profiles::name, user_profiles::subject)).first(self).await?;
        Ok(name.unwrap_or(subject))
    }

    async fn person_find(&mut self, provider: Provider, subject: &str) -> Result<Option<Person>> {
        let found = user_profiles::table
            .filter(user_profiles::provider.eq(provider).and(user_profiles::subject.eq(subject)))
            .select(Person::as_select())
            .first(self)
            .await
            .optional()?;
        Ok(found)
    }
}

impl From<(Person, MemberRow)> for Member {
    fn from((person, member): (Person, MemberRow)) -> Self {
        Self::new(person, member.role, member.joined_at)
    }
}

impl From<AuditRow> for AuditEvent {
    fn from(row: AuditRow) -> Self {
        let AuditRow { id, event, actor_id, actor_subject, credential, target, data, request_id, created_at } = row;
        let (name, credential) = match credential.as_str() {
            Credential::OPERATOR => (Some("operator".to_owned()), None),
            Credential::SERVICE if actor_id.is_none() => (Some("system".to_owned()), None),
            Credential::SERVICE | Credential::NONE => (actor_subject, None),
            _ => (actor_subject, Some(credential)),
        };
        Self { id, event, actor: actor_id, actor_name: name, credential, target, data, request_id, created_at }
    }
}
