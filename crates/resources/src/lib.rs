//! Optional resources of projects: grants, secrets, object storage and app sign-in.
//!
//! Owns the Postgres schema `resources`. A manifest declares resources for one deployment. A grant gives a resource to
//! the project, independent of its deployments. The gateway shows both the declared and the granted resources. A
//! project needs no grant for secrets.
//!
//! The home node gives worker code its secrets and its storage, and serves the sign-in of the project's users. This
//! context publishes each change in the transaction that makes the change ([`DesiredParts`]), and loads the values when
//! the node polls ([`PartValues`]).

mod error;
mod model;
mod parts;
mod ports;
mod repository;
mod schema;
mod service;

pub use error::ResourceError;
pub use model::*;
pub use parts::{AuthClient, AuthGrant, PartValues, SEALED_COLUMNS, SecretSet, StorageGrant};
pub use ports::{Databases, DesiredParts, Hostnames, Notice, Organizations, Ports, ResourcePart};
pub use repository::*;
pub use service::{Resources, Target};
