//! Personal access tokens (contract sections 1 and 2).

use kernel::{NAME_PATTERN, Scope, Time, Token, TokenId};
use serde::{Deserialize, Serialize};
use validator::Validate;

kernel::text! {
    /// A name that a user gives a credential.
    pub struct Title matches NAME_PATTERN up to 100 characters
        means "1 to 100 characters, one of them visible, without control or text direction characters" example "laptop"
}

/// A personal access token, without its secret.
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
    /// The token's restriction. Null if the token can access everything that its user can.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub restrict: Option<Restriction>,
    /// The first 12 characters of the token.
    pub prefix: String,
    pub created_at: Time,
    /// The time at which the token expires. Null if it does not expire.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub expires_at: Option<Time>,
    /// The last use, accurate to ten minutes.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub last_used_at: Option<Time>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub revoked_at: Option<Time>,
}

/// A new access token. Only this response contains its secret.
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
    pub metadata: AccessToken,
    /// The credential to send as `Authorization: Bearer …`, or as the password of `Basic`.
    pub token: Token,
}

/// The targets that a token is restricted to, by their current names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "org": "acme", "projects": ["site"] })))]
pub struct Restriction {
    /// The slug of the organization.
    pub org: String,
    /// The projects that the token can access. Without projects and zones, it can access the whole organization.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub projects: Option<Vec<String>>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub zones: Option<Vec<String>>,
}

/// An access token to create.
#[derive(Debug, Clone, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "restrict": { "org": "acme", "projects": ["site"] } })))]
pub struct NewAccessToken {
    pub name: Title,
    pub scopes: Vec<Scope>,
    /// The expiry, in the future. Without it, the token is valid until it is revoked.
    #[serde(default)]
    pub expires_at: Option<Time>,
    #[serde(default)]
    pub restrict: Option<Restrict>,
}

/// The restriction of a new token. Outside the restriction, the API treats the token as if its user had no access.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "org": "acme", "projects": ["site"] })))]
pub struct Restrict {
    /// The slug of an organization that the user belongs to.
    pub org: String,
    /// The names of projects in the organization.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 100))]
    pub projects: Option<Vec<String>>,
    /// The names of zones in the organization.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 100))]
    pub zones: Option<Vec<String>>,
}
