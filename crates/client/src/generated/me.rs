//! The caller's own account.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::Deserialize;

use super::shared::{OrgId, Plan, Provider, Role, Slug, Time, UserId};
use crate::{Call, Client, Page, Paging};

/// A login session of the caller's, in the list of them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginSession {
    pub created_at: Time,
    /// Whether it is the one that asks.
    pub current: bool,
    pub id: SessionId,
    /// To within ten minutes; null when it was used at its start alone.
    pub last_used_at: Option<Time>,
    pub user_agent: Option<String>,
}

pub type LoginSessionPage = Page<LoginSession>;

/// An organization, as one of its members sees it in the list of theirs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrgMembership {
    pub id: OrgId,
    pub name: String,
    pub personal: bool,
    pub plan: Plan,
    pub project_limit: i32,
    pub role: Role,
    pub slug: Slug,
}

/// an id that starts with ses_
pub type SessionId = String;

/// A user together with their organizations.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct User {
    pub avatar_url: Option<String>,
    pub created_at: Time,
    pub email: Option<String>,
    pub id: UserId,
    pub name: Option<String>,
    pub orgs: Vec<OrgMembership>,
    pub provider: Provider,
    pub subject: String,
}

impl Client {
    /// The caller and the organizations they belong to
    ///
    /// `GET /v1/me`
    pub fn me_get(&self) -> Call<User> {
        self.operation("me.get", Method::GET, &["v1", "me"])
    }

    /// End one of the caller's sessions
    ///
    /// `DELETE /v1/me/sessions/{sessionId}`
    pub fn me_session_end(&self, session_id: &str) -> Call<()> {
        self.operation("me.session_end", Method::DELETE, &["v1", "me", "sessions", session_id])
    }

    /// The caller's live login sessions, newest first
    ///
    /// `GET /v1/me/sessions`
    pub fn me_sessions(&self, query: &Paging) -> Call<LoginSessionPage> {
        self.operation("me.sessions", Method::GET, &["v1", "me", "sessions"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }
}
