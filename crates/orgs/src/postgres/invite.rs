//! Invitations on Postgres.

use diesel::dsl::exists;
use diesel::prelude::*;
use diesel::query_builder::AsQuery as _;
use diesel::sql_types::Text;
use diesel::upsert::excluded;
use diesel_async::RunQueryDsl;
use kernel::{InviteId, OrgId, Paging, Time, TokenHash, UserId};
use store::{Cached, Connection, Result, newest_first};

use crate::repository::{InviteRecord, InviteRepository, OrgRecord};
use crate::schema::{invites, members, orgs, people};

#[diesel::declare_sql_function]
extern "SQL" {
    /// The text in lower case: how addresses are compared.
    fn lower(text: Text) -> Text;
    /// The same of a text that may be missing.
    #[sql_name = "lower"]
    fn lower_nullable(text: diesel::sql_types::Nullable<Text>) -> diesel::sql_types::Nullable<Text>;
}

impl InviteRepository for Connection {
    async fn invite_put(&mut self, invite: &InviteRecord) -> Result<()> {
        let put = diesel::insert_into(invites::table).values(invite).on_conflict(invites::id).do_update().set((
            invites::email.eq(excluded(invites::email)),
            invites::role.eq(excluded(invites::role)),
            invites::token_hash.eq(excluded(invites::token_hash)),
            invites::invited_by.eq(excluded(invites::invited_by)),
            invites::expires_at.eq(excluded(invites::expires_at)),
            invites::sent_at.eq(excluded(invites::sent_at)),
        ));
        Cached(put).execute(self).await?;
        Ok(())
    }

    async fn invite_open(&mut self, org: OrgId, email: &str) -> Result<Option<InviteRecord>> {
        let open = invites::org_id.eq(org).and(invites::ended_at.is_null());
        let found = invites::table
            .filter(open.and(lower(invites::email).eq(lower(email))))
            .select(InviteRecord::as_select())
            .first(self)
            .await;
        Ok(found.optional()?)
    }

    async fn invite_find(&mut self, token: TokenHash) -> Result<Option<(InviteRecord, OrgRecord)>> {
        let found = invites::table
            .inner_join(orgs::table)
            .filter(invites::token_hash.eq(token))
            .select((InviteRecord::as_select(), OrgRecord::as_select()))
            .first(self)
            .await;
        Ok(found.optional()?)
    }

    async fn invite_list(&mut self, org: OrgId, paging: &Paging<InviteId>) -> Result<Vec<InviteRecord>> {
        let open = invites::table.filter(invites::ended_at.is_null()).select(InviteRecord::as_select());
        Ok(newest_first!(open, invites::org_id = org, invites::id, paging).load(self).await?)
    }

    async fn invite_count(&mut self, org: OrgId, except: Option<InviteId>, at: Time) -> Result<i64> {
        let mut pending = invites::table
            .filter(invites::org_id.eq(org).and(invites::ended_at.is_null()).and(invites::expires_at.gt(at)))
            .count()
            .into_boxed();
        if let Some(except) = except {
            pending = pending.filter(invites::id.ne(except));
        }
        Ok(pending.get_result(self).await?)
    }

    async fn invite_accept(&mut self, invite: InviteId, token: TokenHash, by: UserId, at: Time) -> Result<bool> {
        let open = invites::token_hash.eq(token).and(invites::ended_at.is_null()).and(invites::expires_at.gt(at));
        let accept = diesel::update(invites::table.find(invite).filter(open))
            .set((invites::ended_at.eq(at), invites::accepted_by.eq(by)));
        Ok(Cached(accept).execute(self).await? == 1)
    }

    async fn invite_revoke(&mut self, org: OrgId, invite: InviteId, at: Time) -> Result<bool> {
        let open = invites::org_id.eq(org).and(invites::ended_at.is_null());
        let revoke = diesel::update(invites::table.find(invite).filter(open)).set(invites::ended_at.eq(at));
        Ok(Cached(revoke).execute(self).await? == 1)
    }

    async fn invite_revoke_of(&mut self, org: OrgId, by: UserId, at: Time) -> Result<Vec<InviteId>> {
        let open = invites::org_id.eq(org).and(invites::invited_by.eq(by)).and(invites::ended_at.is_null());
        let revoke = diesel::update(invites::table.filter(open)).set(invites::ended_at.eq(at)).returning(invites::id);
        Ok(Cached(revoke.as_query()).load(self).await?)
    }

    async fn invite_sent(&mut self, invite: InviteId, token: TokenHash, at: Time) -> Result<()> {
        let same = invites::table.find(invite).filter(invites::token_hash.eq(token));
        Cached(diesel::update(same).set(invites::sent_at.eq(at))).execute(self).await?;
        Ok(())
    }

    async fn invite_forget(&mut self, org: OrgId, ended_before: Time) -> Result<()> {
        let old = invites::table.filter(invites::org_id.eq(org).and(invites::ended_at.lt(ended_before)));
        diesel::delete(old).execute(self).await?;
        Ok(())
    }

    async fn member_has_email(&mut self, org: OrgId, email: &str) -> Result<bool> {
        let theirs = members::table
            .inner_join(people::table.on(people::id.eq(members::user_id)))
            .filter(members::org_id.eq(org).and(lower_nullable(people::email).eq(lower(email).nullable())));
        Ok(diesel::select(exists(theirs)).get_result(self).await?)
    }
}
