//! Use cases of invitations (specification, "Organizations and members", rules 2 to 4).
//!
//! Each use case changes an invitation under its organization's row lock and checks the row count. So concurrent
//! accepts, revocations and resends run one after the other.

use kernel::audit::{Actor, Event};
use kernel::{InviteId, OrgId, Page, Paging, Role, Time, Token, TokenHash, TokenKind, UserId};
use serde_json::json;
use store::{Connection, Outcome};

use super::{Orgs, Result};
use crate::error::OrgError;
use crate::model::{Invite, InviteCreated, InviteState, InviteView, JoinResult, NewInvite, OpenState};
use crate::repository::{InviteRecord, InviteRepository as _, OrgRepository as _};

/// The time in which an invitation can be accepted (specification, "Limits"): 7 days.
const LIFETIME_SECONDS: i64 = 7 * 24 * 3600;

/// The time in which the holder of the link can see an ended invitation (contract section 4): 30 days.
const ENDED_VISIBLE_SECONDS: i64 = 30 * 24 * 3600;

/// The result of inviting an address.
#[derive(Debug)]
pub enum InviteOutcome {
    /// The invitation is new.
    Created(InviteCreated),
    /// The open invitation got a new link, and its old links became invalid. There is one exception: the link of a mail
    /// of the last ten minutes stays valid, because no new mail is sent in that time.
    Resent(InviteCreated),
}

impl Orgs {
    /// Invites an address, or sends its open invitation again with a new link, a new expiry and this role.
    ///
    /// # Errors
    /// Returns [`OrgError::AlreadyMember`], [`OrgError::TooManyInvites`] or [`OrgError::TooManyInviteMails`].
    pub async fn invite(&self, actor: &Actor, org: OrgId, by: UserId, new: NewInvite) -> Result<InviteOutcome> {
        let (clock_rng, now) = (self.store.clock_rng(), self.store.clock_rng().now());
        let token = Token::mint(TokenKind::Invite, clock_rng);
        let new = InviteRecord::new(clock_rng.id_at(now), (org, by), new, &token, now);
        self.store
            .transaction(actor, async |tx| {
                let plan = tx.org_lock(org).await?.ok_or(OrgError::OrgNotFound)?;
                if tx.member_has_email(org, &new.email).await? {
                    return Err(OrgError::AlreadyMember);
                }
                // An invitation adds one row and purges up to a batch, so a backlog shrinks.
                tx.invite_purge(org, now.plus_seconds(-ENDED_VISIBLE_SECONDS)).await?;
                let open = tx.invite_find_open(org, &new.email).await?;
                let limit = self.limits.for_plan(plan).invites;
                if tx.invite_count_pending(org, open.as_ref().map(|open| open.id), now).await? >= i64::from(limit) {
                    return Err(OrgError::TooManyInvites(limit));
                }
                let is_resend = open.is_some();
                let invite = self.invite_mail_queue(tx, new.replacing(open), &token).await?;
                tx.invite_upsert(&invite).await?;
                let data = json!({ "email": invite.email, "role": invite.role, "again": is_resend });
                let event = Event::in_org("member.invite", org, invite.id, data);
                let accept_url = self.site.accept_url(token.reveal());
                let created = InviteCreated { invite: Invite::new(invite, now), accept_url };
                Ok(Outcome::Changed(
                    if is_resend { InviteOutcome::Resent(created) } else { InviteOutcome::Created(created) },
                    event,
                ))
            })
            .await
    }

    /// Returns the open invitations, including expired ones, newest first.
    pub async fn invites(&self, org: OrgId, paging: &Paging<InviteId>) -> Result<Page<Invite>> {
        let now = self.store.clock_rng().now();
        let invites = self.store.connection().await?.invite_list(org, paging).await?;
        let invites = invites.into_iter().map(|invite| Invite::new(invite, now)).collect();
        Ok(Page::cut(invites, paging, |invite: &Invite| invite.id))
    }

    /// Revokes an open invitation, and withdraws its mail if it is still queued.
    ///
    /// # Errors
    /// Returns [`OrgError::InviteNotFound`], also for a used or revoked invitation.
    pub async fn invite_revoke(&self, actor: &Actor, org: OrgId, invite: InviteId) -> Result<()> {
        let now = self.store.clock_rng().now();
        self.store
            .transaction(actor, async |tx| {
                tx.org_lock(org).await?;
                if !tx.invite_revoke(org, invite, now).await? {
                    return Err(OrgError::InviteNotFound);
                }
                self.invite_mail_withdraw(tx, invite).await?;
                Ok(Outcome::Changed((), Event::in_org("member.uninvite", org, invite, json!({}))))
            })
            .await
    }

    /// Returns the invitation, as shown to the holder of its link.
    ///
    /// # Errors
    /// Returns [`OrgError::InviteUnknown`], also for an invitation that ended more than thirty days ago.
    pub async fn invite_preview(&self, token: &str) -> Result<InviteView> {
        let (hash, now) = (parse_token(token)?, self.store.clock_rng().now());
        let found = self.store.connection().await?.invite_find_by_token(hash).await?;
        let (invite, org) = found.filter(|(invite, _)| invite.is_visible(now)).ok_or(OrgError::InviteUnknown)?;
        let (state, InviteRecord { role, expires_at, .. }) = (invite.state(now), invite);
        Ok(InviteView { state, org_name: org.name, org_slug: org.slug, role, expires_at })
    }

