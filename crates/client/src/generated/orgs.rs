//! Organizations, their members and their audit log.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::{AuditEventPage, Org, Provider, Role, Time, UserId};
use crate::{Call, Client, Page, Paging};

/// A member of an organization.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    pub avatar_url: Option<String>,
    pub joined_at: Time,
    pub name: Option<String>,
    pub provider: Provider,
    pub role: Role,
    pub subject: String,
    pub user_id: UserId,
}

pub type MemberPage = Page<Member>;

/// A member to add. The user must have signed in at least once.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewMember {
    pub provider: Provider,
    pub role: Role,
    /// The `subject` that `GET /v1/me` returns to the user. At the code host, it is their numeric ID.
    pub subject: String,
}

/// An organization to create.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewOrg {
    /// The display name. Defaults to the slug.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<OrgName>,
    pub slug: NewSlug,
}

/// 2 to 40 characters of a-z, 0-9 and -, beginning and ending with a letter or a digit
pub type NewSlug = String;

/// A change to an organization.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OrgChange {
    pub name: OrgName,
}

/// 1 to 100 characters, one of them visible, without control or text direction characters
pub type OrgName = String;

pub type OrgPage = Page<Org>;

/// The new role of a member.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleChange {
    pub role: Role,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OrgsAuditQuery {
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
    /// List audit events, newest first
    ///
    /// `GET /v1/orgs/{orgSlug}/audit`
    pub fn orgs_audit(&self, org_slug: &str, query: &OrgsAuditQuery) -> Call<AuditEventPage> {
        self.operation("orgs.audit", Method::GET, &["v1", "orgs", org_slug, "audit"])
            .query("actor", query.actor.as_ref())
            .query("event", query.event.as_ref())
            .query("since", query.since.as_ref())
            .query("until", query.until.as_ref())
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Create an organization
    ///
    /// `POST /v1/orgs`
    pub fn orgs_create(&self, body: &NewOrg) -> Call<Org> {
        self.operation("orgs.create", Method::POST, &["v1", "orgs"]).idempotent().json(body)
    }

    /// List the caller's organizations
    ///
    /// `GET /v1/orgs`
    pub fn orgs_list(&self, query: &Paging) -> Call<OrgPage> {
        self.operation("orgs.list", Method::GET, &["v1", "orgs"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Add a user who has signed in before
    ///
    /// `POST /v1/orgs/{orgSlug}/members`
    pub fn orgs_member_add(&self, org_slug: &str, body: &NewMember) -> Call<Member> {
        self.operation("orgs.member_add", Method::POST, &["v1", "orgs", org_slug, "members"]).idempotent().json(body)
    }

    /// Remove a member (admin), or leave the organization (any member)
    ///
    /// `DELETE /v1/orgs/{orgSlug}/members/{userId}`
    pub fn orgs_member_remove(&self, org_slug: &str, user_id: &str) -> Call<()> {
        self.operation("orgs.member_remove", Method::DELETE, &["v1", "orgs", org_slug, "members", user_id])
    }

    /// Change a member's role
    ///
    /// `PUT /v1/orgs/{orgSlug}/members/{userId}`
    pub fn orgs_member_set_role(&self, org_slug: &str, user_id: &str, body: &RoleChange) -> Call<Member> {
        self.operation("orgs.member_set_role", Method::PUT, &["v1", "orgs", org_slug, "members", user_id]).json(body)
    }

    /// List the members of an organization
    ///
    /// `GET /v1/orgs/{orgSlug}/members`
    pub fn orgs_members(&self, org_slug: &str, query: &Paging) -> Call<MemberPage> {
        self.operation("orgs.members", Method::GET, &["v1", "orgs", org_slug, "members"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Rename an organization
    ///
    /// `PATCH /v1/orgs/{orgSlug}`
    pub fn orgs_rename(&self, org_slug: &str, body: &OrgChange) -> Call<Org> {
        self.operation("orgs.rename", Method::PATCH, &["v1", "orgs", org_slug]).json(body)
    }
}
