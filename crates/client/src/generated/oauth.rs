//! Connected apps: the OAuth 2.0 authorization server.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::{Scope, Time};
use crate::{Call, Client, Page, Paging, open_enum};

/// An authorization request with OAuth's own parameter names (RFC 6749 section 4.1.1, RFC 7636 section 4.3), and the
/// decision of the user.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthorizationRequest {
    /// Whether the user approved the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approve: Option<bool>,
    #[serde(rename = "client_id")]
    pub client_id: ClientId,
    #[serde(rename = "code_challenge")]
    pub code_challenge: CodeChallenge,
    #[serde(rename = "code_challenge_method")]
    pub code_challenge_method: CodeChallengeMethod,
    /// The redirect URI. It must equal a redirect URI of the client, except for the port of a loopback address.
    #[serde(rename = "redirect_uri")]
    pub redirect_uri: String,
    /// The audience of the access tokens (RFC 8707). If absent, the audience of this installation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    #[serde(rename = "response_type")]
    pub response_type: ResponseType,
    /// The requested scopes, separated by spaces. If absent, all scopes that the client may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// A value that is returned to the client unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// The redirect to the client.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthorizationResponse {
    /// The URL to send the user's browser to. It contains `code`, or `error` and `error_description`. It also contains
    /// `state` and `iss` (RFC 9207).
    pub redirect: String,
}

/// The metadata of the authorization server (RFC 8414 section 2).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthorizationServerMetadata {
    /// The page of the dashboard on which the user decides.
    #[serde(rename = "authorization_endpoint")]
    pub authorization_endpoint: String,
    #[serde(rename = "authorization_response_iss_parameter_supported")]
    pub authorization_response_iss_parameter_supported: bool,
    #[serde(rename = "code_challenge_methods_supported")]
    pub code_challenge_methods_supported: Vec<String>,
    /// The device authorization endpoint. Present if the device flow is on (RFC 8628 section 4).
    #[serde(rename = "device_authorization_endpoint")]
    pub device_authorization_endpoint: Option<String>,
    #[serde(rename = "grant_types_supported")]
    pub grant_types_supported: Vec<String>,
    pub issuer: String,
    #[serde(rename = "jwks_uri")]
    pub jwks_uri: String,
    #[serde(rename = "response_modes_supported")]
    pub response_modes_supported: Vec<String>,
    #[serde(rename = "response_types_supported")]
    pub response_types_supported: Vec<String>,
    #[serde(rename = "revocation_endpoint")]
    pub revocation_endpoint: String,
    #[serde(rename = "revocation_endpoint_auth_methods_supported")]
    pub revocation_endpoint_auth_methods_supported: Vec<String>,
    #[serde(rename = "scopes_supported")]
    pub scopes_supported: Vec<Scope>,
    /// The value of `aud` that a resource server must require.
    #[serde(rename = "svc_access_token_audience")]
    pub svc_access_token_audience: String,
    /// The client of `svc login --device`, if the operator registered one.
    #[serde(rename = "svc_cli_client_id")]
    pub svc_cli_client_id: Option<ClientId>,
    #[serde(rename = "token_endpoint")]
    pub token_endpoint: String,
    #[serde(rename = "token_endpoint_auth_methods_supported")]
    pub token_endpoint_auth_methods_supported: Vec<String>,
}

/// an id that starts with app_
pub type ClientId = String;

/// 43 characters of base64url
pub type CodeChallenge = String;

open_enum! {
    pub enum CodeChallengeMethod {
        S256 = "S256",
    }
}

/// A client as a user sees it before the decision.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsentClient {
    pub client_id: ClientId,
    pub name: String,
    /// The hosts to which the client may redirect, or the schemes of a native app.
    pub redirect_hosts: Vec<String>,
    /// The scopes that the client may have.
    pub scopes: Vec<Scope>,
}

/// The request of a device as a user sees it before the decision.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceConsent {
    pub client_id: ClientId,
    pub expires_at: Time,
    pub name: String,
    pub scopes: Vec<Scope>,
    pub user_code: String,
}

/// The decision about the request of a device.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceDecision {
    /// Whether the user approves the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approve: Option<bool>,
    /// The code that the device shows. Case, hyphens and spaces do not matter.
    pub user_code: String,
}

/// A grant of the caller to a connected app.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    pub client_id: ClientId,
    pub client_name: String,
    pub created_at: Time,
    /// The last use of one of its tokens, accurate to a minute.
    pub last_used_at: Option<Time>,
    pub scopes: Vec<Scope>,
    /// The id of the grant, as in its access tokens.
    pub sid: GrantId,
}

