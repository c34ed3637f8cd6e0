//! Tokens: short-lived logins of a database.

use kernel::{DatabaseTokenId, NAME_PATTERN, Time};
use serde::{Deserialize, Serialize};
use validator::Validate;

use super::Password;

kernel::text! {
    /// A name that a user gives a token of a database.
    pub struct TokenName matches NAME_PATTERN up to 64 characters
        means "1 to 64 characters, one of them visible, without control or text direction characters" example "reports"
}

/// A token to create.
#[derive(Debug, Clone, Default, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "name": "reports", "expiresInSeconds": 3600 })))]
pub struct NewDatabaseToken {
    #[serde(default)]
    pub name: Option<TokenName>,
    /// The lifetime in seconds. Without it, the token is valid until it is revoked.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(minimum = 60, maximum = 2_592_000))]
    #[validate(range(min = 60, max = 2_592_000))]
    pub expires_in_seconds: Option<i64>,
}

/// A login of a database. Its sessions have the role of the project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "name": "reports", "expiresAt": "2026-11-21T09:00:00.000Z" })))]
pub struct DatabaseToken {
    /// The id of the token, which is also the user name of its logins.
    pub user: DatabaseTokenId,
    /// The password. Present only in the response that creates the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Password>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub name: Option<String>,
    pub created_at: Time,
    /// The time at which the token expires. Null if it is valid until it is revoked.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub expires_at: Option<Time>,
}
