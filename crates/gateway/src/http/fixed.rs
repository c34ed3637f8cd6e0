//! Answers that stay what they are for as long as the process lives: given as any other once, and from memory from then on.

use std::collections::HashMap;
use std::sync::OnceLock;

use actix_web::body::{BoxBody, MessageBody as _};
use actix_web::dev::ServiceRequest;
use actix_web::http::header::{HeaderName, HeaderValue, ORIGIN};
use actix_web::http::{Method, StatusCode};
use actix_web::web::Bytes;
use actix_web::{HttpResponse, web};

use super::Routes;
use super::guard::is_modest;

/// The routes whose answers are fixed, by path.
#[derive(Debug, Default)]
pub(crate) struct Fixed(HashMap<&'static str, OnceLock<Kept>>);

/// An answer as the layers below [`super::observe`] gave it.
#[derive(Debug)]
pub(crate) struct Kept {
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

impl Fixed {
    pub(crate) fn of(routes: &Routes) -> Self {
        let fixed = routes.operations().filter(|operation| operation.fixed);
        Self(fixed.map(|operation| (operation.path, OnceLock::new())).collect())
    }

    /// Where the answer to this request is kept. What is asked from another origin is answered by origin.
    pub(crate) fn place(request: &ServiceRequest) -> Option<(web::Data<Self>, &'static str)> {
        let fixed = request.app_data::<web::Data<Self>>()?;
        let (path, _) = fixed.0.get_key_value(request.path())?;
        let plain = request.method() == Method::GET && request.query_string().is_empty();
        let plain = plain && !request.headers().contains_key(ORIGIN) && is_modest(request.headers());
        plain.then(|| (fixed.clone(), *path))
    }

    /// The answer, once there has been one.
    pub(crate) fn get(&self, path: &str) -> Option<HttpResponse> {
        let Kept { headers, body } = self.0.get(path)?.get()?;
        let mut response = HttpResponse::with_body(StatusCode::OK, BoxBody::new(body.clone()));
        for (name, value) in headers {
            response.headers_mut().append(name.clone(), value.clone());
        }
        Some(response)
    }

    /// Keeps a success for those who ask later. Gives it back.
    pub(crate) fn keep(&self, path: &str, response: HttpResponse) -> HttpResponse {
        if response.status() != StatusCode::OK {
            return response;
        }
        let (response, body) = response.into_parts();
        match (self.0.get(path), body.try_into_bytes()) {
            (Some(place), Ok(body)) => {
                let headers = response.headers().iter().map(|(name, value)| (name.clone(), value.clone())).collect();
                let _ = place.set(Kept { headers, body: body.clone() });
                response.set_body(BoxBody::new(body))
            }
            (_, Ok(body)) => response.set_body(BoxBody::new(body)),
            (_, Err(body)) => response.set_body(body),
        }
    }
}
