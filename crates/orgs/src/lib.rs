//! Organizations and their members.
//!
//! Owns the Postgres schema `orgs`. Whatever must hold for an organization as a whole (its last admin, its plan's
//! limits) is decided under a lock of its row, [`OrgRepository::org_lock`], which other contexts take through a port.

mod error;
mod model;
mod postgres;
mod repository;
mod schema;
mod service;

pub use error::OrgError;
pub use model::{
    AuditEvent, AuditFilter, Member, NewMember, NewOrg, Org, OrgChange, OrgMembership, OrgName, RoleChange, Slug,
};
pub use repository::{OrgRecord, OrgRepository, Person};
pub use service::Orgs;
