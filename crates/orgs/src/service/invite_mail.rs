//! The mails of invitations, which are limited so that they cannot flood a mailbox (contract section 1, "Plan limits").
//!
//! The limits apply to an organization and also to the user who invites, over all organizations. Otherwise a user could
//! avoid them by creating more organizations.

use kernel::{InviteId, Time, Token};
use store::{Connection, outbox};

use super::{Orgs, Result};
use crate::error::OrgError;
use crate::mail::{INVITE, InviteMail};
use crate::repository::{
    InviteMailRecord, InviteMailRepository as _, InviteMailUsage, InviteRecord, OrgRepository as _,
};

/// The shortest time between two mails of an organization, or of a user, to the same address: ten minutes.
const INTERVAL_SECONDS: i64 = 600;

/// The period of the limits on the number of mails: a day.
const PERIOD_SECONDS: i64 = 24 * 3600;

impl Orgs {
    /// Queues the mail with the link, and returns the invitation to store.
    ///
    /// If a mail of the last ten minutes was already claimed by a worker, no new mail is queued, and the link of that
    /// mail stays valid. Otherwise the queued mail is replaced by one with the new link. The mail of a new invitation
    /// is due ten minutes after the last mail to the same address. So an admin who revokes an invitation and invites
    /// the address again causes no additional mail.
    ///
    /// # Errors
    /// Returns [`OrgError::TooManyInviteMails`].
    pub(super) async fn invite_mail_queue(
        &self,
        tx: &mut Connection,
        invite: InviteRecord,
        token: &Token,
    ) -> Result<InviteRecord> {
        let (key, now) = (invite.id.to_string(), self.store.corrected_now(tx).await?);
        if !self.site.sends_mail {
            outbox::withdraw(tx, INVITE, &key).await?;
            return Ok(InviteRecord { mailed_token_hash: None, mailed_by: None, ..invite });
        }
        tx.invite_mail_lock(invite.invited_by).await?;
        let since = now.plus_seconds(-PERIOD_SECONDS);
        let usage = tx.invite_mail_usage(invite.org_id, invite.invited_by, &invite.email, since).await?;
        let due = match last_mailed(&invite, &usage) {
            Some(last) if last > now.plus_seconds(-INTERVAL_SECONDS) => {
                if outbox::withdraw_unattempted(tx, INVITE, &key).await? == 0 {
                    return Ok(invite);
                }
                last
            }
            _ => {
                self.ensure_below_mail_limits(&usage, now)?;
                outbox::withdraw(tx, INVITE, &key).await?;
                let due = usage.last.map_or(now, |last| last.plus_seconds(INTERVAL_SECONDS).max(now));
                let (org_id, invited_by, email) = (invite.org_id, invite.invited_by, invite.email.clone());
                let mail = InviteMailRecord { org_id, invited_by, email, due_at: due };
                tx.invite_mail_insert(&mail, since).await?;
                due
            }
        };
        let org = tx.org_find(invite.org_id).await?.ok_or(OrgError::OrgNotFound)?.name;
        let inviter = tx.person_display_name(invite.invited_by).await?;
        let mail = InviteMail::new(&invite, token, org, inviter);
        self.store.enqueue_for_at(tx, INVITE, invite.org_id, &key, &mail, due).await?;
        let (mailed_token_hash, mailed_by) = (Some(token.hash()), Some(invite.invited_by));
        Ok(InviteRecord { mailed_token_hash, mailed_by, sent_at: None, ..invite })
    }

    /// Withdraws the queued mail of an invitation that has ended.
    pub(super) async fn invite_mail_withdraw(&self, tx: &mut Connection, invite: InviteId) -> Result<()> {
        if outbox::withdraw(tx, INVITE, &invite.to_string()).await? > 0 {
            let now = self.store.corrected_now(tx).await?;
            tx.invite_mail_delete_undue(invite, now).await?;
        }
        Ok(())
    }

    fn ensure_below_mail_limits(&self, usage: &InviteMailUsage, now: Time) -> Result<()> {
        let of_org = (usage.of_org, self.abuse_limits.invite_mails_per_org, usage.oldest_of_org, "an organization");
        let of_user = (usage.of_user, self.abuse_limits.invite_mails_per_user, usage.oldest_of_user, "a user");
        for (count, limit, oldest, sender) in [of_org, of_user] {
            if count >= i64::from(limit) {
                let next = oldest.unwrap_or(now).plus_seconds(PERIOD_SECONDS);
                let retry_after = next.seconds_since(now).max(1);
                return Err(OrgError::TooManyInviteMails { limit, sender, retry_after });
            }
        }
        Ok(())
    }
}

/// Returns the time at which the newest mail of the invitation is due or was sent. Returns `None` without a mail in the
/// last day.
fn last_mailed(invite: &InviteRecord, usage: &InviteMailUsage) -> Option<Time> {
    invite.mailed_token_hash.and(usage.last_of_org.max(invite.sent_at))
}