/// an id that starts with gnt_
pub type GrantId = String;

pub type GrantPage = Page<Grant>;

/// A JWK set (RFC 7517 section 5).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JwkSet {
    pub keys: Vec<serde_json::Map<String, serde_json::Value>>,
}

/// The metadata of a protected resource (RFC 9728 section 2).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProtectedResourceMetadata {
    #[serde(rename = "authorization_servers")]
    pub authorization_servers: Vec<String>,
    #[serde(rename = "bearer_methods_supported")]
    pub bearer_methods_supported: Vec<String>,
    /// The audience of the access tokens.
    pub resource: String,
    #[serde(rename = "scopes_supported")]
    pub scopes_supported: Vec<Scope>,
}

open_enum! {
    pub enum ResponseType {
        Code = "code",
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OauthJwksHeaders {
    /// The `ETag` of a response that the client has.
    pub if_none_match: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OauthMetadataHeaders {
    /// The `ETag` of a response that the client has.
    pub if_none_match: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct OauthProtectedResourceHeaders {
    /// The `ETag` of a response that the client has.
    pub if_none_match: Option<String>,
}

impl Client {
    /// Approve or deny the authorization request of an app
    ///
    /// `POST /v1/oauth/authorize`
    pub fn oauth_authorize(&self, body: &AuthorizationRequest) -> Call<AuthorizationResponse> {
        self.operation("oauth.authorize", Method::POST, &["v1", "oauth", "authorize"]).idempotent().json(body)
    }

    /// Get the app that an authorization request names
    ///
    /// `GET /v1/oauth/clients/{clientId}`
    pub fn oauth_client(&self, client_id: &str) -> Call<ConsentClient> {
        self.operation("oauth.client", Method::GET, &["v1", "oauth", "clients", client_id])
    }

    /// Approve or deny the request of a device
    ///
    /// `POST /v1/oauth/device/approve`
    pub fn oauth_device_decide(&self, body: &DeviceDecision) -> Call<()> {
        self.operation("oauth.device_decide", Method::POST, &["v1", "oauth", "device", "approve"])
            .idempotent()
            .json(body)
    }

    /// Get the undecided request of a device, by the code that it shows
    ///
    /// `GET /v1/oauth/device/{userCode}`
    pub fn oauth_device_request(&self, user_code: &str) -> Call<DeviceConsent> {
        self.operation("oauth.device_request", Method::GET, &["v1", "oauth", "device", user_code])
    }

    /// End a grant; its tokens are rejected from the next request on
    ///
    /// `DELETE /v1/oauth/grants/{sid}`
    pub fn oauth_grant_revoke(&self, sid: &str) -> Call<()> {
        self.operation("oauth.grant_revoke", Method::DELETE, &["v1", "oauth", "grants", sid])
    }

    /// List the caller's grants to apps, newest first
    ///
    /// `GET /v1/oauth/grants`
    pub fn oauth_grants(&self, query: &Paging) -> Call<GrantPage> {
        self.operation("oauth.grants", Method::GET, &["v1", "oauth", "grants"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Get the keys that sign access tokens (RFC 7517)
    ///
    /// `GET /.well-known/jwks.json`
    pub fn oauth_jwks(&self, header: &OauthJwksHeaders) -> Call<JwkSet> {
        self.operation("oauth.jwks", Method::GET, &[".well-known", "jwks.json"])
            .header("If-None-Match", header.if_none_match.as_ref())
    }

    /// Get the metadata of the authorization server (RFC 8414)
    ///
    /// `GET /.well-known/oauth-authorization-server`
    pub fn oauth_metadata(&self, header: &OauthMetadataHeaders) -> Call<AuthorizationServerMetadata> {
        self.operation("oauth.metadata", Method::GET, &[".well-known", "oauth-authorization-server"])
            .header("If-None-Match", header.if_none_match.as_ref())
    }

    /// Get the metadata of this API as a protected resource (RFC 9728)
    ///
    /// `GET /.well-known/oauth-protected-resource`
    pub fn oauth_protected_resource(&self, header: &OauthProtectedResourceHeaders) -> Call<ProtectedResourceMetadata> {
        self.operation("oauth.protected_resource", Method::GET, &[".well-known", "oauth-protected-resource"])
            .header("If-None-Match", header.if_none_match.as_ref())
    }
}
