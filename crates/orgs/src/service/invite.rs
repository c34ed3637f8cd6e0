//! The use cases of invitations (specification, "Organizations and members", rules 2 to 4).
//!
//! All of them change an invitation under its organization's lock, and look at what the statement did: of an accept, a
//! revoke and a resend at once, each sees what the one before it left.

use kernel::audit::{Actor, Event};
use kernel::{InviteId, OrgId, Page, Paging, Role, Time, Token, TokenHash, TokenKind, UserId};
use serde_json::json;
use store::{Connection, Outcome, outbox};

use super::{Orgs, Result};
use crate::error::OrgError;
use crate::mail::{INVITE, InviteMail};
use crate::model::{Invite, InviteCreated, InviteState, InviteView, Joined, NewInvite, OpenState};
use crate::repository::{InviteRecord, InviteRepository as _, OrgRepository as _};

/// How long an invitation can be accepted (specification, "Limits"): 7 days.
const LIFETIME_SECONDS: i64 = 7 * 24 * 3600;

/// How long the holder of its link may see how it ended (contract section 4): 30 days.
const MEMORY_SECONDS: i64 = 30 * 24 * 3600;

/// What became of an invitation to an address.
#[derive(Debug)]
pub enum Invited {
    /// It is new.
    New(InviteCreated),
    /// The open one was sent again, with another link; the old one opens nothing any more.
    Again(InviteCreated),
}

impl Orgs {
    /// Invites an address, or sends its open invitation again: with another link, a new expiry and this role.
    ///
    /// # Errors
    /// [`OrgError::AlreadyMember`], [`OrgError::TooManyInvites`].
    pub async fn invite(&self, actor: &Actor, org: OrgId, by: UserId, new: NewInvite) -> Result<Invited> {
        let NewInvite { email, role } = new;
        let email = email.to_string();
        let (world, now) = (self.store.world(), self.store.world().now());
        let token = Token::mint(TokenKind::Invite, world);
        let (token_hash, expires_at) = (token.hash(), now.plus_seconds(LIFETIME_SECONDS));
        self.store
            .transaction(actor, async |tx| {
                let plan = tx.org_lock(org).await?.ok_or(OrgError::OrgNotFound)?;
                if tx.member_has_email(org, &email).await? {
                    return Err(OrgError::AlreadyMember);
                }
                tx.invite_forget(org, now.plus_seconds(-MEMORY_SECONDS)).await?;
                let open = tx.invite_open(org, &email).await?;
                let limit = self.limits.of(plan).invites;
                if tx.invite_count(org, open.as_ref().map(|open| open.id), now).await? >= i64::from(limit) {
                    return Err(OrgError::TooManyInvites(limit));
                }
                let again = open.is_some();
                let (id, created_at) = open.map_or_else(|| (world.id_at(now), now), |open| (open.id, open.created_at));
                let invite = InviteRecord {
                    id,
                    org_id: org,
                    email,
                    role,
                    token_hash,
                    invited_by: by,
                    created_at,
                    expires_at,
                    sent_at: None,
                    ended_at: None,
                    accepted_by: None,
                };
                tx.invite_put(&invite).await?;
                self.queue(tx, &invite, &token).await?;
                let data = json!({ "email": invite.email, "role": role, "again": again });
                let event = Event::in_org("member.invite", org, id, data);
                let accept_url = self.site.accept_url(token.reveal());
                let created = InviteCreated { invite: Invite::new(invite, now), accept_url };
                Ok(Outcome::Changed(if again { Invited::Again(created) } else { Invited::New(created) }, event))
            })
            .await
    }

    /// The open invitations, newest first, expired ones too.
    ///
    /// # Errors
    /// [`OrgError::Store`].
    pub async fn invites(&self, org: OrgId, paging: &Paging<InviteId>) -> Result<Page<Invite>> {
        let now = self.store.world().now();
        let invites = self.store.connection().await?.invite_list(org, paging).await?;
        let invites = invites.into_iter().map(|invite| Invite::new(invite, now)).collect();
        Ok(Page::cut(invites, paging, |invite: &Invite| invite.id))
    }

    /// Takes an open invitation back, and its mail with it while that is still queued.
    ///
    /// # Errors
    /// [`OrgError::InviteNotFound`], also for one that was used or revoked.
    pub async fn invite_revoke(&self, actor: &Actor, org: OrgId, invite: InviteId) -> Result<()> {
        let now = self.store.world().now();
        self.store
            .transaction(actor, async |tx| {
                tx.org_lock(org).await?;
                if !tx.invite_revoke(org, invite, now).await? {
                    return Err(OrgError::InviteNotFound);
                }
                outbox::withdraw(tx, INVITE, &invite.to_string()).await?;
                Ok(Outcome::Changed((), Event::in_org("member.uninvite", org, invite, json!({}))))
            })
            .await
    }

