//! Use cases: clients and signing keys for operators, and the authorization server.

mod client;
#[cfg(feature = "server")]
mod server;

pub use client::{Clients, REVOCATION_TOPIC};
#[cfg(feature = "server")]
pub use server::{OAuth, OAuthConfig};
