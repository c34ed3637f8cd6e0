//! Responses that do not change while the process runs. They are rendered once, and then served from memory.

use std::collections::HashMap;
use std::sync::OnceLock;

use actix_web::body::{BoxBody, MessageBody as _};
use actix_web::dev::ServiceRequest;
use actix_web::http::header::{HeaderName, HeaderValue, ORIGIN};
use actix_web::http::{Method, StatusCode};
use actix_web::web::Bytes;
use actix_web::{HttpResponse, web};

use super::Routes;
use super::guard::headers_within_limits;

/// The routes with static responses, by path.
#[derive(Debug, Default)]
pub(crate) struct StaticResponses(HashMap<&'static str, OnceLock<StaticResponse>>);

/// A stored response.
#[derive(Debug)]
pub(super) struct StaticResponse {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

impl StaticResponses {
    pub(crate) fn of(routes: &Routes) -> Self {
        let responses = routes.operations().filter(|operation| operation.is_static);
        Self(responses.map(|operation| (operation.path, OnceLock::new())).collect())
    }

    /// Returns whether the route of this path has a static response.
    pub(super) fn contains(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// Returns the key of the stored response, if the request may use one. A request with `Origin` may not, because its
    /// response needs CORS headers.
    pub(crate) fn key(request: &ServiceRequest) -> Option<(web::Data<Self>, &'static str)> {
        let responses = request.app_data::<web::Data<Self>>()?;
        let (path, _) = responses.0.get_key_value(request.path())?;
        let is_plain = request.method() == Method::GET && request.query_string().is_empty();
        let is_plain = is_plain && !request.headers().contains_key(ORIGIN) && headers_within_limits(request.headers());
        is_plain.then(|| (responses.clone(), *path))
    }

    /// Returns the stored response, if there is one. It lacks the headers that the telemetry middleware adds.
    pub(crate) fn get(&self, path: &str) -> Option<HttpResponse> {
        self.0.get(path)?.get().map(StaticResponse::respond)
    }

    /// Stores a successful response for later requests, and returns it.
    pub(crate) fn store(&self, path: &str, response: HttpResponse) -> HttpResponse {
        if response.status() != StatusCode::OK {
            return response;
        }
        let (response, body) = response.into_parts();
        match (self.0.get(path), body.try_into_bytes()) {
            (Some(slot), Ok(body)) => {
                // A concurrent request may have stored the same response.
                let _ = slot.set(StaticResponse::new(&response, body.clone()));
                response.set_body(BoxBody::new(body))
            }
            (_, Ok(body)) => response.set_body(BoxBody::new(body)),
            (_, Err(body)) => response.set_body(body),
        }
    }
}

impl StaticResponse {
    pub(super) fn new(head: &HttpResponse<()>, body: Bytes) -> Self {
        let headers = head.headers().iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        Self { status: head.status(), headers, body }
    }

    pub(super) fn respond(&self) -> HttpResponse {
        let mut response = HttpResponse::with_body(self.status, BoxBody::new(self.body.clone()));
        for (name, value) in &self.headers {
            response.headers_mut().append(name.clone(), value.clone());
        }
        response
    }
}
