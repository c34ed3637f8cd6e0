//! The token endpoint, the revocation endpoint and the device authorization endpoint.

use std::sync::LazyLock;

use actix_web::web::Data;
use oauth::{AuthenticatedClient, CodeExchange, DeviceAuthorization, OAuth, OAuthError, RefreshRequest, TokenResponse};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;
use serde::Deserialize;
use utoipa::ToSchema;
use validator::Validate;

use super::client::ClientRequest;
use super::response::{Empty, Uncached};
use crate::authority::{DeviceCaller, RevokeCaller, TokenCaller};
use crate::http::{Area, Form};
use crate::limits::OAuthEndpoint;
use crate::problem::Problem;

/// The grant type of the device flow (RFC 8628 section 3.4).
pub(super) const DEVICE_CODE: &str = "urn:ietf:params:oauth:grant-type:device_code";

pub(super) fn routes(area: &mut Area<'_>) {
    area.post("token", "/oauth/token", token)
        .summary("Exchange a code, a refresh token or a device code for tokens")
        .description(
            "A public client sends `client_id`. A confidential client also sends its secret, in the form or with HTTP \
             Basic. A refresh token is used once: the response has the next one, and a second use ends the grant.",
        )
        .codes(&[
            &OAuthError::INVALID_GRANT,
            &OAuthError::UNAUTHORIZED_CLIENT,
            &OAuthError::UNSUPPORTED_GRANT_TYPE,
            &OAuthError::INVALID_SCOPE,
            &OAuthError::INVALID_TARGET,
            &OAuthError::AUTHORIZATION_PENDING,
            &OAuthError::SLOW_DOWN,
            &OAuthError::ACCESS_DENIED,
            &OAuthError::EXPIRED_TOKEN,
        ]);
    area.post("revoke", "/oauth/revoke", revoke)
        .summary("End the grant of a refresh token or an access token (RFC 7009)")
        .description("The response is the same for a token that is unknown or belongs to another client.");
    area.post("device", "/oauth/device", device)
        .summary("Start the sign-in of a device without a browser (RFC 8628)")
        .codes(&[&OAuthError::UNAUTHORIZED_CLIENT, &OAuthError::INVALID_SCOPE]);
}

/// A token request. The grant type determines which parameters are used.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[schema(example = json!({
    "grant_type": "refresh_token",
    "refresh_token": "svc_ort_EXAMPLE-EXAMPLE-EXAMPLE-EXAMPLE-EXAMPLE-EXA",
    "client_id": "app_01m7yhx300fbd828t5cy4tqkff",
}))]
struct TokenForm {
    /// The grant type: `authorization_code`, `refresh_token` or `urn:ietf:params:oauth:grant-type:device_code`.
    #[serde(default)]
    grant_type: Option<String>,
    #[serde(default)]
    code: Option<String>,
    /// The redirect URI of the authorization request.
    #[serde(default)]
    redirect_uri: Option<String>,
    /// The code verifier (RFC 7636).
    #[serde(default)]
    code_verifier: Option<String>,
    #[serde(default)]
    refresh_token: Option<String>,
    #[serde(default)]
    device_code: Option<String>,
    /// The scopes of the access token, if they are only a part of the grant's scopes. Applies only to a refresh.
    #[serde(default)]
    scope: Option<String>,
    /// The audience of the access token (RFC 8707).
    #[serde(default)]
    resource: Option<String>,
    #[serde(default)]
    client_id: Option<String>,
    #[serde(default)]
    client_secret: Option<String>,
}

/// A revocation request (RFC 7009 section 2.1).
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[schema(example = json!({ "token": "svc_ort_EXAMPLE-EXAMPLE-EXAMPLE-EXAMPLE-EXAMPLE-EXA", "client_id": "app_01m7yhx300fbd828t5cy4tqkff" }))]
struct RevokeForm {
    /// A refresh token or an access token. `token_type_hint` has no effect, because the server recognizes the kind.
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    client_id: Option<String>,
    #[serde(default)]
    client_secret: Option<String>,
}

