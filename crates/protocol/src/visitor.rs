//! The access round trip: a node redeems the code that a visitor brought back from the dashboard.

use serde::{Deserialize, Serialize};

/// A code that a visitor brought back from the dashboard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, validator::Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RedeemRequest {
    /// The hostname that the visitor is at.
    #[cfg_attr(feature = "openapi", schema(max_length = 255), validate(length(max = 255)))]
    pub host: String,
    #[cfg_attr(feature = "openapi", schema(max_length = 1024), validate(length(max = 1024)))]
    pub code: String,
}

/// The visitor and the project of a valid code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RedeemResult {
    /// an id that starts with prj_
    #[cfg_attr(feature = "openapi", schema(pattern = "^prj_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub project: String,
    /// an id that starts with usr_
    #[cfg_attr(feature = "openapi", schema(pattern = "^usr_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub user: String,
}
