//! Invitations (contract section 4).

use kernel::{Email, InviteId, Role, Time, UserId};
use serde::{Deserialize, Serialize};
use validator::Validate;

use super::{Org, Slug};

kernel::words! {
    /// Where an invitation stands.
    pub enum InviteState {
        /// Its link may be used.
        Pending = "pending",
        /// Nobody used it for seven days; sending it again makes it pending.
        Expired = "expired",
        /// Somebody accepted it.
        Used = "used",
        /// An admin took it back.
        Revoked = "revoked",
    } example Pending
}

kernel::words! {
    /// Where an open invitation stands.
    pub enum OpenState {
        /// Its link may be used.
        Pending = "pending",
        /// Nobody used it for seven days; sending it again makes it pending.
        Expired = "expired",
    } example Pending
}

/// An open invitation, as admins see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "email": "ada@example.org",
        "expiresAt": "2026-11-28T08:00:00.000Z",
    }))
)]
pub struct Invite {
    pub id: InviteId,
    pub email: String,
    pub role: Role,
    pub state: OpenState,
    pub invited_by: UserId,
    pub created_at: Time,
    pub expires_at: Time,
    /// When the mail went out; null while it is queued, and for good where no mail is configured.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub sent_at: Option<Time>,
}

/// An invitation that was just made or sent again: the one answer that holds its link.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "acceptUrl": "https://dashboard.svc.example/invites/svc_inv_EXAMPLE-EXAMPLE-EXAMPLE-EXAMPLE-EXAMPLE-EXA",
    }))
)]
pub struct InviteCreated {
    #[serde(flatten)]
    pub invite: Invite,
    /// Where whoever has it may join: hand it on where no mail is sent.
    #[cfg_attr(feature = "openapi", schema(format = Password))]
    pub accept_url: String,
}

/// What the holder of an invitation's link may see of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "orgName": "Acme",
        "expiresAt": "2026-11-28T08:00:00.000Z",
    }))
)]
pub struct InviteView {
    pub state: InviteState,
    pub org_name: String,
    pub org_slug: Slug,
    pub role: Role,
    pub expires_at: Time,
}

/// What came of accepting an invitation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "alreadyMember": false })))]
pub struct Joined {
    pub org: Org,
    /// The role that the caller has now.
    pub role: Role,
    /// The caller was a member before, and keeps the role they had.
    pub already_member: bool,
}

/// Whom to invite, as what.
#[derive(Debug, Clone, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewInvite {
    pub email: Email,
    pub role: Role,
}

/// Without the link.
impl std::fmt::Debug for InviteCreated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InviteCreated").field("id", &self.invite.id).finish_non_exhaustive()
    }
}
