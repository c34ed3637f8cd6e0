//! The metadata of the authorization server and of the protected resource, and the key set.

use actix_web::web::Data;
use kernel::{ClientId, ClockRng, Code, Scope};
use oauth::{KEY_SET_MAX_AGE_SECONDS, OAuth, OAuthError};
use serde::Serialize;
use utoipa::ToSchema;

use crate::authority::Open;
use crate::config::Config;
use crate::http::{Area, Cached, RequestHeaders};
use crate::problem::Problem;
use crate::protocol::PROTECTED_RESOURCE;

/// The time for which clients may cache the metadata. It changes only with the settings of the server.
const METADATA_MAX_AGE_SECONDS: i64 = 300;

const AUTHENTICATION_METHODS: [&str; 3] = ["none", "client_secret_basic", "client_secret_post"];

pub(super) fn routes(area: &mut Area<'_>) {
    area.get("metadata", "/.well-known/oauth-authorization-server", metadata)
        .summary("Get the metadata of the authorization server (RFC 8414)")
        .codes(&[&OAuthError::NOT_CONFIGURED]);
    area.get("protected_resource", PROTECTED_RESOURCE, protected_resource)
        .summary("Get the metadata of this API as a protected resource (RFC 9728)")
        .codes(&[&OAuthError::NOT_CONFIGURED, &Code::NOT_FOUND]);
    area.get("jwks", "/.well-known/jwks.json", jwks)
        .summary("Get the keys that sign access tokens (RFC 7517)")
        .description("The set has every key of a token that is still valid. Cache it for at most one minute.");
}

/// The metadata of the authorization server (RFC 8414 section 2).
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "issuer": "https://api.svc.example",
    "authorization_endpoint": "https://dashboard.svc.example/oauth/authorize",
    "token_endpoint": "https://api.svc.example/oauth/token",
    "revocation_endpoint": "https://api.svc.example/oauth/revoke",
    "jwks_uri": "https://api.svc.example/.well-known/jwks.json",
    "response_types_supported": ["code"],
    "response_modes_supported": ["query"],
    "grant_types_supported": ["authorization_code", "refresh_token"],
    "code_challenge_methods_supported": ["S256"],
    "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
    "revocation_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
    "authorization_response_iss_parameter_supported": true,
    "svc_access_token_audience": "https://api.svc.example",
}))]
struct AuthorizationServerMetadata {
    issuer: String,
    /// The page of the dashboard on which the user decides.
    authorization_endpoint: String,
    token_endpoint: String,
    revocation_endpoint: String,
    jwks_uri: String,
    /// The device authorization endpoint. Present if the device flow is on (RFC 8628 section 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    device_authorization_endpoint: Option<String>,
    scopes_supported: &'static [Scope],
    response_types_supported: [&'static str; 1],
    response_modes_supported: [&'static str; 1],
    grant_types_supported: Vec<&'static str>,
    code_challenge_methods_supported: [&'static str; 1],
    token_endpoint_auth_methods_supported: [&'static str; 3],
    revocation_endpoint_auth_methods_supported: [&'static str; 3],
    authorization_response_iss_parameter_supported: bool,
    /// The value of `aud` that a resource server must require.
    svc_access_token_audience: String,
    /// The client of `svc login --device`, if the operator registered one.
    #[serde(skip_serializing_if = "Option::is_none")]
    svc_cli_client_id: Option<ClientId>,
}

/// The metadata of a protected resource (RFC 9728 section 2).
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "resource": "https://api.svc.example",
    "authorization_servers": ["https://api.svc.example"],
    "bearer_methods_supported": ["header"],
}))]
struct ProtectedResourceMetadata {
    /// The audience of the access tokens.
    resource: String,
    authorization_servers: [String; 1],
    scopes_supported: &'static [Scope],
    bearer_methods_supported: [&'static str; 1],
}

/// A JWK set (RFC 7517 section 5).
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({ "keys": [{
    "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": "jwk_01m7yhx300fbd828t5cy4tqkff",
    "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
}] }))]
struct JwkSet {
    #[schema(value_type = Vec<Object>)]
    keys: serde_json::Value,
}

async fn metadata(
    _: Open,
    oauth: Data<OAuth>,
    config: Data<Config>,
    headers: RequestHeaders,
) -> Result<Cached<AuthorizationServerMetadata>, Problem> {
    let settings = oauth.config()?;
    let api = |path: &str| format!("{}{path}", config.site.public_url);
    let has_device_flow = settings.device_verification_uri.is_some();
    let mut grant_types = vec!["authorization_code", "refresh_token"];
    grant_types.extend(has_device_flow.then_some(super::token::DEVICE_CODE));
    let metadata = AuthorizationServerMetadata {
        issuer: settings.issuer.clone(),
        authorization_endpoint: format!("{}/oauth/authorize", config.site.dashboard_url),
        token_endpoint: api("/oauth/token"),
        revocation_endpoint: api("/oauth/revoke"),
        jwks_uri: api("/.well-known/jwks.json"),
        device_authorization_endpoint: has_device_flow.then(|| api("/oauth/device")),
        scopes_supported: Scope::ALL,
        response_types_supported: ["code"],
        response_modes_supported: ["query"],
        grant_types_supported: grant_types,
        code_challenge_methods_supported: ["S256"],
        token_endpoint_auth_methods_supported: AUTHENTICATION_METHODS,
        revocation_endpoint_auth_methods_supported: AUTHENTICATION_METHODS,
        authorization_response_iss_parameter_supported: true,
        svc_access_token_audience: settings.audience.clone(),
        svc_cli_client_id: settings.cli_client,
    };
    Cached::new(&metadata, METADATA_MAX_AGE_SECONDS, &headers)
}

async fn protected_resource(
    _: Open,
    oauth: Data<OAuth>,
    config: Data<Config>,
    headers: RequestHeaders,
) -> Result<Cached<ProtectedResourceMetadata>, Problem> {
    let settings = oauth.config()?;
    if !settings.is_resource_at(&config.site.public_url) {
        return Err(Problem::new(&Code::NOT_FOUND, "the audience of the access tokens is not the address of this API"));
    }
    let metadata = ProtectedResourceMetadata {
        resource: settings.audience.clone(),
        authorization_servers: [settings.issuer.clone()],
        scopes_supported: Scope::ALL,
        bearer_methods_supported: ["header"],
    };
    Cached::new(&metadata, METADATA_MAX_AGE_SECONDS, &headers)
}

async fn jwks(
    _: Open,
    oauth: Data<OAuth>,
    clock_rng: Data<ClockRng>,
    headers: RequestHeaders,
) -> Result<Cached<JwkSet>, Problem> {
    let keys = match oauth.config() {
        Ok(_) => oauth.keys().get().await?.jwks(clock_rng.now()),
        Err(_) => serde_json::json!([]),
    };
    Cached::new(&JwkSet { keys }, KEY_SET_MAX_AGE_SECONDS, &headers)
}
