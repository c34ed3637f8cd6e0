//! Invitations (contract section 4).

use kernel::{Email, InviteId, Role, Time, UserId};
use serde::{Deserialize, Serialize};
use validator::Validate;

use super::{Org, Slug};

kernel::words! {
    /// The state of an invitation.
    pub enum InviteState {
        /// The link can be used.
        Pending = "pending",
        /// The invitation was not accepted within seven days. Sending it again makes it pending.
        Expired = "expired",
        /// The invitation was accepted.
        Used = "used",
        /// An admin revoked the invitation.
        Revoked = "revoked",
    } example Pending
}

kernel::words! {
    /// The state of an open invitation.
    pub enum OpenState {
        /// The link can be used.
        Pending = "pending",
        /// The invitation was not accepted within seven days. Sending it again makes it pending.
        Expired = "expired",
    } example Pending
}

/// An open invitation, as shown to admins.
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
    /// The time at which the mail was sent. Null while it is queued, and always null without a configured mail server.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub sent_at: Option<Time>,
}

/// A new or resent invitation. Only this response contains the link.
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
    /// The link to join. If the installation sends no mail, send the link to the invited person yourself.
    #[cfg_attr(feature = "openapi", schema(format = Password))]
    pub accept_url: String,
}

/// An invitation, as shown to the holder of its link.
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

/// The result of accepting an invitation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(as = Joined, example = json!({ "alreadyMember": false })))]
pub struct JoinResult {
    pub org: Org,
    /// The caller's role.
    pub role: Role,
    /// Whether the caller was already a member. A member keeps the previous role.
    pub already_member: bool,
}

/// An invitation to create.
#[derive(Debug, Clone, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewInvite {
    pub email: Email,
    pub role: Role,
}

/// The derived implementation would show the link.
impl std::fmt::Debug for InviteCreated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InviteCreated").field("id", &self.invite.id).finish_non_exhaustive()
    }
}
