//! Headers and cookies.

use actix_web::HttpRequest;
use actix_web::dev::Payload;

use super::{Describe, Extract, Operation};
use crate::problem::Problem;

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
