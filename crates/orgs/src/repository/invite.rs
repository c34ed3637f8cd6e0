//! Invitations.

use diesel::dsl::exists;
use diesel::prelude::*;
use diesel::query_builder::AsQuery as _;
use diesel::sql_types::{BigInt, Text, Timestamptz, Uuid};
use diesel::upsert::excluded;
use diesel_async::RunQueryDsl;
use kernel::{InviteId, OrgId, Paging, Role, Time, TokenHash, UserId};
use store::{BATCH_SIZE, Connection, Prepared, Result, newest_first};

use super::org::OrgRecord;
use crate::schema::{invites, members, orgs, user_profiles};

/// A stored invitation.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = invites)]
pub struct InviteRecord {
    pub id: InviteId,
    pub org_id: OrgId,
    pub email: String,
    pub role: Role,
    /// The hash of the token in the last response that contained a link.
    pub token_hash: TokenHash,
    /// The hash of the token in the newest mail, if there is one. The token stays valid if a later request creates a
    /// new link but sends no mail.
    pub mailed_token_hash: Option<TokenHash>,
    /// The admin who queued the newest mail, and so knows its token.
    pub mailed_by: Option<UserId>,
    pub invited_by: UserId,
    pub created_at: Time,
    pub expires_at: Time,
    pub sent_at: Option<Time>,
    pub ended_at: Option<Time>,
    pub accepted_by: Option<UserId>,
}

/// Invitations on a [`store::Connection`]. Callers take [`crate::OrgRepository::org_lock`] before they change one,
/// except for `invite_mark_sent`, which compares the token.
pub trait InviteRepository {
    /// Inserts an invitation, or updates the one with the same id.
    async fn invite_upsert(&mut self, invite: &InviteRecord) -> Result<()>;

    /// Returns the open invitation of an address, and locks its row. Ignores case.
    async fn invite_find_open(&mut self, org: OrgId, email: &str) -> Result<Option<InviteRecord>>;

    /// Returns the invitation with this token, and its organization. The token may be the one of a response or of a
    /// mail.
    async fn invite_find_by_token(&mut self, token: TokenHash) -> Result<Option<(InviteRecord, OrgRecord)>>;

    /// Returns the open invitations, including expired ones, newest first.
    async fn invite_list(&mut self, org: OrgId, paging: &Paging<InviteId>) -> Result<Vec<InviteRecord>>;

    /// Counts the open, unexpired invitations other than `except`.
    async fn invite_count_pending(&mut self, org: OrgId, except: Option<InviteId>, at: Time) -> Result<i64>;

    /// Accepts the invitation if it has this token, is open and has not expired. Returns whether the invitation was
    /// accepted.
    async fn invite_accept(&mut self, invite: InviteId, token: TokenHash, by: UserId, at: Time) -> Result<bool>;

    /// Revokes an open invitation. Returns false if there is no such invitation.
    async fn invite_revoke(&mut self, org: OrgId, invite: InviteId, at: Time) -> Result<bool>;

    /// Revokes the open invitations whose link this user knows: those that the user sent, and the one to the user's
    /// address. Returns their ids.
    async fn invite_revoke_known(&mut self, org: OrgId, user: UserId, at: Time) -> Result<Vec<InviteId>>;

    /// Stores the time at which the mail with this token was sent.
    async fn invite_mark_sent(&mut self, invite: InviteId, token: TokenHash, at: Time) -> Result<()>;

    /// Purges a batch of the organization's invitations that ended before this time.
    async fn invite_purge(&mut self, org: OrgId, ended_before: Time) -> Result<()>;

    /// Returns whether a member has this address. Ignores case.
    async fn member_has_email(&mut self, org: OrgId, email: &str) -> Result<bool>;
}

const PURGE: &str = "DELETE FROM orgs.invites WHERE id = ANY (ARRAY( \
    SELECT id FROM orgs.invites WHERE org_id = $1 AND ended_at < $2 ORDER BY ended_at LIMIT $3))";

#[diesel::declare_sql_function]
extern "SQL" {
    /// Returns the text in lower case, for the comparison of addresses.
    fn lower(text: Text) -> Text;
    /// Like `lower`, for a nullable text.
    #[sql_name = "lower"]
    fn lower_nullable(text: diesel::sql_types::Nullable<Text>) -> diesel::sql_types::Nullable<Text>;
}