    /// Accepts an invitation: makes `user` a member, once. A user who is already a member keeps their role.
    ///
    /// # Errors
    /// Returns [`OrgError::InviteUnknown`], [`OrgError::InviteUsed`], [`OrgError::InviteRevoked`] or
    /// [`OrgError::InviteExpired`].
    pub async fn invite_accept(&self, actor: &Actor, user: UserId, token: &str) -> Result<JoinResult> {
        let (hash, now) = (parse_token(token)?, self.store.clock_rng().now());
        self.store
            .transaction(actor, async |tx| {
                let (InviteRecord { id, org_id, .. }, _) =
                    tx.invite_find_by_token(hash).await?.ok_or(OrgError::InviteUnknown)?;
                tx.org_lock(org_id).await?;
                // Read again under the lock, because a resend may have replaced the token.
                let (invite, org) = tx.invite_find_by_token(hash).await?.ok_or(OrgError::InviteUnknown)?;
                if !tx.invite_accept(id, hash, user, now).await? {
                    return Err(acceptance_error(&invite, now));
                }
                let already_member = !tx.member_insert(org_id, user, invite.role, now).await?;
                let role = if already_member { self.role_of(tx, org_id, user).await? } else { invite.role };
                self.invite_mail_withdraw(tx, id).await?;
                let data =
                    json!({ "email": invite.email, "user": user, "role": role, "alreadyMember": already_member });
                let event = Event::in_org("member.accept", org_id, id, data);
                Ok(Outcome::Changed(JoinResult { org: self.org_view(org, role), role, already_member }, event))
            })
            .await
    }

    /// Revokes the open invitations whose link this user knows. Called for a former admin or member.
    pub(super) async fn revoke_known_invites(&self, tx: &mut Connection, org: OrgId, user: UserId) -> Result<usize> {
        let revoked = tx.invite_revoke_known(org, user, self.store.clock_rng().now()).await?;
        for invite in &revoked {
            self.invite_mail_withdraw(tx, *invite).await?;
        }
        Ok(revoked.len())
    }

    async fn role_of(&self, tx: &mut Connection, org: OrgId, user: UserId) -> Result<Role> {
        tx.member_find(org, user).await?.map(|member| member.role).ok_or(OrgError::MemberNotFound)
    }
}

/// Returns the reason why an invitation was not accepted.
fn acceptance_error(invite: &InviteRecord, now: Time) -> OrgError {
    match invite.state(now) {
        _ if !invite.is_visible(now) => OrgError::InviteUnknown,
        InviteState::Used => OrgError::InviteUsed,
        InviteState::Revoked => OrgError::InviteRevoked,
        InviteState::Expired | InviteState::Pending => OrgError::InviteExpired,
    }
}

fn parse_token(token: &str) -> Result<TokenHash> {
    Token::parse(TokenKind::Invite, token).map(|token| token.hash()).ok_or(OrgError::InviteUnknown)
}

impl InviteRecord {
    fn new(id: InviteId, (org_id, invited_by): (OrgId, UserId), new: NewInvite, token: &Token, now: Time) -> Self {
        let NewInvite { email, role } = new;
        Self {
            id,
            org_id,
            email: email.to_string(),
            role,
            token_hash: token.hash(),
            mailed_token_hash: None,
            mailed_by: None,
            invited_by,
            created_at: now,
            expires_at: now.plus_seconds(LIFETIME_SECONDS),
            sent_at: None,
            ended_at: None,
            accepted_by: None,
        }
    }

    /// Merges this invitation into the open one to the same address, if there is one: the result has the id and the
    /// last mail of the open one.
    fn replacing(self, open: Option<Self>) -> Self {
        match open {
            None => self,
            Some(Self { id, created_at, mailed_token_hash, mailed_by, sent_at, .. }) => {
                Self { id, created_at, mailed_token_hash, mailed_by, sent_at, ..self }
            }
        }
    }

    /// Returns the state of the invitation.
    #[must_use]
    pub fn state(&self, now: Time) -> InviteState {
        match (self.ended_at, self.accepted_by) {
            (Some(_), Some(_)) => InviteState::Used,
            (Some(_), None) => InviteState::Revoked,
            (None, _) if self.expires_at <= now => InviteState::Expired,
            (None, _) => InviteState::Pending,
        }
    }

    fn is_visible(&self, now: Time) -> bool {
        self.ended_at.is_none_or(|ended| ended.plus_seconds(ENDED_VISIBLE_SECONDS) > now)
    }
}

impl Invite {
    fn new(invite: InviteRecord, now: Time) -> Self {
        let state = if invite.expires_at <= now { OpenState::Expired } else { OpenState::Pending };
        let InviteRecord { id, email, role, invited_by, created_at, expires_at, sent_at, .. } = invite;
        Self { id, email, role, state, invited_by, created_at, expires_at, sent_at }
    }
}
