//! Responses that clients may cache.

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, ETAG, HeaderValue};
use kernel::Digest;
use serde::Serialize;
use std::marker::PhantomData;
use utoipa::ToSchema;

use super::{Describe, IntoResponse, Operation, RequestHeaders};
use crate::problem::Problem;

/// A response of 200 with a body, its strong `ETag` and a maximum age, or of 304 if the client already has this body
/// (RFC 9110 section 13.1.2).
#[derive(Debug)]
pub struct Cached<T> {
    /// The body. `None` if the client already has it.
    body: Option<Vec<u8>>,
    etag: String,
    max_age_seconds: i64,
    of: PhantomData<T>,
}

impl<T: Serialize> Cached<T> {
    /// Renders the body, and compares it with `If-None-Match`.
    ///
    /// # Errors
    /// Returns 500 if the body cannot be serialized.
    pub fn new(body: &T, max_age_seconds: i64, headers: &RequestHeaders) -> Result<Self, Problem> {
        let body = serde_json::to_vec(body).map_err(|error| Problem::internal(error.to_string()))?;
        let etag = format!("\"{}\"", Digest::of(&body));
        let known = headers.get("if-none-match").unwrap_or_default();
        // The comparison is weak (section 13.1.2).
        let is_known = known.trim() == "*"
            || known.split(',').any(|tag| tag.trim().strip_prefix("W/").unwrap_or(tag.trim()) == etag);
        Ok(Self { body: (!is_known).then_some(body), etag, max_age_seconds, of: PhantomData })
    }
}

impl<T: ToSchema> Describe for Cached<T> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schema::<T>();
        operation.successes.push((200, "application/json", Some(schema)));
        operation.successes.push((304, "", None));
        operation.header("If-None-Match", "The `ETag` of a response that the client has.");
        operation.has_etag = true;
    }
}

impl<T: ToSchema> IntoResponse for Cached<T> {
    fn into_response(self) -> HttpResponse {
        let mut response = match self.body {
            Some(body) => HttpResponse::Ok().content_type("application/json").body(body),
            None => HttpResponse::NotModified().finish(),
        };
        let headers = response.headers_mut();
        let max_age = format!("public, max-age={}", self.max_age_seconds);
        for (name, value) in [(ETAG, self.etag), (CACHE_CONTROL, max_age)] {
            // Hex digits and numbers are always valid in a header.
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
        response
    }
}
