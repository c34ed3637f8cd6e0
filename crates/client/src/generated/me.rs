//! The caller's own account.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::Deserialize;

use super::shared::{AuditEventPage, OrgId, Plan, Provider, Role, Slug, Time, UserId};
use crate::{Call, Client, Page, Paging};

/// A login session of the caller.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginSession {
    pub created_at: Time,
    /// Whether the request uses this session.
    pub current: bool,
    pub id: SessionId,
    /// The last use, accurate to ten minutes. Null until the session is used more than ten minutes after the sign-in.
    pub last_used_at: Option<Time>,
    pub user_agent: Option<String>,
}

pub type LoginSessionPage = Page<LoginSession>;

/// An organization in the profile of a member.
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

/// A user and their organizations.
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

#[derive(Debug, Clone, PartialEq, Default)]
pub struct MeAuditQuery {
    /// If set, matches only events of this user.
    pub actor: Option<String>,
    /// If set, matches only events with this name.
    pub event: Option<String>,
    /// If set, matches only events at this time or later.
    pub since: Option<String>,
    /// If set, matches only events before this time.
    pub until: Option<String>,
    /// The largest number of items to return. Values above 200 count as 200.
    pub limit: Option<i64>,
    /// The `nextCursor` of the previous page.
    pub cursor: Option<String>,
}

impl Client {
    /// List the audit events of the caller's own account, newest first
    ///
    /// `GET /v1/me/audit`
    pub fn me_audit(&self, query: &MeAuditQuery) -> Call<AuditEventPage> {
        self.operation("me.audit", Method::GET, &["v1", "me", "audit"])
            .query("actor", query.actor.as_ref())
            .query("event", query.event.as_ref())
            .query("since", query.since.as_ref())
            .query("until", query.until.as_ref())
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Get the caller and their organizations
    ///
    /// `GET /v1/me`
    pub fn me_get(&self) -> Call<User> {
        self.operation("me.get", Method::GET, &["v1", "me"])
    }

    /// End one of the caller's login sessions
    ///
    /// `DELETE /v1/me/sessions/{sessionId}`
    pub fn me_session_end(&self, session_id: &str) -> Call<()> {
        self.operation("me.session_end", Method::DELETE, &["v1", "me", "sessions", session_id])
    }

    /// List the caller's active login sessions, newest first
    ///
    /// `GET /v1/me/sessions`
    pub fn me_sessions(&self, query: &Paging) -> Call<LoginSessionPage> {
        self.operation("me.sessions", Method::GET, &["v1", "me", "sessions"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }
}
