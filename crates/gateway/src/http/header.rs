//! Headers and cookies.

use std::borrow::Cow;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::http::header::{COOKIE, HeaderValue};
use protocol::cookie_values;

use super::{Describe, Extract, Operation};
use crate::problem::Problem;
use crate::request_id::RequestId;

/// The headers and cookies of a request.
#[derive(Debug)]
pub struct RequestHeaders(HttpRequest);

impl RequestHeaders {
    /// Returns the value of a header, if it occurs once and is printable ASCII.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.find_single(name)?.to_str().ok()
    }

    /// Returns the value of a header, if it occurs once. Bytes that are not UTF-8 are replaced by U+FFFD.
    #[must_use]
    pub fn get_lossy(&self, name: &str) -> Option<Cow<'_, str>> {
        Some(String::from_utf8_lossy(self.find_single(name)?.as_bytes()))
    }

    fn find_single(&self, name: &str) -> Option<&HeaderValue> {
        let mut values = self.0.headers().get_all(name);
        let value = values.next()?;
        values.next().is_none().then_some(value)
    }

    /// Returns the id of the request.
    #[must_use]
    pub fn request_id(&self) -> String {
        RequestId::text(&self.0)
    }

    /// Returns whether a header occurs.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.headers().contains_key(name)
    }

    /// Returns the value of a cookie as the browser sent it, if exactly one cookie has this name and the value is
    /// UTF-8.
    ///
    /// Path and domain are fixed for a cookie whose name begins with `__Host-`, so a browser sends at most one cookie
    /// of such a name. If there are two, another host has set one of them.
    #[must_use]
    pub fn cookie(&self, name: &str) -> Option<&str> {
        let mut values = self.0.headers().get_all(COOKIE).flat_map(|header| cookie_values(header.as_bytes(), name));
        let value = values.next()?;
        values.next().is_none().then(|| str::from_utf8(value).ok())?
    }
}

impl Describe for RequestHeaders {
    fn describe(_: &mut Operation) {}
}

impl Extract for RequestHeaders {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        Ok(Self(request.clone()))
    }
}