/// A device authorization request (RFC 8628 section 3.1).
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[schema(example = json!({ "client_id": "app_01m7yhx300fbd828t5cy4tqkff", "scope": "account:read deploy" }))]
struct DeviceForm {
    /// The requested scopes, separated by spaces. If absent, all scopes that the client may have.
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    client_id: Option<String>,
    #[serde(default)]
    client_secret: Option<String>,
}

async fn token(
    by: TokenCaller,
    request: ClientRequest,
    oauth: Data<OAuth>,
    Form(form): Form<TokenForm>,
) -> Result<Uncached<TokenResponse>, Problem> {
    let (client_id, client_secret) = (form.client_id.clone(), form.client_secret.clone());
    let client = request.authenticate(OAuthEndpoint::Token, client_id, client_secret).await?;
    let grant_type = form.grant_type.clone();
    let result = grant_tokens(&oauth, &client, form, &by.actor.request_id).await;
    count(grant_type.as_deref(), &result);
    Ok(Uncached(result?))
}

async fn grant_tokens(
    oauth: &OAuth,
    client: &AuthenticatedClient,
    form: TokenForm,
    request_id: &str,
) -> Result<TokenResponse, OAuthError> {
    let TokenForm {
        grant_type, code, redirect_uri, code_verifier, refresh_token, device_code, scope, resource, ..
    } = form;
    match grant_type.as_deref() {
        Some("authorization_code") => {
            let exchange = CodeExchange {
                code: code.ok_or(OAuthError::InvalidRequest("code is required"))?,
                redirect_uri: redirect_uri.ok_or(OAuthError::InvalidRequest("redirect_uri is required"))?,
                code_verifier: code_verifier.ok_or(OAuthError::InvalidRequest("code_verifier is required"))?,
                resource,
            };
            oauth.exchange_code(client, exchange, request_id).await
        }
        Some("refresh_token") => {
            let refresh_token = refresh_token.ok_or(OAuthError::InvalidRequest("refresh_token is required"))?;
            oauth.refresh(client, RefreshRequest { refresh_token, scope, resource }, request_id).await
        }
        Some(DEVICE_CODE) => {
            let device_code = device_code.ok_or(OAuthError::InvalidRequest("device_code is required"))?;
            oauth.exchange_device_code(client, &device_code, resource.as_deref(), request_id).await
        }
        Some(_) => Err(OAuthError::UnsupportedGrantType),
        None => Err(OAuthError::InvalidRequest("grant_type is required")),
    }
}

async fn revoke(
    by: RevokeCaller,
    request: ClientRequest,
    oauth: Data<OAuth>,
    Form(form): Form<RevokeForm>,
) -> Result<Empty, Problem> {
    let client = request.authenticate(OAuthEndpoint::Revoke, form.client_id, form.client_secret).await?;
    let token = form.token.ok_or(OAuthError::InvalidRequest("token is required"))?;
    oauth.revoke(&client, &token, &by.actor.request_id).await?;
    Ok(Empty)
}

async fn device(
    _: DeviceCaller,
    request: ClientRequest,
    oauth: Data<OAuth>,
    Form(form): Form<DeviceForm>,
) -> Result<Uncached<DeviceAuthorization>, Problem> {
    let client = request.authenticate(OAuthEndpoint::Device, form.client_id, form.client_secret).await?;
    Ok(Uncached(oauth.device_authorize(&client, form.scope.as_deref(), request.address()).await?))
}

/// Counts the response to an authenticated client, as a metric.
fn count(grant_type: Option<&str>, result: &Result<TokenResponse, OAuthError>) {
    static RESPONSES: LazyLock<Counter<u64>> = LazyLock::new(|| {
        opentelemetry::global::meter("svc")
            .u64_counter("svc.oauth.token_responses")
            .with_description("Responses of the token endpoint to authenticated clients, by grant type and outcome")
            .build()
    });
    let grant_type = match grant_type {
        Some("authorization_code") => "authorization_code",
        Some("refresh_token") => "refresh_token",
        Some(DEVICE_CODE) => "device_code",
        _ => "other",
    };
    let outcome = match result {
        Ok(_) => "ok",
        Err(error) => kernel::ApiError::code(error).name,
    };
    RESPONSES.add(1, &[KeyValue::new("grant_type", grant_type), KeyValue::new("outcome", outcome)]);
}
