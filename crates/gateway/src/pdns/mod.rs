//! The PowerDNS-compatible API, `/api`. It accepts the requests that clients send to PowerDNS's HTTP API of version
//! 4.7, and serves the same zones as `/v1` (contract section 6).
//!
//! The OpenAPI document does not contain this API, because PowerDNS's documentation describes it. Bodies are parsed
//! leniently, because clients send unneeded fields. Errors have PowerDNS's format. A setting that the service cannot
//! store is rejected instead of ignored.

mod error;
mod keys;
mod policy;
mod request;
mod response;
mod rrset;
mod server;
mod view;
mod zones;

use crate::http::Routes;

/// Returns the routes, on the public listener next to those of [`crate::v1`].
#[must_use]
pub fn routes() -> Routes {
    let mut routes = Routes::default();
    routes.error_format("/api", &error::PowerDnsErrors);
    server::routes(&mut routes);
    zones::routes(&mut routes);
    keys::routes(&mut routes);
    routes
}
