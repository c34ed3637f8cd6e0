//! The invitation mails of the last day, which are limited.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{InviteId, OrgId, Time, UserId};
use store::{Connection, Prepared, Result};

/// An invitation mail to insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InviteMailRecord {
    pub org_id: OrgId,
    pub invited_by: UserId,
    pub email: String,
    pub due_at: Time,
}

/// The use of the mail limits by an organization and by a user. The times are those at which a mail is or was due.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub struct InviteMailUsage {
    /// The number of mails of the organization.
    #[diesel(sql_type = BigInt)]
    pub of_org: i64,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub oldest_of_org: Option<Time>,
    /// The number of mails of the user, over all organizations.
    #[diesel(sql_type = BigInt)]
    pub of_user: i64,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub oldest_of_user: Option<Time>,
    /// The last mail of the organization to the address.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub last_of_org: Option<Time>,
    /// The last mail to the address, of the organization or of the user.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub last: Option<Time>,
}

/// Invitation mails on a [`store::Connection`]. Callers take [`crate::OrgRepository::org_lock`] before they change one.
pub trait InviteMailRepository {
    /// Locks the invitation mails of a user over all organizations, until the transaction ends.
    async fn invite_mail_lock(&mut self, by: UserId) -> Result<()>;

    /// Returns the mails of the organization and of the user that are due after `since`. The result is reliable only
    /// under [`Self::invite_mail_lock`].
    async fn invite_mail_usage(&mut self, org: OrgId, by: UserId, email: &str, since: Time) -> Result<InviteMailUsage>;

    /// Inserts a mail, and purges the organization's mails that were due before `purge_before`.
    async fn invite_mail_insert(&mut self, mail: &InviteMailRecord, purge_before: Time) -> Result<()>;

    /// Deletes the mails to the address of the invitation that are due after `at`.
    async fn invite_mail_delete_undue(&mut self, invite: InviteId, at: Time) -> Result<()>;
}

impl InviteMailRepository for Connection {
    async fn invite_mail_lock(&mut self, by: UserId) -> Result<()> {
        // Callers take the organization's row lock first.
        super::lock_activity(self, "orgs.invite_mails", by).await
    }

    async fn invite_mail_usage(&mut self, org: OrgId, by: UserId, email: &str, since: Time) -> Result<InviteMailUsage> {
        let usage = "SELECT count(*) FILTER (WHERE org_id = $1) AS of_org, \
             min(due_at) FILTER (WHERE org_id = $1) AS oldest_of_org, \
             count(*) FILTER (WHERE invited_by = $2) AS of_user, \
             min(due_at) FILTER (WHERE invited_by = $2) AS oldest_of_user, \
             max(due_at) FILTER (WHERE email = lower($3) AND org_id = $1) AS last_of_org, \
             max(due_at) FILTER (WHERE email = lower($3)) AS last \
             FROM orgs.invite_mails WHERE (org_id = $1 OR invited_by = $2) AND due_at > $4";
        let usage = diesel::sql_query(usage).bind::<Uuid, _>(org).bind::<Uuid, _>(by);
        Ok(Prepared(usage.bind::<Text, _>(email).bind::<Timestamptz, _>(since)).get_result(self).await?)
    }

    async fn invite_mail_insert(&mut self, mail: &InviteMailRecord, purge_before: Time) -> Result<()> {
        let InviteMailRecord { org_id, invited_by, email, due_at } = mail;
        let insert = "WITH purged AS (DELETE FROM orgs.invite_mails WHERE org_id = $1 AND due_at <= $5) \
             INSERT INTO orgs.invite_mails (org_id, invited_by, email, due_at) VALUES ($1, $2, lower($3), $4)";
        let insert = diesel::sql_query(insert).bind::<Uuid, _>(*org_id);
        let insert = insert.bind::<Uuid, _>(*invited_by).bind::<Text, _>(email);
        let insert = insert.bind::<Timestamptz, _>(*due_at).bind::<Timestamptz, _>(purge_before);
        Prepared(insert).execute(self).await?;
        Ok(())
    }

    async fn invite_mail_delete_undue(&mut self, invite: InviteId, at: Time) -> Result<()> {
        let delete = "DELETE FROM orgs.invite_mails m USING orgs.invites i \
             WHERE i.id = $1 AND m.org_id = i.org_id AND m.email = lower(i.email) AND m.due_at > $2";
        Prepared(diesel::sql_query(delete).bind::<Uuid, _>(invite).bind::<Timestamptz, _>(at)).execute(self).await?;
        Ok(())
    }
}
