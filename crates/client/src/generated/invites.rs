//! Invitations to an organization, and what it is notified of.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::{Email, Notification, Org, Role, Slug, Time, UserId};
use crate::{Call, Client, Page, Paging, Secret, words};

/// An open invitation, as admins see it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Invite {
    pub created_at: Time,
    pub email: String,
    pub expires_at: Time,
    pub id: InviteId,
    pub invited_by: UserId,
    pub role: Role,
    /// When the mail went out; null while it is queued, and for good where no mail is configured.
    pub sent_at: Option<Time>,
    pub state: OpenState,
}

/// An invitation that was just made or sent again: the one answer that holds its link.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InviteCreated {
    /// Where whoever has it may join: hand it on where no mail is sent.
    pub accept_url: Secret,
    pub created_at: Time,
    pub email: String,
    pub expires_at: Time,
    pub id: InviteId,
    pub invited_by: UserId,
    pub role: Role,
    /// When the mail went out; null while it is queued, and for good where no mail is configured.
    pub sent_at: Option<Time>,
    pub state: OpenState,
}

/// an id that starts with inv_
pub type InviteId = String;

pub type InvitePage = Page<Invite>;

words! {
    pub enum InviteState {
        Pending = "pending",
        Expired = "expired",
        Used = "used",
        Revoked = "revoked",
    }
}

/// What the holder of an invitation's link may see of it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InviteView {
    pub expires_at: Time,
    pub org_name: String,
    pub org_slug: Slug,
    pub role: Role,
    pub state: InviteState,
}

/// What came of accepting an invitation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Joined {
    /// The caller was a member before, and keeps the role they had.
    pub already_member: bool,
    pub org: Org,
    /// The role that the caller has now.
    pub role: Role,
}

/// Whom to invite, as what.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewInvite {
    pub email: Email,
    pub role: Role,
}

pub type NotificationPage = Page<Notification>;

words! {
    pub enum OpenState {
        Pending = "pending",
        Expired = "expired",
    }
}

impl Client {
    /// Join by an invitation
    ///
    /// `POST /v1/invites/{token}/accept`
    pub fn invites_accept(&self, token: &str) -> Call<Joined> {
        self.operation("invites.accept", Method::POST, &["v1", "invites", token, "accept"]).once()
    }

    /// Invite an address (201), or send its open invitation again (200)
    ///
    /// `POST /v1/orgs/{orgSlug}/invites`
    pub fn invites_create(&self, org_slug: &str, body: &NewInvite) -> Call<InviteCreated> {
        self.operation("invites.create", Method::POST, &["v1", "orgs", org_slug, "invites"]).once().json(body)
    }

    /// The open invitations, newest first; expired ones too
    ///
    /// `GET /v1/orgs/{orgSlug}/invites`
    pub fn invites_list(&self, org_slug: &str, query: &Paging) -> Call<InvitePage> {
        self.operation("invites.list", Method::GET, &["v1", "orgs", org_slug, "invites"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// The notifications, newest first
    ///
    /// `GET /v1/orgs/{orgSlug}/notifications`
    pub fn invites_notifications(&self, org_slug: &str, query: &Paging) -> Call<NotificationPage> {
        self.operation("invites.notifications", Method::GET, &["v1", "orgs", org_slug, "notifications"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// What an invitation is to, for whoever has its link
    ///
    /// `GET /v1/invites/{token}`
    pub fn invites_preview(&self, token: &str) -> Call<InviteView> {
        self.operation("invites.preview", Method::GET, &["v1", "invites", token])
    }

    /// Take an open invitation back
    ///
    /// `DELETE /v1/orgs/{orgSlug}/invites/{inviteId}`
    pub fn invites_revoke(&self, org_slug: &str, invite_id: &str) -> Call<()> {
        self.operation("invites.revoke", Method::DELETE, &["v1", "orgs", org_slug, "invites", invite_id])
    }
}
