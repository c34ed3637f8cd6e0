//! Who may see a project's deployments (specification, "Access control"; contract section 5).

use kernel::{AccessMode, Time, Token};
use serde::{Deserialize, Serialize};
use validator::Validate;

/// Who may see a project, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Access {
    pub mode: AccessMode,
}

/// Who may see a project, without any secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "hasPassword": false, "hasBypass": true })))]
pub struct AccessPolicy {
    pub mode: AccessMode,
    /// Whether a password was ever set; it is kept while another mode holds.
    pub has_password: bool,
    /// Whether there is a key that passes by the policy.
    pub has_bypass: bool,
    /// The project's creation until something was set.
    pub updated_at: Time,
}

/// The policy that is to hold.
#[derive(Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessChange {
    pub mode: AccessMode,
    /// Replaces the password; left out, the one there is stays.
    #[serde(default)]
    #[validate(length(min = 8, max = 128))]
    #[cfg_attr(feature = "openapi", schema(format = Password, min_length = 8, max_length = 128))]
    pub password: Option<String>,
}

/// A fresh bypass key: the one answer that holds it.
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
    /// What to send as `Svc-Access-Bypass`.
    pub secret: Token,
    pub created_at: Time,
}

/// The middle of the round trip that lets a member in.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "to": "www.example.org", "next": "/" })))]
pub struct Authorize {
    /// The hostname that the browser comes from.
    #[validate(length(min = 1, max = 1024))]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 1024))]
    pub to: String,
    /// The path it goes back to.
    #[validate(length(min = 1, max = 4096))]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 4096))]
    #[cfg_attr(feature = "openapi", schema(pattern = r"^/(?:[^/\\\x00-\x1f\x7f-\x9f][^\\\x00-\x1f\x7f-\x9f]*)?$"))]
    pub next: String,
}

/// Where to move the browser.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "redirect": "https://www.example.org/__svc/access/callback?code=EXAMPLE&next=%2F",
    }))
)]
pub struct AccessAuthorize {
    /// Holds a code: whoever has it, gets in.
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
