//! The formats of GitHub's endpoints.

use hyper::header::ACCEPT;
use serde_json::{Value, json};
use url::form_urlencoded::Serializer;

use super::TokenError;
use crate::http::{Request, Response};

/// Returns the response of the token endpoint with a token.
pub(crate) fn token(request: &Request, token: &str, scope: &str) -> Response {
    form_or_json(request, &[("access_token", token), ("token_type", "bearer"), ("scope", scope)])
}

/// Returns the response of the token endpoint with an error. Its status is 200.
pub(crate) fn refuse(request: &Request, error: TokenError) -> Response {
    let code = match error {
        TokenError::GrantType => "unsupported_grant_type",
        TokenError::Client => "incorrect_client_credentials",
        TokenError::Code => "bad_verification_code",
        TokenError::RedirectUri => "redirect_uri_mismatch",
    };
    form_or_json(request, &[("error", code), ("error_description", "A description of the error.")])
}

/// Returns an error of the API.
pub(crate) fn api_error(status: u16, message: &str) -> Response {
    Response { status, ..Response::json(&json!({ "message": message, "status": status.to_string() })) }
}

/// Encodes a response as a form, unless the request asks for JSON.
fn form_or_json(request: &Request, fields: &[(&str, &str)]) -> Response {
    if request.header(ACCEPT).contains("application/json") {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
        return Response::json(&fields.collect());
    }
    let form = Serializer::new(String::new()).extend_pairs(fields).finish();
    Response::new(200, "application/x-www-form-urlencoded; charset=utf-8", form)
}
