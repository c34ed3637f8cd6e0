//! Headers and cookies.

use actix_web::HttpRequest;
use actix_web::dev::Payload;

use super::{Describe, Extract, Operation};
use crate::problem::Problem;

/// The headers and cookies of a request.
#[derive(Debug)]
pub struct RequestHeaders(HttpRequest);

impl RequestHeaders {
    /// The value of a header, if it occurs once and is printable ASCII.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut values = self.0.headers().get_all(name);
        let value = values.next()?;
        values.next().is_none().then(|| value.to_str().ok())?
    }

    /// A cookie's value.
    #[must_use]
    pub fn cookie(&self, name: &str) -> Option<String> {
        self.0.cookie(name).map(|cookie| cookie.value().to_owned())
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
