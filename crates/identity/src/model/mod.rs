//! The wire types (contract section 2).

mod curve;
mod key;
mod token;

pub use key::*;
pub use token::*;

use kernel::{Email, Provider, SessionId, Time, Token, UserId};
use serde::{Deserialize, Serialize};
use validator::Validate;

kernel::text! {
    /// The user of the development login. The same subject always identifies the same user.
    pub struct Subject matches "^[a-z0-9-]{1,64}$" means "1 to 64 characters of a-z, 0-9 and -"
        example "ada"
}

/// A new login session. Only this response contains the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "token": "svc_ses_EXAMPLE-EXAMPLE-EXAMPLE-EXAMPLE-EXAMPLE-EXA",
        "expiresAt": "2026-12-21T08:00:00.000Z",
        "subject": "ada",
    }))
)]
pub struct Session {
    /// The credential to send as `Authorization: Bearer …`.
    pub token: Token,
    pub expires_at: Time,
    pub user_id: UserId,
    pub subject: String,
}

/// A login session of the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "userAgent": "svc/0.1.0", "current": true })))]
pub struct LoginSession {
    pub id: SessionId,
    pub created_at: Time,
    /// The last use, accurate to ten minutes. Null until the session is used more than ten minutes after the sign-in.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub last_used_at: Option<Time>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub user_agent: Option<String>,
    /// Whether the request uses this session.
    pub current: bool,
}

/// A user's profile, without the organizations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "subject": "ada",
        "name": "Ada",
        "email": "ada@example.org",
    }))
)]
pub struct Profile {
    pub id: UserId,
    pub provider: Provider,
    pub subject: String,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub name: Option<String>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub email: Option<String>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub avatar_url: Option<String>,
    pub created_at: Time,
}

/// The user to sign in with the development login.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "email": "ada@example.org", "name": "Ada" })))]
pub struct DevLogin {
    pub subject: Subject,
    /// Replaces the user's address if it is set.
    #[serde(default)]
    pub email: Option<Email>,
    /// Replaces the user's name if it is set.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 100))]
    pub name: Option<String>,
}
