//! Errors of organizations, members and invitations.

use kernel::{ApiError, Code, Kind, Provider};
use serde_json::{Value, json};

/// An error of the organization service.
#[derive(Debug, thiserror::Error)]
pub enum OrgError {
    #[error("the slug {0} is taken; choose another")]
    SlugTaken(String),
    #[error("you created {count} organizations, and the limit is {limit}; use one of them")]
    TooManyOrgs { limit: u32, count: i64 },
    #[error("no user {subject} of the provider {provider} has signed in; invite them, or {}", sign_in_advice(*provider))]
    UserNotFound { provider: Provider, subject: String },
    #[error("the user is already a member; change the role with PUT instead")]
    AlreadyMember,
    #[error("the organization has no such member")]
    MemberNotFound,
    #[error("an organization must have at least one admin; make another member an admin first")]
    LastAdmin,
    #[error("the organization does not exist")]
    OrgNotFound,
    #[error("the organization has no such open invitation")]
    InviteNotFound,
    #[error("the invitation does not exist; ask an admin of the organization for a new one")]
    InviteUnknown,
    #[error("the invitation was already used; if you did not use it, ask an admin of the organization for a new one")]
    InviteUsed,
    #[error("the invitation was revoked; ask an admin of the organization for a new one")]
    InviteRevoked,
    #[error("the invitation has expired; ask an admin of the organization to send it again")]
    InviteExpired,
    #[error("the limit of {0} pending invitations is reached; revoke some, or wait until they are accepted or expire")]
    TooManyInvites(u32),
    #[error("the limit of {limit} invitation mails of {sender} in 24 hours is reached; retry in {retry_after} s")]
    TooManyInviteMails { limit: u32, sender: &'static str, retry_after: i64 },
    #[error("only an admin can remove other members; you can remove yourself")]
    AdminOnly,
    #[error(transparent)]
    Store(#[from] store::Error),
}

fn sign_in_advice(provider: Provider) -> &'static str {
    match provider {
        Provider::Dev => "ask them to sign in once",
        Provider::Codehost => "ask them to sign in once and send you their subject, the number in GET /v1/me",
    }
}

impl OrgError {
    /// 409: the slug of a new organization is in use.
    pub const SLUG_TAKEN: Code = Code::new("slug_taken", Kind::Conflict, "Another organization has the slug.");
    /// 409: the limit of organizations that a user created, against abuse.
    pub const ORG_LIMIT: Code = Code::new(
        "org_limit",
        Kind::Conflict,
        "The user has created as many organizations as the limit allows. `details` contains `limit` and `count`.",
    );
    /// 404: the user to add is unknown.
    pub const USER_NOT_FOUND: Code =
        Code::new("user_not_found", Kind::NotFound, "The user to add has never signed in; invite them instead.");
    /// 409: the user to add or invite is a member.
    pub const ALREADY_MEMBER: Code =
        Code::new("already_member", Kind::Conflict, "The user is already a member; change the role with PUT.");
    /// 409: the organization would be left without an admin.
    pub const LAST_ADMIN: Code =
        Code::new("last_admin", Kind::Conflict, "The last admin cannot be demoted or removed and cannot leave.");
    /// 409: the limit of pending invitations, against abuse.
    pub const TOO_MANY_INVITES: Code = Code::new(
        "too_many_invites",
        Kind::Conflict,
        "Too many invitations are pending; `details.limit` is the maximum.",
    );
    /// 409: the invitation was already accepted.
    pub const INVITE_USED: Code = Code::new("invite_used", Kind::Conflict, "The invitation was already accepted.");
    /// 409: the invitation was revoked.
    pub const INVITE_REVOKED: Code = Code::new("invite_revoked", Kind::Conflict, "An admin revoked the invitation.");
    /// 409: the invitation has expired.
    pub const INVITE_EXPIRED: Code =
        Code::new("invite_expired", Kind::Conflict, "The invitation has expired after seven days.");
}

impl ApiError for OrgError {
    fn code(&self) -> &'static Code {
        match self {
            Self::SlugTaken(_) => &Self::SLUG_TAKEN,
            Self::TooManyOrgs { .. } => &Self::ORG_LIMIT,
            Self::UserNotFound { .. } => &Self::USER_NOT_FOUND,
            Self::AlreadyMember => &Self::ALREADY_MEMBER,
            Self::OrgNotFound | Self::MemberNotFound | Self::InviteNotFound | Self::InviteUnknown => &Code::NOT_FOUND,
            Self::InviteUsed => &Self::INVITE_USED,
            Self::InviteRevoked => &Self::INVITE_REVOKED,
            Self::InviteExpired => &Self::INVITE_EXPIRED,
            Self::TooManyInvites(_) => &Self::TOO_MANY_INVITES,
            Self::TooManyInviteMails { .. } => &Code::RATE_LIMITED,
            Self::LastAdmin => &Self::LAST_ADMIN,
            Self::AdminOnly => &Code::FORBIDDEN,
            Self::Store(error) => error.code(),
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::TooManyInvites(limit) | Self::TooManyInviteMails { limit, .. } => Some(json!({ "limit": limit })),
            Self::TooManyOrgs { limit, count } => Some(json!({ "limit": limit, "count": count })),
            Self::Store(error) => error.details(),
            _ => None,
        }
    }

    fn retry_after(&self) -> Option<i64> {
        match self {
            Self::TooManyInviteMails { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}
