//! Git repositories of projects.
//!
//! Owns the Postgres schema `git`: names, visibility, default branches, and the log of ref updates. The git node has
//! the contents. It asks this context for the repository of a path and reports each ref update ([`Repositories`]);
//! browsing reads the contents through the port [`Contents`].
//!
//! The id alone identifies a repository: the git node never stores a name. So a rename affects no push in progress, and
//! a new repository with the name of a deleted one is empty.

mod error;
mod model;
mod ports;
mod repository;
mod schema;
mod service;

pub use error::GitError;
pub use model::*;
pub use ports::{Contents, ContentsError, Ports};
pub use repository::*;
pub use service::{NodeAddress, ProjectPath, Repositories, SEALED_COLUMNS, Site, Target};
