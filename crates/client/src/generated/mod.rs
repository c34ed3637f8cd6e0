//! The operations and their types, one file per area. Operations that return no JSON are left out: they are for
//! browsers.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

mod access;
mod auth;
mod credentials;
mod deployments;
mod dns;
mod hostnames;
mod invites;
mod me;
mod orgs;
mod projects;
mod service;
mod shared;

/// The types of requests and responses. A response may hold more fields than its type, and words that its type
/// does not list.
pub mod types {
    pub use super::access::*;
    pub use super::auth::*;
    pub use super::credentials::*;
    pub use super::deployments::*;
    pub use super::dns::*;
    pub use super::hostnames::*;
    pub use super::invites::*;
    pub use super::me::*;
    pub use super::orgs::*;
    pub use super::projects::*;
    pub use super::service::*;
    pub use super::shared::*;
}
