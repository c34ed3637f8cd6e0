//! Projects, their deployments and their hostnames.
//!
//! Owns the Postgres schema `projects` and the store of bundles. Two things are asked of others, in the transaction
//! that needs them: the organization's lock and plan ([`Organizations`]), and that a project's node converges on what is
//! now live ([`Placements`]).

mod bundles;
mod error;
mod model;
mod ports;
mod postgres;
mod repository;
mod schema;
mod service;

pub use bundles::{Bundles, Received};
pub use error::ProjectError;
pub use model::{
    Access, AccessMode, Author, Check, Deployment, Git, Hostname, HostnameKind, HostnameState, NewProject, Placement,
    Project, ProjectDetail, ProjectName, Proof, Resource, Resources, Rollback, VerifyRecord, VerifyRecordType,
};
pub use ports::{Live, Organizations, Placements};
pub use repository::{DeploymentRecord, ProjectRecord, ProjectRepository};
pub use service::{Org, Projects};
