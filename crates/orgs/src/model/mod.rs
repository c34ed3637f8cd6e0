//! The types as the wire shows them (contract section 4).

mod invite;
mod notification;

pub use invite::*;
pub use notification::*;

use kernel::{AuditId, OrgId, Plan, Provider, Role, Time, UserId};
use serde::{Deserialize, Serialize};
use validator::{Validate, ValidationError};

kernel::text! {
    /// An organization's name in paths and host names: a DNS label, fixed for good.
    pub struct Slug matches "^[a-z0-9][a-z0-9-]{0,38}[a-z0-9]$"
        means "2 to 40 characters of a-z, 0-9 and -, beginning and ending with a letter or a digit"
        example "acme"
}

kernel::text! {
    /// An organization's name for people.
    pub struct OrgName matches r"^[^\x00-\x1f\x7f]{1,100}$" means "1 to 100 characters, none of them a control character"
        example "Acme"
}

/// Slugs that are, or may become, names of the platform's own.
const RESERVED: &[&str] =
    &["www", "api", "app", "admin", "dashboard", "docs", "mail", "auth", "login", "static", "status", "support", "svc"];

impl Slug {
    /// Whether organizations may have it.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        RESERVED.contains(&self.as_str())
    }
}

/// An organization as one of its members sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "name": "Acme", "personal": false, "projectLimit": 3 })))]
pub struct Org {
    pub id: OrgId,
    pub slug: Slug,
    pub name: String,
    pub plan: Plan,
    /// Made with the user's account, for one person.
    pub personal: bool,
    /// The caller's role in it.
    pub role: Role,
    /// Projects its plan allows.
    pub project_limit: u32,
    pub created_at: Time,
}

/// An organization, as one of its members sees it in the list of theirs.
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

/// A user in an organization.
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

/// The organization to create.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "name": "Acme" })))]
pub struct NewOrg {
    #[validate(custom(function = "not_reserved"))]
    pub slug: Slug,
    /// The slug when left out.
    #[serde(default)]
    pub name: Option<OrgName>,
}

/// What is to change of an organization.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OrgChange {
    pub name: OrgName,
}

/// Something that happened in an organization.
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
    /// What, such as `member.add`.
    pub event: String,
    /// The user; null for the operator, the service itself and callers without a credential.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub actor: Option<UserId>,
    /// The subject under which the user signs in, `operator`, or `system` for the service itself; null for others and for
    /// a user who no longer exists.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub actor_name: Option<String>,
    /// The id of the session or access token that was used.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub credential: Option<String>,
    /// To what: an id or a name.
    pub target: String,
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub data: serde_json::Value,
    /// The request it was done by.
    pub request_id: String,
    pub created_at: Time,
}

/// Which events to list; all of them when nothing is given.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AuditFilter {
    /// Only this event.
    pub event: Option<String>,
    /// Only what this user did.
    pub actor: Option<UserId>,
    /// Only what happened at this time or later.
    pub since: Option<Time>,
    /// Only what happened before this time.
    pub until: Option<Time>,
}

/// The member to add: somebody who has signed in at least once.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "subject": "ada" })))]
pub struct NewMember {
    pub provider: Provider,
    #[validate(length(min = 1, max = 255))]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255))]
    pub subject: String,
    pub role: Role,
}

/// The role that a member is to have.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoleChange {
    pub role: Role,
}

fn not_reserved(slug: &Slug) -> Result<(), ValidationError> {
    if slug.is_reserved() {
        return Err(
            ValidationError::new("reserved").with_message("is reserved for the platform; choose another".into())
        );
    }
    Ok(())
}
