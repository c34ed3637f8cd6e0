//! The responses of handlers.

use std::marker::PhantomData;

use actix_web::HttpResponse;
use actix_web::cookie::Cookie;
use actix_web::http::header;
use futures_util::{Stream, StreamExt as _};
use kernel::error_chain;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::{Describe, IntoResponse, Operation};

/// 200 with a body.
#[derive(Debug)]
pub struct Json<T>(pub T);

/// 201 with a body.
#[derive(Debug)]
pub struct Created<T>(pub T);

/// 202 with a body: the operation that was started.
#[derive(Debug)]
pub struct Accepted<T>(pub T);

/// 201 with a new resource, or 200 with the existing one.
#[derive(Debug)]
pub enum CreatedOrExisting<T> {
    Created(T),
    Existing(T),
}

/// 200 with the resource, or 204 without one.
#[derive(Debug)]
pub struct JsonOrNoContent<T>(pub Option<T>);

/// 200 without a body.
#[derive(Debug)]
pub struct EmptyOk;

/// 204.
#[derive(Debug)]
pub struct NoContent;

/// 307 to another path of this API.
#[derive(Debug)]
pub struct TemporaryRedirect(pub &'static str);

/// 302 to the next step of a sign-in, with a cookie to set or to remove.
pub struct SignInRedirect {
    pub location: String,
    pub cookie: Cookie<'static>,
}

/// 200 with a body of any content type.
pub struct Bytes {
    response: HttpResponse,
}

impl<T: ToSchema> Describe for Json<T> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schema::<T>();
        operation.successes.push((200, "application/json", Some(schema)));
    }
}

impl<T: ToSchema + Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> HttpResponse {
        HttpResponse::Ok().json(self.0)
    }
}

impl<T: ToSchema> Describe for Created<T> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schema::<T>();
        operation.successes.push((201, "application/json", Some(schema)));
    }
}

impl<T: ToSchema + Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> HttpResponse {
        HttpResponse::Created().json(self.0)
    }
}

impl<T: ToSchema> Describe for Accepted<T> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schema::<T>();
        operation.successes.push((202, "application/json", Some(schema)));
    }
}

impl<T: ToSchema + Serialize> IntoResponse for Accepted<T> {
    fn into_response(self) -> HttpResponse {
        HttpResponse::Accepted().json(self.0)
    }
}

impl<T: ToSchema> Describe for CreatedOrExisting<T> {
    fn describe(operation: &mut Operation) {
        Created::<T>::describe(operation);
        Json::<T>::describe(operation);
    }
}

impl<T: ToSchema + Serialize> IntoResponse for CreatedOrExisting<T> {
    fn into_response(self) -> HttpResponse {
        match self {
            Self::Created(made) => Created(made).into_response(),
            Self::Existing(there) => Json(there).into_response(),
        }
    }
}

impl<T: ToSchema> Describe for JsonOrNoContent<T> {
    fn describe(operation: &mut Operation) {
        Json::<T>::describe(operation);
        NoContent::describe(operation);
    }
}

impl<T: ToSchema + Serialize> IntoResponse for JsonOrNoContent<T> {
    fn into_response(self) -> HttpResponse {
        self.0.map_or_else(|| NoContent.into_response(), |body| Json(body).into_response())
    }
}

impl Describe for NoContent {
    fn describe(operation: &mut Operation) {
        operation.successes.push((204, "", None));
    }
}

impl IntoResponse for NoContent {
    fn into_response(self) -> HttpResponse {
        HttpResponse::NoContent().finish()
    }
}

impl Describe for EmptyOk {
    fn describe(operation: &mut Operation) {
        operation.successes.push((200, "", None));
    }
}

impl IntoResponse for EmptyOk {
    fn into_response(self) -> HttpResponse {
        HttpResponse::Ok().finish()
    }
}

impl Describe for TemporaryRedirect {
    fn describe(operation: &mut Operation) {
        operation.successes.push((307, "", None));
    }
}

impl IntoResponse for TemporaryRedirect {
    fn into_response(self) -> HttpResponse {
        HttpResponse::TemporaryRedirect().insert_header((header::LOCATION, self.0)).finish()
    }
}

/// The derived implementation would show the location, whose fragment may contain a token.
impl std::fmt::Debug for SignInRedirect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignInRedirect(…)")
    }
}

impl Describe for SignInRedirect {
    fn describe(operation: &mut Operation) {
        operation.successes.push((302, "", None));
    }
}

impl IntoResponse for SignInRedirect {
    fn into_response(self) -> HttpResponse {
        HttpResponse::Found().insert_header((header::LOCATION, self.location)).cookie(self.cookie).finish()
    }
}

impl Bytes {
    /// Returns a body in memory.
    pub fn whole(content_type: &str, bytes: impl Into<actix_web::web::Bytes>) -> Self {
        let response = HttpResponse::Ok().insert_header((header::CONTENT_TYPE, content_type)).body(bytes.into());
        Self { response }
    }

    /// Returns a stream of `length` bytes.
    pub fn streamed<E: Into<Box<dyn std::error::Error>> + 'static>(
        content_type: &str,
        length: u64,
        bytes: impl Stream<Item = Result<actix_web::web::Bytes, E>> + 'static,
    ) -> Self {
        let bytes = bytes.map(|chunk| {
            chunk.map_err(|error| {
                let error: Box<dyn std::error::Error> = error.into();
                tracing::warn!(error = %error_chain(&*error), "failed to read the rest of a response");
                error
            })
        });
        let body = actix_web::body::SizedStream::new(length, bytes.boxed_local());
        Self { response: HttpResponse::Ok().insert_header((header::CONTENT_TYPE, content_type)).body(body) }
    }

    /// Sets a header.
    #[must_use]
    pub fn with_header(mut self, name: header::HeaderName, value: header::HeaderValue) -> Self {
        self.response.headers_mut().insert(name, value);
        self
    }
}

impl Describe for Bytes {
    fn describe(operation: &mut Operation) {
        operation.successes.push((200, "*/*", None));
    }
}

impl IntoResponse for Bytes {
    fn into_response(self) -> HttpResponse {
        self.response
    }
}

/// A type for the description of a [`super::Streamed`] response: 200 with one of two bodies.
#[derive(Debug)]
pub struct Either<A, B>(PhantomData<(A, B)>);

impl<A: ToSchema, B: ToSchema> Describe for Either<A, B> {
    fn describe(operation: &mut Operation) {
        let schema = json!({ "oneOf": [operation.schema::<A>(), operation.schema::<B>()] });
        operation.successes.push((200, "application/json", Some(schema)));
    }
}