    /// What the holder of a link may see of its invitation.
    ///
    /// # Errors
    /// [`OrgError::InviteUnknown`], also for one that ended more than thirty days ago.
    pub async fn invite_preview(&self, token: &str) -> Result<InviteView> {
        let (hash, now) = (read(token)?, self.store.world().now());
        let found = self.store.connection().await?.invite_find(hash).await?;
        let (invite, org) = found.filter(|(invite, _)| invite.is_remembered(now)).ok_or(OrgError::InviteUnknown)?;
        let (state, InviteRecord { role, expires_at, .. }) = (invite.state(now), invite);
        Ok(InviteView { state, org_name: org.name, org_slug: org.slug, role, expires_at })
    }

    /// Makes `user` a member by the invitation of this link, once. A member keeps the role they have.
    ///
    /// # Errors
    /// [`OrgError::InviteUnknown`], [`OrgError::InviteUsed`], [`OrgError::InviteRevoked`], [`OrgError::InviteExpired`].
    pub async fn invite_accept(&self, actor: &Actor, user: UserId, token: &str) -> Result<Joined> {
        let (hash, now) = (read(token)?, self.store.world().now());
        self.store
            .transaction(actor, async |tx| {
                let (InviteRecord { id, org_id, .. }, _) =
                    tx.invite_find(hash).await?.ok_or(OrgError::InviteUnknown)?;
                tx.org_lock(org_id).await?;
                // Only now does nobody else change it: a resend may have given it another token meanwhile.
                let (invite, org) = tx.invite_find(hash).await?.ok_or(OrgError::InviteUnknown)?;
                if !tx.invite_accept(id, hash, user, now).await? {
                    return Err(refusal(&invite, now));
                }
                let already_member = !tx.member_insert(org_id, user, invite.role, now).await?;
                let role = if already_member { self.role_of(tx, org_id, user).await? } else { invite.role };
                outbox::withdraw(tx, INVITE, &id.to_string()).await?;
                let data =
                    json!({ "email": invite.email, "user": user, "role": role, "alreadyMember": already_member });
                let event = Event::in_org("member.accept", org_id, id, data);
                Ok(Outcome::Changed(Joined { org: self.show(org, role), role, already_member }, event))
            })
            .await
    }

    /// Takes back the open invitations of somebody who may invite no longer: their links are in the wrong hands.
    pub(super) async fn revoke_invites_of(&self, tx: &mut Connection, org: OrgId, user: UserId) -> Result<usize> {
        let revoked = tx.invite_revoke_of(org, user, self.store.world().now()).await?;
        for invite in &revoked {
            outbox::withdraw(tx, INVITE, &invite.to_string()).await?;
        }
        Ok(revoked.len())
    }

    async fn role_of(&self, tx: &mut Connection, org: OrgId, user: UserId) -> Result<Role> {
        tx.member_find(org, user).await?.map(|member| member.role).ok_or(OrgError::MemberNotFound)
    }

    /// Queues the mail, in the place of one with a link that opens nothing any more.
    async fn queue(&self, tx: &mut Connection, invite: &InviteRecord, token: &Token) -> Result<()> {
        let key = invite.id.to_string();
        outbox::withdraw(tx, INVITE, &key).await?;
        if !self.site.sends_mail {
            return Ok(());
        }
        let org = tx.org_find(invite.org_id).await?.ok_or(OrgError::OrgNotFound)?.name;
        let inviter = tx.person_name(invite.invited_by).await?;
        let mail = InviteMail::new(invite, token, org, inviter);
        Ok(self.store.enqueue(tx, INVITE, &key, &mail).await?)
    }
}

/// Why an invitation was not accepted.
fn refusal(invite: &InviteRecord, now: Time) -> OrgError {
    match invite.state(now) {
        _ if !invite.is_remembered(now) => OrgError::InviteUnknown,
        InviteState::Used => OrgError::InviteUsed,
        InviteState::Revoked => OrgError::InviteRevoked,
        InviteState::Expired | InviteState::Pending => OrgError::InviteExpired,
    }
}

fn read(token: &str) -> Result<TokenHash> {
    Token::parse(TokenKind::Invite, token).map(|token| token.hash()).ok_or(OrgError::InviteUnknown)
}

impl InviteRecord {
    /// Where the invitation stands.
    #[must_use]
    pub fn state(&self, now: Time) -> InviteState {
        match (self.ended_at, self.accepted_by) {
            (Some(_), Some(_)) => InviteState::Used,
            (Some(_), None) => InviteState::Revoked,
            (None, _) if self.expires_at <= now => InviteState::Expired,
            (None, _) => InviteState::Pending,
        }
    }

    fn is_remembered(&self, now: Time) -> bool {
        self.ended_at.is_none_or(|ended| ended.plus_seconds(MEMORY_SECONDS) > now)
    }
}

impl Invite {
    fn new(invite: InviteRecord, now: Time) -> Self {
        let state = if invite.expires_at <= now { OpenState::Expired } else { OpenState::Pending };
        let InviteRecord { id, email, role, invited_by, created_at, expires_at, sent_at, .. } = invite;
        Self { id, email, role, state, invited_by, created_at, expires_at, sent_at }
    }
}
