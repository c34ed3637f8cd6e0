//! The operations and their types, one file per area. Operations for browsers, which return no JSON, are
//! omitted.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

mod access;
mod ai;
mod app_auth;
mod auth;
mod billing;
mod credentials;
mod database;
mod deployments;
mod dns;
mod domains;
mod email;
mod hostnames;
mod invites;
mod me;
mod oauth;
mod orgs;
mod projects;
mod repos;
mod secrets;
mod service;
mod shared;
mod storage;

/// The types of requests and responses. Responses may contain fields and enum values that their type
/// does not list.
pub mod types {
    pub use super::access::*;
    pub use super::ai::*;
    pub use super::app_auth::*;
    pub use super::auth::*;
    pub use super::billing::*;
    pub use super::credentials::*;
    pub use super::database::*;
    pub use super::deployments::*;
    pub use super::dns::*;
    pub use super::domains::*;
    pub use super::email::*;
    pub use super::hostnames::*;
    pub use super::invites::*;
    pub use super::me::*;
    pub use super::oauth::*;
    pub use super::orgs::*;
    pub use super::projects::*;
    pub use super::repos::*;
    pub use super::secrets::*;
    pub use super::service::*;
    pub use super::shared::*;
    pub use super::storage::*;
}
