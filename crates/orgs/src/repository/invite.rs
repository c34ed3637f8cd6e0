//! Invitations.

use diesel::dsl::exists;
use diesel::prelude::*;
use diesel::query_builder::AsQuery as _;
use diesel::sql_types::Text;
use diesel::upsert::excluded;
use diesel_async::RunQueryDsl;
use kernel::{InviteId, OrgId, Paging, Role, Time, TokenHash, UserId};
use store::{Cached, Connection, Result, newest_first};

use super::org::OrgRecord;
use crate::schema::{invites, members, orgs, people};

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

/// Invitations on a [`store::Connection`]. Whatever changes one is done under [`crate::OrgRepository::org_lock`].
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
