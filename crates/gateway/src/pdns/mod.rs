//! The PowerDNS-compatible face, `/api`: what tools that speak PowerDNS's HTTP API ask of a server of version 4.7, over
//! the same zones as `/v1` (contract section 6).
//!
//! It is no part of the OpenAPI document, since PowerDNS's own documentation describes it, and no part of `/v1`: bodies
//! are read leniently, as tools send more than is needed, and failures have PowerDNS's shape. What it does not do it
//! refuses in words; it never takes what it would not keep.

mod answer;
mod keys;
mod policy;
mod refusal;
mod rrset;
mod sent;
mod server;
mod shown;
mod zones;

use crate::http::Routes;

/// The routes, on the public listener next to those of [`crate::v1`].
#[must_use]
pub fn routes() -> Routes {
    let mut routes = Routes::default();
    routes.error_format("/api", &refusal::PowerDnsErrors);
    server::routes(&mut routes);
    zones::routes(&mut routes);
    keys::routes(&mut routes);
    routes
}
