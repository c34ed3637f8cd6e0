//! Projects, their deployments, their hostnames and who may see them.
//!
//! Owns the Postgres schema `projects` and the store of bundles. Asked of others are the organization's lock and plan
//! ([`Organizations`]), that a project's node converges on what is now live ([`Placements`]), and the proofs of hostnames
//! ([`Resolver`], [`Zones`]).

mod bundles;
mod error;
mod hostname;
mod model;
mod ports;
mod repository;
mod schema;
mod service;
mod site_url;

pub use bundle;
pub use bundles::{Bundles, Received, S3};
pub use error::ProjectError;
pub use hostname::{HostName, InvalidHostName};
pub use kernel::{BundleLimits, Limits, Plan, PlanLimits};
pub use model::*;
pub use ports::{Linked, Live, LiveAccess, LookupFailure, Notice, Organizations, Placements, Resolver, Zones};
pub use repository::*;
pub use service::{Org, Ports, Projects, Site};
pub use site_url::{InvalidSiteUrl, SiteUrl};
