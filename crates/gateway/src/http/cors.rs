//! Requests of browsers from pages of other origins (CORS).

use actix_cors::{Cors, CorsError};
use actix_web::dev::ServiceResponse;
use actix_web::http::header::{CONTENT_DISPOSITION, ETAG, RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::web::Data;

use crate::config::{Config, allows_every_origin};
use crate::problem::Problem;

const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
const HEADERS: [&str; 10] = [
    "authorization",
    "content-type",
    "if-match",
    "if-none-match",
    "idempotency-key",
    "x-request-id",
    "x-svc-git-commit",
    "x-svc-git-message",
    "x-svc-git-branch",
    "x-svc-git-dirty",
];

/// Allows the dashboard's origin (security rules, "HTTP"). No origin may send cookies.
pub(crate) fn cors(config: &Config) -> Cors {
    Cors::default()
        .allowed_origin(&config.dashboard_origin())
        .allowed_origin_fn(|_, request| allows_every_origin(request.uri.path()))
        .allowed_methods(METHODS)
        .allowed_headers(HEADERS)
        .expose_headers([CONTENT_DISPOSITION, ETAG, RETRY_AFTER, WWW_AUTHENTICATE])
        .expose_headers(["x-request-id", "ratelimit", "ratelimit-policy", "idempotent-replayed"])
        .max_age(600)
}

/// Returns the error of a preflight request that [`cors`] refused; `None` for any other response.
pub(super) fn refused_preflight<B>(response: &ServiceResponse<B>) -> Option<Problem> {
    let error = response.response().error()?.as_error::<CorsError>()?;
    let message = match error {
        CorsError::OriginNotAllowed => {
            let config = response.request().app_data::<Data<Config>>()?;
            format!("the API accepts requests from pages of {} only", config.dashboard_origin())
        }
        CorsError::MethodNotAllowed => {
            format!("pages of other origins can use only the methods {}", METHODS.join(", "))
        }
        CorsError::HeadersNotAllowed => {
            format!("pages of other origins can send only the headers {}", HEADERS.join(", "))
        }
        malformed => malformed.to_string(),
    };
    Some(Problem::bad_request(message))
}
