//! The wire types (contract section 4).

mod invite;
mod notification;
mod slug;

pub use invite::*;
pub use notification::*;
pub use slug::*;

use kernel::{AuditId, NAME_PATTERN, OrgId, Plan, Provider, Role, Time, UserId};
use serde::{Deserialize, Serialize};
use validator::Validate;

kernel::text! {
    /// An organization's display name.
    pub struct OrgName matches NAME_PATTERN up to 100 characters
        means "1 to 100 characters, one of them visible, without control or text direction characters" example "Acme"
}

/// An organization, as shown to a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "name": "Acme", "personal": false, "projectLimit": 3 })))]
pub struct Org {
    pub id: OrgId,
    pub slug: Slug,
    pub name: String,
    pub plan: Plan,
    /// Whether a user's first sign-in created the organization. It can have other members, like any organization.
    pub personal: bool,
    /// The caller's role.
    pub role: Role,
    /// The number of projects that the plan allows.
    pub project_limit: u32,
    pub created_at: Time,
}

/// An organization in the profile of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "name": "Acme", "personal": false, "projectLimit": 3 })))]
pub struct OrgMembership {
    pub id: OrgId,
    pub slug: Slug,
    pub name: String,
    pub role: Role,
    pub plan: Plan,
    pub personal: bool,
    pub project_limit: u32,
}

/// A member of an organization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "subject": "ada", "name": "Ada" })))]
pub struct Member {
    pub user_id: UserId,
    pub provider: Provider,
    pub subject: String,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub name: Option<String>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub avatar_url: Option<String>,
    pub role: Role,
    pub joined_at: Time,
}

/// An organization to create.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "name": "Acme" })))]
pub struct NewOrg {
    pub slug: NewSlug,
    /// The display name. Defaults to the slug.
    #[serde(default)]
    pub name: Option<OrgName>,
}

/// A change to an organization.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OrgChange {
    pub name: OrgName,
}

/// An audit event of an organization.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "event": "project.create",
        "actorName": "ada",
        "credential": "ses_01m7yhx300fbd828t5cy4tqkff",
        "target": "prj_01m7yhx300fbd828t5cy4tqkff",
        "data": { "name": "site" },
        "requestId": "01a1fd1e-8c00-7ada-8123-456789abcdef",
    }))
)]
pub struct AuditEvent {
    pub id: AuditId,
    /// The name of the event, such as `member.add`.
    pub event: String,
    /// The user who acted. Null for the operator, the system and anonymous callers.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub actor: Option<UserId>,
    /// The subject of the user, `operator`, or `system` for the service itself. Null for anonymous callers and deleted
    /// users.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub actor_name: Option<String>,
    /// The id of the credential of the request. Null for the operator, the system and anonymous callers, and for
    /// changes that the service makes for a user, such as the end of a purchase.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub credential: Option<String>,
    /// The id or name of the affected resource.
    pub target: String,
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub data: serde_json::Value,
    /// The id of the request.
    pub request_id: String,
    pub created_at: Time,
}

/// A filter of audit events. The default matches all events.
#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AuditFilter {
    /// If set, matches only events with this name.
    pub event: Option<String>,
    /// If set, matches only events of this user.
    pub actor: Option<UserId>,
    /// If set, matches only events at this time or later.
    pub since: Option<Time>,
    /// If set, matches only events before this time.
    pub until: Option<Time>,
}

/// A member to add. The user must have signed in at least once.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "subject": "ada" })))]
pub struct NewMember {
    pub provider: Provider,
    /// The `subject` that `GET /v1/me` returns to the user. At the code host, it is their numeric ID.
    #[validate(length(min = 1, max = 255))]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255))]
    pub subject: String,
    pub role: Role,
}

/// The new role of a member.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoleChange {
    pub role: Role,
}
