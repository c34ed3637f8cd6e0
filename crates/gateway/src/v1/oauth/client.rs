//! The authentication of clients (RFC 6749 section 2.3).

use std::net::IpAddr;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::web::Data;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kernel::Secret;
use oauth::{AuthenticatedClient, ClientAuthentication, OAuth, OAuthError};
use store::Store;

use crate::authority::rate_limit_address;
use crate::http::{Describe, Extract, Operation, RequestHeaders, percent_decoded};
use crate::limits::{Limiters, OAuthEndpoint};
use crate::problem::Problem;
use crate::protocol;

/// A request whose client is not authenticated yet.
pub(super) struct ClientRequest {
    request: HttpRequest,
    headers: RequestHeaders,
    oauth: Data<OAuth>,
    limiters: Data<Limiters>,
    store: Data<Store>,
}

impl Describe for ClientRequest {
    fn describe(operation: &mut Operation) {
        operation.authenticates_client = true;
        operation.codes(&[
            &OAuthError::NOT_CONFIGURED,
            &OAuthError::INVALID_REQUEST,
            &OAuthError::INVALID_CLIENT,
            &protocol::INVALID_CLIENT,
        ]);
    }
}

impl Extract for ClientRequest {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let oauth = Data::<OAuth>::extract(request, payload).await?;
        oauth.config()?;
        Ok(Self {
            request: request.clone(),
            headers: RequestHeaders::extract(request, payload).await?,
            oauth,
            limiters: Data::<Limiters>::extract(request, payload).await?,
            store: Data::<Store>::extract(request, payload).await?,
        })
    }
}

impl ClientRequest {
    /// Authenticates the client by the header `Authorization` or by the form, and counts the request against its limit.
    /// A failed authentication counts only against the address (contract section 3). Anyone can state the id of a public
    /// client, so each address has its own limit there. Otherwise one address could block an app for all its users.
    pub(super) async fn authenticate(
        &self,
        endpoint: OAuthEndpoint,
        client_id: Option<String>,
        client_secret: Option<String>,
    ) -> Result<AuthenticatedClient, Problem> {
        let has_header = self.headers.has("authorization");
        let authentication = match (has_header, client_id, client_secret) {
            (true, _, Some(_)) => {
                return Err(OAuthError::InvalidRequest("use one method of client authentication, not two").into());
            }
            (true, client_id, None) => {
                let basic = self.headers.get("authorization").and_then(basic).ok_or_else(malformed_header)?;
                if client_id.is_some_and(|id| id != basic.client_id) {
                    return Err(OAuthError::InvalidRequest("client_id differs from the user name of Basic").into());
                }
                basic
            }
            (false, Some(client_id), secret) => ClientAuthentication { client_id, secret: secret.map(Secret::new) },
            (false, None, _) => return Err(OAuthError::InvalidRequest("client_id is required").into()),
        };
        let client = match self.oauth.authenticate_client(authentication).await {
            Err(error @ OAuthError::InvalidClient) if has_header => {
                return Err(Problem::invalid_client(error.to_string()));
            }
            client => client?,
        };
        let address = (!client.is_confidential()).then(|| self.address());
        self.limiters.count_client(&self.request, &self.store, endpoint, (client.id(), address)).await?;
        Ok(client)
    }

    /// Returns the address to which rate limits apply.
    pub(super) fn address(&self) -> IpAddr {
        rate_limit_address(&self.request)
    }
}

fn malformed_header() -> Problem {
    Problem::invalid_client("send Authorization: Basic with the client's id and secret, or leave the header out")
}

/// Parses `Basic` credentials. The id and the secret are form-encoded before they are joined (RFC 6749 section 2.3.1).
fn basic(header: &str) -> Option<ClientAuthentication> {
    let (scheme, credentials) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(credentials.trim()).ok()?).ok()?;
    let (id, secret) = text.split_once(':')?;
    let decoded = |text: &str| percent_decoded(&text.replace('+', " "));
    let secret = Some(decoded(secret)?).filter(|secret| !secret.is_empty()).map(Secret::new);
    Some(ClientAuthentication { client_id: decoded(id)?, secret })
}
