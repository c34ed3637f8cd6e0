//! Access policies of projects (specification, "Access control"; contract section 5).

use kernel::{AccessMode, Time, Token};
use serde::{Deserialize, Serialize};
use validator::Validate;

/// The access mode of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Access {
    pub mode: AccessMode,
}

/// The access policy of a project, without secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "hasPassword": false, "hasBypass": true })))]
pub struct AccessPolicy {
    pub mode: AccessMode,
    /// Whether a password is set. The password is kept when the mode changes.
    pub has_password: bool,
    /// Whether a bypass key exists.
    pub has_bypass: bool,
    /// The time of the last change of the policy. Initially the creation time of the project.
    pub updated_at: Time,
}

/// A change of the access policy.
#[derive(Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessChange {
    pub mode: AccessMode,
    /// The new password. If it is omitted, the current password is kept.
    #[serde(default)]
    #[validate(length(min = 8, max = 128))]
    #[cfg_attr(feature = "openapi", schema(format = Password, min_length = 8, max_length = 128))]
    pub password: Option<String>,
}

/// A new bypass key. Only this response contains it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "secret": "svc_byp_EXAMPLE-EXAMPLE-EXAMPLE-EXAMPLE-EXAMPLE-EXA",
    }))
)]
pub struct AccessBypass {
    /// The value for the header `Svc-Access-Bypass`.
    pub secret: Token,
    pub created_at: Time,
}

/// A request for access to a protected project, as a signed-in member.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "to": "www.example.org", "next": "/" })))]
pub struct Authorize {
    /// The hostname of the project.
    #[validate(length(min = 1, max = 1024))]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 1024))]
    pub to: String,
    /// The path on that hostname to return to.
    #[validate(length(min = 1, max = 4096))]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 4096))]
    #[cfg_attr(feature = "openapi", schema(pattern = r"^/(?:[^/\\\x00-\x1f\x7f-\x9f][^\\\x00-\x1f\x7f-\x9f]*)?$"))]
    #[cfg_attr(
        feature = "openapi",
        schema(extensions(("x-rule" = json!("a path: one leading slash, no backslash and no control characters"))))
    )]
    pub next: String,
}

/// The URL to redirect the browser to.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "redirect": "https://www.example.org/__svc/access/callback?code=EXAMPLE&next=%2F",
    }))
)]
pub struct AccessAuthorize {
    /// The URL. It contains a one-time code that grants access.
    #[cfg_attr(feature = "openapi", schema(format = Password))]
    pub redirect: String,
}

impl std::fmt::Debug for AccessChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessChange").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for AccessAuthorize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessAuthorize").finish_non_exhaustive()
    }
}
