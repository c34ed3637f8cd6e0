//! What a handler takes from the path and the headers.

use std::str::FromStr;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use serde_json::json;
use utoipa::PartialSchema;

use super::{Describe, Extract, Matched, Operation};
use crate::problem::Problem;

/// The last parameter of the path. A text that is not of its type names nothing: 404.
#[derive(Debug)]
pub struct Path<T>(pub T);

impl<T: PartialSchema> Describe for Path<T> {
    fn describe(operation: &mut Operation) {
        operation.claim_parameter(serde_json::to_value(T::schema()).unwrap_or_default());
    }
}

impl<T: FromStr + PartialSchema> Extract for Path<T> {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        let matched = Matched::of(request);
        let last = matched.as_ref().and_then(|matched| matched.values().next_back());
        last.and_then(|text| text.parse().ok()).map(Self).ok_or_else(Problem::not_found)
    }
}

/// The last `N` parameters of the path, as texts.
#[derive(Debug)]
pub struct Paths<const N: usize>(pub [String; N]);

impl<const N: usize> Describe for Paths<N> {
    fn describe(operation: &mut Operation) {
        for _ in 0..N {
            operation.claim_parameter(json!({ "type": "string" }));
        }
    }
}

impl<const N: usize> Extract for Paths<N> {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        let matched = Matched::of(request);
        let all: Vec<String> = matched.iter().flat_map(|matched| matched.values()).map(str::to_owned).collect();
        let last = all.last_chunk::<N>().cloned();
        last.map(Self).ok_or_else(|| Problem::internal("the route has fewer parameters than its handler takes"))
    }
}

/// Headers that a handler reads by itself.
#[derive(Debug)]
pub struct Header(HttpRequest);

impl Header {
    /// A header's text, when it is there once and holds printable ASCII.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut values = self.0.headers().get_all(name);
        let value = values.next()?;
        values.next().is_none().then(|| value.to_str().ok())?
    }
}

impl Header {
    /// A cookie's value.
    #[must_use]
    pub fn cookie(&self, name: &str) -> Option<String> {
        self.0.cookie(name).map(|cookie| cookie.value().to_owned())
    }
}

impl Describe for Header {
    fn describe(_: &mut Operation) {}
}

impl Extract for Header {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        Ok(Self(request.clone()))
    }
}
