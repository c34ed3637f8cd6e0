//! Grants.

use kernel::{ClientId, GrantId, Scope, Time};
use serde::Serialize;

/// A grant of the caller to a connected app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "clientName": "Example app" })))]
pub struct Grant {
    /// The id of the grant, as in its access tokens.
    pub sid: GrantId,
    pub client_id: ClientId,
    pub client_name: String,
    pub scopes: Vec<Scope>,
    pub created_at: Time,
    /// The last use of one of its tokens, accurate to a minute.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub last_used_at: Option<Time>,
}
