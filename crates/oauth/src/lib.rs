//! Connected apps: an OAuth 2.0 authorization server (RFC 6749, RFC 9700).
//!
//! Owns the Postgres schema `oauth`. An operator registers clients ([`Clients`]). A user approves a client's request in
//! the dashboard, and the client receives a code. The exchange of the code creates a grant with an access token and a
//! refresh token. Access tokens are JWTs (RFC 9068), signed with [`SigningKeys`]. Each token names its grant (`sid`).
//! When a grant ends, it is deleted with all its codes and tokens, so that none of them can be used again.

mod error;
#[cfg(feature = "server")]
mod jwt;
mod keys;
mod model;
mod redirect_uri;
mod repository;
mod schema;
mod service;

pub use error::OAuthError;
#[cfg(feature = "server")]
pub use jwt::{Claims, InvalidToken, RejectedToken, VerifiedToken};
pub use keys::{KEY_SET_MAX_AGE_SECONDS, KeySet, PublishedKey, SigningKeys};
pub use model::*;
pub use redirect_uri::{InvalidRedirectUri, RedirectUri};
pub use repository::*;
pub use service::*;

/// The sealed columns of the schema `oauth`.
pub const SEALED_COLUMNS: &[store::SealedColumn] = &[keys::PRIVATE_KEY, SUCCESSOR];

/// The column of the refresh tokens that a repeated refresh returns.
pub(crate) const SUCCESSOR: store::SealedColumn =
    store::SealedColumn { table: "oauth.grants", column: "successor", row_key: &[("id", "uuid")] };
