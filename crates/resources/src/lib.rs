//! Grants of optional resources to projects.
//!
//! Owns the Postgres schema `resources`. A manifest declares resources for one deployment. A grant gives a resource to
//! the project, independent of its deployments. The gateway shows both.

mod error;
mod repository;
mod schema;
mod service;

pub use error::ResourceError;
pub use repository::*;
pub use service::Resources;
