//! Personal access tokens (contract sections 1 and 2).

use kernel::{Scope, Time, Token, TokenId};
use serde::{Deserialize, Serialize};
use validator::Validate;

kernel::text! {
    /// What a user calls one of their credentials.
    pub struct Title matches r"^[^\x00-\x1f\x7f]{1,100}$" means "1 to 100 characters, none of them a control character"
        example "laptop"
}

/// A personal access token, without what it opens with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "name": "laptop",
        "prefix": "svc_pat_EXAM",
        "expiresAt": null,
        "revokedAt": null,
    }))
)]
pub struct AccessToken {
    pub id: TokenId,
    pub name: String,
    pub scopes: Vec<Scope>,
    /// Null for one that reaches whatever its user does.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub restrict: Option<Restriction>,
    /// Its first 12 characters.
    pub prefix: String,
    pub created_at: Time,
    /// Null for one that does not expire.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub expires_at: Option<Time>,
    /// To within ten minutes.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub last_used_at: Option<Time>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub revoked_at: Option<Time>,
}

/// A fresh token: the one answer that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "token": "svc_pat_EXAMPLE-EXAMPLE-EXAMPLE-EXAMPLE-EXAMPLE-EXA",
        "lastUsedAt": null,
    }))
)]
pub struct AccessTokenCreated {
    #[serde(flatten)]
    pub about: AccessToken,
    /// What to send as `Authorization: Bearer …`, or as the password of `Basic`.
    pub token: Token,
}

/// What a token is limited to, by the names that the places have now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "org": "acme", "projects": ["site"] })))]
pub struct Restriction {
    /// The slug of the organization.
    pub org: String,
    /// Of its projects these alone; with neither projects nor zones named, the whole organization.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub projects: Option<Vec<String>>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub zones: Option<Vec<String>>,
}

/// The token to create.
#[derive(Debug, Clone, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "restrict": { "org": "acme", "projects": ["site"] } })))]
pub struct NewAccessToken {
    pub name: Title,
    pub scopes: Vec<Scope>,
    /// In the future; left out, the token lives until it is revoked.
    #[serde(default)]
    pub expires_at: Option<Time>,
    #[serde(default)]
    pub restrict: Option<Restrict>,
}

/// What a token is to be limited to. Outside of it the token is answered as if its user were not there.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "org": "acme", "projects": ["site"] })))]
pub struct Restrict {
    /// The slug of an organization that the user belongs to.
    pub org: String,
    /// Names of projects in it.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 100))]
    pub projects: Option<Vec<String>>,
    /// Names of zones in it.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 100))]
    pub zones: Option<Vec<String>>,
}
