//! Users, their login sessions, personal access tokens and SSH keys.
//!
//! Owns the Postgres schema `identity`. The first sign-in of a user also creates their personal organization, through
//! the port [`PersonalOrgs`] and in the same transaction. The port [`RestrictionTargets`] resolves the targets of token
//! restrictions, and [`CodeHost`] identifies users who sign in at a code host.

mod error;
mod model;
mod ports;
mod repository;
mod schema;
mod service;

pub use error::IdentityError;
pub use model::*;
pub use ports::{CodeHost, CodeHostFailure, PersonalOrgs, RestrictionTargets};
pub use repository::*;
pub use service::{CodeHostLogin, Identity, LoginResult, LoginStart};
