//! The PowerDNS-compatible API, `/api`: the requests that clients of PowerDNS's HTTP API send to a server of version
//! 4.7, over the same zones as `/v1` (contract section 6).
//!
//! The OpenAPI document does not contain it, because PowerDNS's documentation describes it. Bodies are parsed
//! leniently, because clients send unneeded fields, and errors have PowerDNS's format. A setting that the service
//! cannot store is rejected, not dropped.

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

/// The routes, on the public listener next to those of [`crate::v1`].
#[must_use]
pub fn routes() -> Routes {
    let mut routes = Routes::default();
    routes.error_format("/api", &error::PowerDnsErrors);
    server::routes(&mut routes);
    zones::routes(&mut routes);
    keys::routes(&mut routes);
    routes
}
