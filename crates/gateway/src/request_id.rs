//! The id of a request, for its response, its log lines and its errors.

use actix_web::dev::ServiceRequest;
use actix_web::{HttpMessage as _, HttpRequest};
use kernel::ClockRng;
use tls::sent_request_id;

/// A request's id: the caller's `X-Request-Id` if it is valid, otherwise a new one.
#[derive(Debug, Clone)]
pub struct RequestId(String);

impl RequestId {
    /// Returns the id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the id of a request that passed the telemetry middleware. The id of any other request is empty.
    pub(crate) fn text(request: &HttpRequest) -> String {
        request.extensions().get::<Self>().map_or_else(String::new, |id| id.0.clone())
    }

    pub(crate) fn of(request: &ServiceRequest, clock_rng: &ClockRng) -> Self {
        let sent = sent_request_id(request.headers());
        sent.map_or_else(|| Self::random(clock_rng), |sent| Self(sent.to_owned()))
    }

    pub(crate) fn random(clock_rng: &ClockRng) -> Self {
        Self(clock_rng.id::<uuid::Uuid>().to_string())
    }
}
