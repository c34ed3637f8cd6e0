//! Authorization requests, as the dashboard forwards them for its user.

use kernel::ClientId;
use serde::{Deserialize, Serialize};
use validator::Validate;

kernel::words! {
    /// The response type (RFC 6749 section 3.1.1).
    pub enum ResponseType {
        /// An authorization code.
        Code = "code",
    } example Code
}

kernel::words! {
    /// The transformation of the code verifier (RFC 7636 section 4.2).
    pub enum CodeChallengeMethod {
        /// SHA-256.
        S256 = "S256",
    } example S256
}

kernel::text! {
    /// A code challenge: SHA-256 in base64url (RFC 7636 section 4.2).
    pub struct CodeChallenge matches "^[A-Za-z0-9_-]{43}$" means "43 characters of base64url"
    example "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
}

/// An authorization request with OAuth's own parameter names (RFC 6749 section 4.1.1, RFC 7636 section 4.3), and the
/// decision of the user.
#[derive(Debug, Clone, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "redirect_uri": "https://app.example/callback",
        "scope": "account:read project:read",
        "state": "af0ifjsldkj",
    }))
)]
pub struct AuthorizationRequest {
    pub response_type: ResponseType,
    pub client_id: ClientId,
    /// The redirect URI. It must equal a redirect URI of the client, except for the port of a loopback address.
    #[validate(length(min = 1, max = 1024))]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 1024))]
    pub redirect_uri: String,
    pub code_challenge: CodeChallenge,
    pub code_challenge_method: CodeChallengeMethod,
    /// The requested scopes, separated by spaces. If absent, all scopes that the client may have.
    #[serde(default)]
    #[validate(length(max = 1024))]
    #[cfg_attr(feature = "openapi", schema(max_length = 1024))]
    pub scope: Option<String>,
    /// A value that is returned to the client unchanged.
    #[serde(default)]
    #[validate(length(max = 2048))]
    #[cfg_attr(feature = "openapi", schema(max_length = 2048))]
    pub state: Option<String>,
    /// The audience of the access tokens (RFC 8707). If absent, the audience of this installation.
    #[serde(default)]
    #[validate(length(max = 1024))]
    #[cfg_attr(feature = "openapi", schema(max_length = 1024))]
    pub resource: Option<String>,
    /// Whether the user approved the request.
    #[serde(default = "super::approved")]
    pub approve: bool,
}

/// The redirect to the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "redirect": "https://app.example/callback?state=af0ifjsldkj&iss=https%3A%2F%2Fapi.svc.example&code=svc_oac_EXAMPLE-EXAMPLE-EXAMPLE-EXAMPLE-EXAMPLE-EXA",
    }))
)]
pub struct AuthorizationResponse {
    /// The URL to send the user's browser to. It contains `code`, or `error` and `error_description`. It also contains
    /// `state` and `iss` (RFC 9207).
    pub redirect: String,
}
