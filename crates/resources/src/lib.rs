//! The optional resources that projects are granted.
//!
//! Owns the Postgres schema `resources`. A manifest declares a resource, which is a property of a deployment; a grant gives
//! it to the project, whatever is deployed. The gateway shows both together.

mod error;
mod repository;
mod schema;
mod service;

pub use error::ResourceError;
pub use repository::*;
pub use service::Resources;
