//! Invitations to an organization, and its notifications.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::{Email, Notification, Org, Role, Slug, Time, UserId};
use crate::{Call, Client, Page, Paging, Secret, open_enum};

/// An open invitation, as shown to admins.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Invite {
    pub created_at: Time,
    pub email: String,
    pub expires_at: Time,
    pub id: InviteId,
    pub invited_by: UserId,
    pub role: Role,
    /// The time at which the mail was sent. Null while it is queued, and always null without a configured mail server.
    pub sent_at: Option<Time>,
    pub state: OpenState,
}

/// A new or resent invitation. Only this response contains the link.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InviteCreated {
    /// The link to join. If the installation sends no mail, send the link to the invited person yourself.
    pub accept_url: Secret,
    pub created_at: Time,
    pub email: String,
    pub expires_at: Time,
    pub id: InviteId,
    pub invited_by: UserId,
    pub role: Role,
    /// The time at which the mail was sent. Null while it is queued, and always null without a configured mail server.
    pub sent_at: Option<Time>,
    pub state: OpenState,
}

/// an id that starts with inv_
pub type InviteId = String;

pub type InvitePage = Page<Invite>;

open_enum! {
    pub enum InviteState {
        Pending = "pending",
        Expired = "expired",
        Used = "used",
        Revoked = "revoked",
    }
}

/// An invitation, as shown to the holder of its link.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InviteView {
    pub expires_at: Time,
    pub org_name: String,
    pub org_slug: Slug,
    pub role: Role,
    pub state: InviteState,
}

/// The result of accepting an invitation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Joined {
    /// Whether the caller was already a member. A member keeps the previous role.
    pub already_member: bool,
    pub org: Org,
    /// The caller's role.
    pub role: Role,
}

/// An invitation to create.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewInvite {
    pub email: Email,
    pub role: Role,
}

pub type NotificationPage = Page<Notification>;

open_enum! {
    pub enum OpenState {
        Pending = "pending",
        Expired = "expired",
    }
}

impl Client {
    /// Accept an invitation
    ///
    /// `POST /v1/invites/{token}/accept`
    pub fn invites_accept(&self, token: &str) -> Call<Joined> {
        self.operation("invites.accept", Method::POST, &["v1", "invites", token, "accept"]).idempotent()
    }

    /// Invite an email address (201), or resend its open invitation (200)
    ///
    /// `POST /v1/orgs/{orgSlug}/invites`
    pub fn invites_create(&self, org_slug: &str, body: &NewInvite) -> Call<InviteCreated> {
        self.operation("invites.create", Method::POST, &["v1", "orgs", org_slug, "invites"]).idempotent().json(body)
    }

    /// List open invitations, including expired ones, newest first
    ///
    /// `GET /v1/orgs/{orgSlug}/invites`
    pub fn invites_list(&self, org_slug: &str, query: &Paging) -> Call<InvitePage> {
        self.operation("invites.list", Method::GET, &["v1", "orgs", org_slug, "invites"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// List notifications, newest first
    ///
    /// `GET /v1/orgs/{orgSlug}/notifications`
    pub fn invites_notifications(&self, org_slug: &str, query: &Paging) -> Call<NotificationPage> {
        self.operation("invites.notifications", Method::GET, &["v1", "orgs", org_slug, "notifications"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Preview an invitation by the token in its link
    ///
    /// `GET /v1/invites/{token}`
    pub fn invites_preview(&self, token: &str) -> Call<InviteView> {
        self.operation("invites.preview", Method::GET, &["v1", "invites", token])
    }

    /// Revoke an open invitation
    ///
    /// `DELETE /v1/orgs/{orgSlug}/invites/{inviteId}`
    pub fn invites_revoke(&self, org_slug: &str, invite_id: &str) -> Call<()> {
        self.operation("invites.revoke", Method::DELETE, &["v1", "orgs", org_slug, "invites", invite_id])
    }
}
