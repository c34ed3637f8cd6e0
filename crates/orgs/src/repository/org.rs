//! Organizations, their members and their audit log.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::audit::Credential;
use kernel::{AuditId, OrgId, Paging, Plan, Provider, Role, Time, UserId};
use store::{Cached, Connection, Result, newest_first, of};

use crate::model::{AuditEvent, AuditFilter, Member, Slug};
use crate::schema::{audit, members, orgs, people};

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

/// Organizations, their members and their audit log on a [`store::Connection`].
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

#[derive(Queryable, Selectable)]
#[diesel(table_name = members)]
struct MemberRow {
    role: Role,
    joined_at: Time,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = audit)]
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
        Ok(Cached(insert).execute(self).await? == 1)
    }

    async fn org_lock(&mut self, org: OrgId) -> Result<Option<Plan>> {
        Ok(orgs::table.find(org).select(orgs::plan).for_update().first(self).await.optional()?)
    }

    async fn org_list(
        &mut self,
        user: UserId,
        only: Option<&[OrgId]>,
        paging: Option<&Paging<OrgId>>,
    ) -> Result<Vec<(OrgRecord, Role)>> {
        let mut query = members::table
            .inner_join(orgs::table)
            .filter(members::user_id.eq_any(of(user)))
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

    async fn org_of_member(&mut self, user: UserId, slug: &str) -> Result<Option<OrgId>> {
        let own = members::table.inner_join(orgs::table).filter(members::user_id.eq(user).and(orgs::slug.eq(slug)));
        Ok(own.select(orgs::id).first(self).await.optional()?)
    }

    async fn org_find(&mut self, org: OrgId) -> Result<Option<OrgRecord>> {
        Ok(orgs::table.find(org).select(OrgRecord::as_select()).first(self).await.optional()?)
    }

    async fn audit_list(
        &mut self,
        org: OrgId,
        filter: &AuditFilter,
        paging: &Paging<AuditId>,
    ) -> Result<Vec<AuditEvent>> {
        let all = audit::table.select(AuditRow::as_select());
        let mut query = newest_first!(all, audit::org_id = org, audit::id, paging);
        if let Some(event) = &filter.event {
            query = query.filter(audit::event.eq(event));
        }
        if let Some(actor) = filter.actor {
            query = query.filter(audit::actor_id.eq(actor));
        }
        // Ids begin with their time, so a span of time is a span of the index that the page is read from.
        if let Some(since) = filter.since {
            query = query.filter(audit::id.ge(AuditId::earliest_at(since)));
        }
        if let Some(until) = filter.until {
            query = query.filter(audit::id.lt(AuditId::earliest_at(until)));
        }
        Ok(query.load::<AuditRow>(self).await?.into_iter().map(AuditEvent::from).collect())
    }

    async fn member_list(&mut self, org: OrgId, paging: &Paging<UserId>) -> Result<Vec<Member>> {
        let mut query = members::table
            .inner_join(people::table.on(people::id.eq(members::user_id)))
            .filter(members::org_id.eq_any(of(org)))
            .select((Person::as_select(), MemberRow::as_select()))
            .order((members::org_id, members::user_id))
            .limit(paging.fetch())
            .into_boxed();
        if let Some(after) = paging.after {
            query = query.filter(members::user_id.gt(after));
        }
        Ok(query.load::<(Person, MemberRow)>(self).await?.into_iter().map(Member::from).collect())
    }

    async fn member_find(&mut self, org: OrgId, user: UserId) -> Result<Option<Member>> {
        let found = members::table
            .inner_join(people::table.on(people::id.eq(members::user_id)))
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
        Ok(Cached(insert).execute(self).await? == 1)
    }

    async fn member_set_role(&mut self, org: OrgId, user: UserId, role: Role) -> Result<()> {
        let update = diesel::update(members::table.find((org, user))).set(members::role.eq(role));
        Cached(update).execute(self).await?;
        Ok(())
    }

    async fn member_delete(&mut self, org: OrgId, user: UserId) -> Result<()> {
        diesel::delete(members::table.find((org, user))).execute(self).await?;
        Ok(())
    }

    async fn member_other_admins(&mut self, org: OrgId, user: UserId) -> Result<i64> {
        let others = members::table
            .filter(members::org_id.eq(org).and(members::role.eq(Role::Admin)).and(members::user_id.ne(user)))
            .count();
        Ok(others.get_result(self).await?)
    }

    async fn person_name(&mut self, user: UserId) -> Result<String> {
        let (name, subject): (Option<String>, String) =
            people::table.find(user).select((people::name, people::subject)).first(self).await?;
        Ok(name.unwrap_or(subject))
    }

    async fn person_find(&mut self, provider: Provider, subject: &str) -> Result<Option<Person>> {
        let found = people::table
            .filter(people::provider.eq(provider).and(people::subject.eq(subject)))
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
            Credential::SERVICE => (Some("system".to_owned()), None),
            Credential::NONE => (actor_subject, None),
            _ => (actor_subject, Some(credential)),
        };
        Self { id, event, actor: actor_id, actor_name: name, credential, target, data, request_id, created_at }
    }
}
