//! Who someone is: users, their login sessions, personal access tokens and SSH keys.
//!
//! Owns the Postgres schema `identity`. A first sign-in also founds the user's personal organization; that is asked of
//! the port [`PersonalOrgs`], inside the same transaction. What a token is limited to is found through [`Places`], and
//! who signs in at a code host is told by [`CodeHost`].

mod error;
mod model;
mod ports;
mod repository;
mod schema;
mod service;

pub use error::IdentityError;
pub use model::*;
pub use ports::{CodeHost, CodeHostFailure, PersonalOrgs, Places};
pub use repository::*;
pub use service::{CodeHostLogin, Identity, LoginBegun, LoginEnded};
