//! Git repositories of projects.
//!
//! Owns the Postgres schema `git`: names, visibility, default branches, and the log of ref updates. The git node stores
//! the contents. It asks this context which repository a path names, and reports each ref update ([`Repositories`]).
//! Browse requests read the contents through the port [`Contents`].
//!
//! A repository is identified by its id: the git node never stores a name. So a rename does not affect a push in
//! progress, and a new repository with the name of a deleted one is empty.

mod error;
mod model;
mod ports;
mod repository;
mod schema;
mod service;

pub use error::GitError;
pub use model::*;
pub use ports::{Contents, ContentsError, Ports, RepositoryLocation};
pub use repository::*;
pub use service::{
    NodeAddress, ProjectPath, ReadPermit, RepoRead, Repositories, RepositoryStorage, SEALED_COLUMNS, Site, Target,
};
