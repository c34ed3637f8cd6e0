//! What can go wrong with organizations, members and invitations.

use kernel::{Code, Failure, Kind};
use serde_json::{Value, json};

/// A refused request, or a database that is away.
#[derive(Debug, thiserror::Error)]
pub enum OrgError {
    #[error("the slug {0} is taken; choose another")]
    SlugTaken(String),
    #[error("nobody has signed in as {0} yet; invite them, or ask them to sign in once")]
    UserNotFound(String),
    #[error("already a member; change the role with PUT instead")]
    AlreadyMember,
    #[error("no such member in this organization")]
    MemberNotFound,
    #[error("an organization keeps at least one admin; make somebody else admin first")]
    LastAdmin,
    #[error("there is no such organization")]
    OrgNotFound,
    #[error("no such open invitation in this organization")]
    InviteNotFound,
    #[error("there is no such invitation; ask for a new one")]
    InviteUnknown,
    #[error("the invitation was used already; ask for a new one if it was not by you")]
    InviteUsed,
    #[error("the invitation was taken back; ask an admin of the organization")]
    InviteRevoked,
    #[error("the invitation has expired; ask for it to be sent again")]
    InviteExpired,
    #[error("{0} invitations are pending, which is the limit; revoke some or wait for answers")]
    TooManyInvites(u32),
    #[error("only an admin removes other members; you may remove yourself")]
    AdminOnly,
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl OrgError {
    /// 409: create under a slug in use.
    pub const SLUG_TAKEN: Code = Code::new("slug_taken", Kind::Conflict, "Another organization has the slug.");
    /// 404: add somebody unknown.
    pub const USER_NOT_FOUND: Code =
        Code::new("user_not_found", Kind::NotFound, "The user to add has never signed in; invite them instead.");
    /// 409: add a member again.
    pub const ALREADY_MEMBER: Code =
        Code::new("already_member", Kind::Conflict, "The user is a member already; change the role with PUT.");
    /// 409: the organization would be left without an admin.
    pub const LAST_ADMIN: Code =
        Code::new("last_admin", Kind::Conflict, "The last admin cannot be demoted, be removed or leave.");
    /// 409: the abuse guard on pending invitations.
    pub const TOO_MANY_INVITES: Code = Code::new(
        "too_many_invites",
        Kind::Conflict,
        "Too many invitations are pending; `details.limit` tells how many may be.",
    );
    /// 409: accept what was accepted.
    pub const INVITE_USED: Code = Code::new("invite_used", Kind::Conflict, "Somebody accepted the invitation already.");
    /// 409: accept what was taken back.
    pub const INVITE_REVOKED: Code = Code::new("invite_revoked", Kind::Conflict, "An admin took the invitation back.");
    /// 409: accept too late.
    pub const INVITE_EXPIRED: Code =
        Code::new("invite_expired", Kind::Conflict, "The invitation is older than seven days.");
}

impl Failure for OrgError {
    fn code(&self) -> &'static Code {
        match self {
            Self::SlugTaken(_) => &Self::SLUG_TAKEN,
            Self::UserNotFound(_) => &Self::USER_NOT_FOUND,
            Self::AlreadyMember => &Self::ALREADY_MEMBER,
            Self::OrgNotFound | Self::MemberNotFound | Self::InviteNotFound | Self::InviteUnknown => &Code::NOT_FOUND,
            Self::InviteUsed => &Self::INVITE_USED,
            Self::InviteRevoked => &Self::INVITE_REVOKED,
            Self::InviteExpired => &Self::INVITE_EXPIRED,
            Self::TooManyInvites(_) => &Self::TOO_MANY_INVITES,
            Self::LastAdmin => &Self::LAST_ADMIN,
            Self::AdminOnly => &Code::FORBIDDEN,
            Self::Store(error) => error.code(),
        }
    }
    fn details(&self) -> Option<Value> {
        match self {
            Self::TooManyInvites(limit) => Some(json!({ "limit": limit })),
            _ => None,
        }
    }
}
