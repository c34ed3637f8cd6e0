//! Who someone is: users and their login sessions.
//!
//! Owns the Postgres schema `identity`. A first sign-in also founds the user's personal organization; that is asked of
//! the port [`PersonalOrgs`], inside the same transaction.

mod error;
mod model;
mod port;
mod postgres;
mod repository;
mod schema;
mod service;

pub use error::IdentityError;
pub use model::{DevLogin, LoginSession, Profile, Session, Subject};
pub use port::PersonalOrgs;
pub use repository::{IdentityRepository, NewSession, SignIn};
pub use service::Identity;