impl InviteRepository for Connection {
    async fn invite_upsert(&mut self, invite: &InviteRecord) -> Result<()> {
        let upsert = diesel::insert_into(invites::table).values(invite).on_conflict(invites::id).do_update().set((
            invites::email.eq(excluded(invites::email)),
            invites::role.eq(excluded(invites::role)),
            invites::token_hash.eq(excluded(invites::token_hash)),
            invites::mailed_token_hash.eq(excluded(invites::mailed_token_hash)),
            invites::mailed_by.eq(excluded(invites::mailed_by)),
            invites::invited_by.eq(excluded(invites::invited_by)),
            invites::expires_at.eq(excluded(invites::expires_at)),
            invites::sent_at.eq(excluded(invites::sent_at)),
        ));
        Prepared(upsert).execute(self).await?;
        Ok(())
    }

    async fn invite_find_open(&mut self, org: OrgId, email: &str) -> Result<Option<InviteRecord>> {
        let open = invites::org_id.eq(org).and(invites::ended_at.is_null());
        let found = invites::table
            .filter(open.and(lower(invites::email).eq(lower(email))))
            .select(InviteRecord::as_select())
            .for_update()
            .first(self)
            .await;
        Ok(found.optional()?)
    }

    async fn invite_find_by_token(&mut self, token: TokenHash) -> Result<Option<(InviteRecord, OrgRecord)>> {
        let found = invites::table
            .inner_join(orgs::table)
            .filter(invites::token_hash.eq(token).or(invites::mailed_token_hash.eq(token)))
            .select((InviteRecord::as_select(), OrgRecord::as_select()))
            .first(self)
            .await;
        Ok(found.optional()?)
    }

    async fn invite_list(&mut self, org: OrgId, paging: &Paging<InviteId>) -> Result<Vec<InviteRecord>> {
        let open = invites::table.filter(invites::ended_at.is_null()).select(InviteRecord::as_select());
        Ok(newest_first!(open, invites::org_id = org, invites::id, paging).load(self).await?)
    }

    async fn invite_count_pending(&mut self, org: OrgId, except: Option<InviteId>, at: Time) -> Result<i64> {
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
        let has_token = invites::token_hash.eq(token).or(invites::mailed_token_hash.eq(token));
        let open = invites::ended_at.is_null().and(invites::expires_at.gt(at));
        let accept = diesel::update(invites::table.find(invite).filter(open.and(has_token)))
            .set((invites::ended_at.eq(at), invites::accepted_by.eq(by)));
        Ok(Prepared(accept).execute(self).await? == 1)
    }

    async fn invite_revoke(&mut self, org: OrgId, invite: InviteId, at: Time) -> Result<bool> {
        let open = invites::org_id.eq(org).and(invites::ended_at.is_null());
        let revoke = diesel::update(invites::table.find(invite).filter(open)).set(invites::ended_at.eq(at));
        Ok(Prepared(revoke).execute(self).await? == 1)
    }

    async fn invite_revoke_known(&mut self, org: OrgId, user: UserId, at: Time) -> Result<Vec<InviteId>> {
        let address = user_profiles::table.find(user).select(lower_nullable(user_profiles::email)).single_value();
        let sent = invites::invited_by.eq(user).or(invites::mailed_by.eq(user));
        let knows_link = sent.or(lower(invites::email).nullable().eq(address));
        let open = invites::org_id.eq(org).and(invites::ended_at.is_null()).and(knows_link);
        let revoke = diesel::update(invites::table.filter(open)).set(invites::ended_at.eq(at)).returning(invites::id);
        Ok(Prepared(revoke.as_query()).load(self).await?)
    }

    async fn invite_mark_sent(&mut self, invite: InviteId, token: TokenHash, at: Time) -> Result<()> {
        let same = invites::table.find(invite).filter(invites::mailed_token_hash.eq(token));
        Prepared(diesel::update(same).set(invites::sent_at.eq(at))).execute(self).await?;
        Ok(())
    }

    async fn invite_purge(&mut self, org: OrgId, ended_before: Time) -> Result<()> {
        let purge = diesel::sql_query(PURGE)
            .bind::<Uuid, _>(org)
            .bind::<Timestamptz, _>(ended_before)
            .bind::<BigInt, _>(BATCH_SIZE);
        Prepared(purge).execute(self).await?;
        Ok(())
    }

    async fn member_has_email(&mut self, org: OrgId, email: &str) -> Result<bool> {
        let theirs = members::table
            .inner_join(user_profiles::table.on(user_profiles::id.eq(members::user_id)))
            .filter(members::org_id.eq(org).and(lower_nullable(user_profiles::email).eq(lower(email).nullable())));
        Ok(diesel::select(exists(theirs)).get_result(self).await?)
    }
}
