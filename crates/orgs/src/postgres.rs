//! The repository on Postgres.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{OrgId, Paging, Plan, Provider, Role, Time, UserId};
use store::{Cached, Connection, Result};

use crate::model::{Member, Slug};
use crate::repository::{OrgRecord, OrgRepository, Person};
use crate::schema::{members, orgs, people};

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = orgs)]
struct OrgRow {
    id: OrgId,
    slug: Slug,
    name: String,
    plan: Plan,
    personal: bool,
    created_at: Time,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = people)]
struct PersonRow {
    id: UserId,
    provider: Provider,
    subject: String,
    name: Option<String>,
    avatar_url: Option<String>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = members)]
struct MemberRow {
    role: Role,
    joined_at: Time,
}

impl OrgRepository for Connection {
    async fn org_insert(&mut self, org: &OrgRecord) -> Result<bool> {
        let row = OrgRow::from(org.clone());
        let insert = diesel::insert_into(orgs::table)
            .values(row)
            .on_conflict(orgs::slug)
            .do_nothing();
        Ok(Cached(insert).execute(self).await? == 1)
    }

    async fn org_lock(&mut self, org: OrgId) -> Result<Option<Plan>> {
        Ok(orgs::table
            .find(org)
            .select(orgs::plan)
            .for_update()
            .first(self)
            .await
            .optional()?)
    }

    async fn org_list(&mut self, user: UserId, paging: Option<&Paging<OrgId>>) -> Result<Vec<(OrgRecord, Role)>> {
        let mut query = members::table
            .inner_join(orgs::table)
            .filter(members::user_id.eq(user))
            .select((OrgRow::as_select(), members::role))
            .order(members::org_id)
            .into_boxed();
        if let Some(paging) = paging {
            query = query.limit(paging.fetch());
            if let Some(after) = paging.after {
                query = query.filter(members::org_id.gt(after));
            }
        }
        let rows = query.load::<(OrgRow, Role)>(self).await?;
        Ok(rows.into_iter().map(|(org, role)| (org.into(), role)).collect())
    }

    async fn member_list(&mut self, org: OrgId, paging: &Paging<UserId>) -> Result<Vec<Member>> {
        let mut query = members::table
            .inner_join(people::table.on(people::id.eq(members::user_id)))
            .filter(members::org_id.eq(org))
            .select((PersonRow::as_select(), MemberRow::as_select()))
            .order(members::user_id)
            .limit(paging.fetch())
            .into_boxed();
        if let Some(after) = paging.after {
            query = query.filter(members::user_id.gt(after));
        }
        Ok(query
            .load::<(PersonRow, MemberRow)>(self)
            .await?
            .into_iter()
            .map(Member::from)
            .collect())
    }

    async fn member_find(&mut self, org: OrgId, user: UserId) -> Result<Option<Member>> {
        let found = members::table
            .inner_join(people::table.on(people::id.eq(members::user_id)))
            .filter(members::org_id.eq(org).and(members::user_id.eq(user)))
            .select((PersonRow::as_select(), MemberRow::as_select()))
            .first::<(PersonRow, MemberRow)>(self)
            .await
            .optional()?;
        Ok(found.map(Member::from))
    }

    async fn member_insert(&mut self, org: OrgId, user: UserId, role: Role, at: Time) -> Result<bool> {
        let row = (
            members::org_id.eq(org),
            members::user_id.eq(user),
            members::role.eq(role),
            members::joined_at.eq(at),
        );
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
            .filter(
                members::org_id
                    .eq(org)
                    .and(members::role.eq(Role::Admin))
                    .and(members::user_id.ne(user)),
            )
            .count();
        Ok(others.get_result(self).await?)
    }

    async fn person_find(&mut self, provider: Provider, subject: &str) -> Result<Option<Person>> {
        let found = people::table
            .filter(people::provider.eq(provider).and(people::subject.eq(subject)))
            .select(PersonRow::as_select())
            .first(self)
            .await
            .optional()?;
        Ok(found.map(Person::from))
    }
}

impl From<OrgRow> for OrgRecord {
    fn from(row: OrgRow) -> Self {
        let OrgRow {
            id,
            slug,
            name,
            plan,
            personal,
            created_at,
        } = row;
        Self {
            id,
            slug,
            name,
            plan,
            personal,
            created_at,
        }
    }
}

impl From<OrgRecord> for OrgRow {
    fn from(org: OrgRecord) -> Self {
        let OrgRecord {
            id,
            slug,
            name,
            plan,
            personal,
            created_at,
        } = org;
        Self {
            id,
            slug,
            name,
            plan,
            personal,
            created_at,
        }
    }
}

impl From<PersonRow> for Person {
    fn from(row: PersonRow) -> Self {
        let PersonRow {
            id,
            provider,
            subject,
            name,
            avatar_url,
        } = row;
        Self {
            id,
            provider,
            subject,
            name,
            avatar_url,
        }
    }
}

impl From<(PersonRow, MemberRow)> for Member {
    fn from((person, member): (PersonRow, MemberRow)) -> Self {
        Self::new(person.into(), member.role, member.joined_at)
    }
}
