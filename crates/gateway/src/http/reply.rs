//! What handlers answer.

use actix_web::HttpResponse;
use actix_web::cookie::Cookie;
use actix_web::http::header;
use futures_util::{Stream, StreamExt as _};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::{Describe, Operation, Reply};

/// 200 with a body.
#[derive(Debug)]
pub struct Json<T>(pub T);

/// 201 with a body.
#[derive(Debug)]
pub struct Created<T>(pub T);

/// 201 with what was made, or 200 with what was there before.
#[derive(Debug)]
pub enum Made<T> {
    New(T),
    Before(T),
}

/// 204.
#[derive(Debug)]
pub struct NoContent;

/// 307 to another place of this API.
#[derive(Debug)]
pub struct Moved(pub &'static str);

/// 302 to wherever a sign-in goes on, with a cookie to keep or to forget.
pub struct Redirect {
    pub location: String,
    pub cookie: Cookie<'static>,
}

/// 200 with bytes of a content type.
pub struct Bytes {
    response: HttpResponse,
}

impl<T: ToSchema> Describe for Json<T> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schema::<T>();
        operation.successes.push((200, "application/json", Some(schema)));
    }
}

impl<T: ToSchema + Serialize> Reply for Json<T> {
    fn respond(self) -> HttpResponse {
        HttpResponse::Ok().json(self.0)
    }
}

impl<T: ToSchema> Describe for Created<T> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schema::<T>();
        operation.successes.push((201, "application/json", Some(schema)));
    }
}

impl<T: ToSchema + Serialize> Reply for Created<T> {
    fn respond(self) -> HttpResponse {
        HttpResponse::Created().json(self.0)
    }
}

impl<T: ToSchema> Describe for Made<T> {
    fn describe(operation: &mut Operation) {
        Created::<T>::describe(operation);
        Json::<T>::describe(operation);
    }
}

impl<T: ToSchema + Serialize> Reply for Made<T> {
    fn respond(self) -> HttpResponse {
        match self {
            Self::New(made) => Created(made).respond(),
            Self::Before(there) => Json(there).respond(),
        }
    }
}

impl Describe for NoContent {
    fn describe(operation: &mut Operation) {
        operation.successes.push((204, "", None));
    }
}

impl Reply for NoContent {
    fn respond(self) -> HttpResponse {
        HttpResponse::NoContent().finish()
    }
}

impl Describe for Moved {
    fn describe(operation: &mut Operation) {
        operation.successes.push((307, "", None));
    }
}

impl Reply for Moved {
    fn respond(self) -> HttpResponse {
        HttpResponse::TemporaryRedirect().insert_header((header::LOCATION, self.0)).finish()
    }
}

/// Without the address, whose fragment may hold a token.
impl std::fmt::Debug for Redirect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Redirect(…)")
    }
}

impl Describe for Redirect {
    fn describe(operation: &mut Operation) {
        operation.successes.push((302, "", None));
    }
}

impl Reply for Redirect {
    fn respond(self) -> HttpResponse {
        HttpResponse::Found().insert_header((header::LOCATION, self.location)).cookie(self.cookie).finish()
    }
}

impl Bytes {
    /// All of them, at once.
    pub fn whole(content_type: &str, bytes: impl Into<actix_web::web::Bytes>) -> Self {
        let response = HttpResponse::Ok().insert_header((header::CONTENT_TYPE, content_type)).body(bytes.into());
        Self { response }
    }

    /// As they come; `length` of them.
    pub fn streamed<E: Into<Box<dyn std::error::Error>> + 'static>(
        content_type: &str,
        length: u64,
        bytes: impl Stream<Item = Result<actix_web::web::Bytes, E>> + 'static,
    ) -> Self {
        let body =
            actix_web::body::SizedStream::new(length, bytes.map(|chunk| chunk.map_err(Into::into)).boxed_local());
        Self { response: HttpResponse::Ok().insert_header((header::CONTENT_TYPE, content_type)).body(body) }
    }

    /// With a header of its own.
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

impl Reply for Bytes {
    fn respond(self) -> HttpResponse {
        self.response
    }
}

/// 200 with one of two bodies.
#[derive(Debug)]
pub enum Either<A, B> {
    Left(A),
    Right(B),
}

impl<A: ToSchema, B: ToSchema> Describe for Either<A, B> {
    fn describe(operation: &mut Operation) {
        let schema = json!({ "oneOf": [operation.schema::<A>(), operation.schema::<B>()] });
        operation.successes.push((200, "application/json", Some(schema)));
    }
}

impl<A: ToSchema + Serialize, B: ToSchema + Serialize> Reply for Either<A, B> {
    fn respond(self) -> HttpResponse {
        match self {
            Self::Left(body) => Json(body).respond(),
            Self::Right(body) => Json(body).respond(),
        }
    }
}
