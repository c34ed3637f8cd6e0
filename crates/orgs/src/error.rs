//! What can go wrong with organizations and members.

use kernel::{Code, Failure, Kind};

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
}

impl Failure for OrgError {
    fn code(&self) -> &'static Code {
        match self {
            Self::SlugTaken(_) => &Self::SLUG_TAKEN,
            Self::UserNotFound(_) => &Self::USER_NOT_FOUND,
            Self::AlreadyMember => &Self::ALREADY_MEMBER,
            Self::MemberNotFound => &Code::NOT_FOUND,
            Self::LastAdmin => &Self::LAST_ADMIN,
            Self::AdminOnly => &Code::FORBIDDEN,
            Self::Store(error) => error.code(),
        }
    }
}
